"""Writes a changed status of a pod, one write at a time, never to another pod of its name."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.pod_model import Pod

log = logging.getLogger(__name__)
_RETRY = 1.0


class PodStatusWriter:
    """Writes the status of one pod. Changes during a write are written together after it."""

    def __init__(self, kube: Kube, wake: Callable[[], None]) -> None:
        self._kube = kube
        self._wake = wake
        self._written: Json | None = None
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def write_if_due(self, pod: Pod, status: Json, now: float) -> float:
        """Begin to write a status if it differs from the last one and no write is under way.

        Return the latest time of the next call, in seconds since the epoch. `wake` is called when a
        write has ended.
        """
        if self._task is not None or status == self._written:
            return math.inf
        if now < self._not_before:
            return self._not_before
        self._task = asyncio.create_task(self._write(pod, status))
        return math.inf

    async def write_now(self, pod: Pod, status: Json) -> None:
        """Write a status and wait until it is stored; raises KubeError if it is not."""
        if self._task:
            await asyncio.wait([self._task])
        if status != self._written:
            await self._patch(pod, status)

    def forget(self) -> None:
        """Forget what was written."""
        self._written = None

    def cancel(self) -> None:
        """Cancel a write that is under way."""
        if self._task:
            self._task.cancel()

    async def _write(self, pod: Pod, status: Json) -> None:
        try:
            await self._patch(pod, status)
        except NotFound:
            log.info("pod %s is deleted", pod.key)
            self._written = status
        except KubeError as error:
            log.warning("the status of pod %s could not be written: %.500s", pod.key, error)
            self._not_before = time.time() + _RETRY
        finally:
            self._task = None
            self._wake()

    async def _patch(self, pod: Pod, status: Json) -> None:
        meta = pod.metadata
        await self._kube.request(
            "PATCH",
            PODS.path(meta.namespace, meta.name, "status"),
            body={"metadata": {"uid": meta.uid}, "status": status},
            content_type="application/strategic-merge-patch+json",
        )
        self._written = status
