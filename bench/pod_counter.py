"""Counts the pods of a namespace as they are created, without decoding their specs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from elasticjob_api import names
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str
    labels: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Meta


@dataclass
class PodCounter:
    """When the creation of each pod was observed, by role; times are of `time.perf_counter`."""

    created: dict[str, list[float]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for(
        self, number: int, *, role: str = names.ROLE_WORKER, seconds: float = 120.0
    ) -> float:
        """Wait until this number of pods of a role has been created in total.

        Return when the last of them was.
        """
        async with asyncio.timeout(seconds):
            while len(self.created.get(role, ())) < number:
                self._changed.clear()
                await self._changed.wait()
        return self.created[role][number - 1]

    def on_created(self, role: str) -> None:
        """Record the creation of a pod."""
        self.created.setdefault(role, []).append(time.perf_counter())
        self._changed.set()


@asynccontextmanager
async def count_pods(kube: Kube, namespace: str) -> AsyncIterator[PodCounter]:
    """Count while the block lasts."""
    counter = PodCounter()

    def changed(before: _Pod | None, after: _Pod | None) -> None:
        if before is None and after is not None:
            counter.on_created(after.metadata.labels.get(names.LABEL_ROLE, ""))

    informer = Informer(kube, PODS, _Pod, namespace=namespace, on_change=changed)
    running = asyncio.create_task(informer.run())
    await informer.synced.wait()
    try:
        yield counter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
