"""Records events about pods in the background; a failure never delays a pod."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

from elasticjob_api.times import format_micro_time
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import EVENTS, MAX_EVENT_NOTE_BYTES
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.pod_model import Pod

log = logging.getLogger(__name__)
CONTROLLER = "elasticjob.dev/process-node"


class EventRecorder:
    """Records events in the background."""

    def __init__(self, kube: Kube, node: str) -> None:
        self._kube = kube
        self._node = node
        self._numbers = itertools.count(time.time_ns())
        self._tasks: set[asyncio.Task[None]] = set()

    def warn(self, pod: Pod, reason: str, action: str, note: str) -> None:
        """Record a warning about a pod."""
        task = asyncio.create_task(self._write(pod, reason, action, note))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, pod: Pod, reason: str, action: str, note: str) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta.name}.{next(self._numbers):x}",
                "namespace": meta.namespace,
            },
            "type": "Warning",
            "reason": reason,
            "action": action,
            "note": note[:MAX_EVENT_NOTE_BYTES],
            "eventTime": format_micro_time(time.time()),
            "reportingController": CONTROLLER,
            "reportingInstance": self._node,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
        }
        try:
            await self._kube.create(EVENTS, meta.namespace, body)
        except KubeError as error:
            log.warning(
                "pod %s: the event %s (%s) could not be written: %s", pod.key, reason, note, error
            )
