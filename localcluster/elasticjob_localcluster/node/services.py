"""Lists the Services of a namespace anew for each container's start.

A Service created just before a pod must be in the pod's environment; watches of two kinds have no
common order. Containers that start together share one request.
"""

from __future__ import annotations

import asyncio

from elasticjob_kube.resources import SERVICES
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.pod_model import Json


class ServiceLister:
    """Lists Services; callers of `list_services` share a request that has not been sent yet."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._running: dict[str, asyncio.Task[list[Json]]] = {}
        self._next: dict[str, asyncio.Task[list[Json]]] = {}

    async def list_services(self, namespace: str) -> list[Json]:
        """Return the namespace's Services as they are now or later, never as they were before the call."""
        task = self._next.get(namespace)
        if task is None:
            task = asyncio.create_task(self._read(namespace, self._running.get(namespace)))
            self._next[namespace] = task
        return await asyncio.shield(task)

    async def _read(self, namespace: str, before: asyncio.Task[list[Json]] | None) -> list[Json]:
        if before is not None:
            await asyncio.wait([before])
        task = self._next.pop(namespace)
        self._running[namespace] = task
        try:
            items: list[Json] = (await self._kube.list(SERVICES, namespace)).get("items") or []
            return items
        finally:
            if self._running.get(namespace) is task:
                del self._running[namespace]
