"""Writes Kubernetes Events about jobs, which `kubectl describe` shows: in the background, and each only once."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.times import format_micro_time
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import EVENTS, MAX_EVENT_NOTE_BYTES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.actions import EmitEvent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Events:
    """Writes Events in the background. `identity` names this process."""

    kube: Kube
    identity: str
    _sending: set[asyncio.Task[None]] = field(default_factory=set)

    def emit(self, job: ElasticJob, event: EmitEvent) -> None:
        """Send an Event about the job in the background; an error is logged."""
        task = asyncio.create_task(self._send(job.metadata.namespace, self._body(job, event)))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def flush(self) -> None:
        """Wait until all Events have been sent."""
        await asyncio.gather(*self._sending)

    async def _send(self, namespace: str, body: dict[str, Any]) -> None:
        try:
            await self.kube.create(EVENTS, namespace, body)
        except KubeError as error:
            log.info("event %s not recorded: %s", body["reason"], error)

    def _body(self, job: ElasticJob, event: EmitEvent) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"generateName": f"{job.metadata.name}-", "namespace": job.metadata.namespace},
            "eventTime": format_micro_time(time.time()),
            "reportingController": f"{names.GROUP}/{names.OPERATOR}",
            "reportingInstance": self.identity[:128],
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:MAX_EVENT_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": "ElasticJob",
                "namespace": job.metadata.namespace,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
            },
        }
