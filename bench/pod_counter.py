"""Counts the pods of a namespace as they are created, without decoding their specs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from elasticjob_api import names
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube


class Meta(msgspec.Struct, rename="camel"):
    """What is decoded of a pod's metadata."""

    uid: str
    resource_version: str
    name: str
    labels: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: Meta


def new_pods(kube: Kube, namespace: str, on_created: Callable[[Meta], None]) -> Informer[_Pod]:
    """Return an informer that passes on each pod that is created while it runs."""

    def changed(before: _Pod | None, after: _Pod | None) -> None:
        if before is None and after is not None:
            on_created(after.metadata)

    return Informer(kube, PODS, _Pod, namespace=namespace, on_change=changed)


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

    def on_created(self, pod: Meta) -> None:
        """Record the creation of a pod."""
        role = pod.labels.get(names.LABEL_ROLE, "")
        self.created.setdefault(role, []).append(time.perf_counter())
        self._changed.set()


@asynccontextmanager
async def count_pods(kube: Kube, namespace: str) -> AsyncIterator[PodCounter]:
    """Count while the block lasts."""
    counter = PodCounter()
    informer = new_pods(kube, namespace, counter.on_created)
    running = asyncio.create_task(informer.run())
    await informer.synced.wait()
    try:
        yield counter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
