"""Watches Kueue's queues and the Workloads of everybody, while a pool names a ClusterQueue.

Other installations neither pay for these watches nor need the rights to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import KUEUE_CLUSTER_QUEUES, KUEUE_LOCAL_QUEUES, KUEUE_WORKLOADS
from elasticjob_kube.session import Kube

from elasticjob_operator.cluster_watches import run_if_allowed
from elasticjob_operator.core.model.cluster_queue import ClusterQueue, LocalQueue, QueuedWorkload
from elasticjob_operator.queue_store import QueueStore
from elasticjob_operator.store import Store


class QueueWatch:
    """Keeps the store's queues up to date, and reports each change.

    Workloads of other partitions count, too: a queue is not of one namespace.
    """

    def __init__(
        self, kube: Kube, store: Store, namespace: str | None, on_change: Callable[[], None]
    ) -> None:
        queues = store.queues = QueueStore(self._is_listed)
        store.pools.has_queue = queues.has_queue
        self._needed = asyncio.Event()

        def on_queue(before: ClusterQueue | None, after: ClusterQueue | None) -> None:
            queues.update_cluster_queue(before, after)
            on_change()

        def on_local_queue(before: LocalQueue | None, after: LocalQueue | None) -> None:
            queues.update_local_queue(before, after)
            on_change()

        def on_workload(before: QueuedWorkload | None, after: QueuedWorkload | None) -> None:
            queues.update_workload(before, after)
            on_change()

        self._informers: dict[str, Informer[Any]] = {
            "clusterqueues": Informer(kube, KUEUE_CLUSTER_QUEUES, ClusterQueue, on_change=on_queue),
            "localqueues": Informer(
                kube,
                KUEUE_LOCAL_QUEUES,
                LocalQueue,
                namespace=namespace,
                on_change=on_local_queue,
            ),
            "workloads": Informer(
                kube, KUEUE_WORKLOADS, QueuedWorkload, namespace=namespace, on_change=on_workload
            ),
        }

    def begin(self) -> None:
        """Watch from now on: there is a pool that needs it."""
        self._needed.set()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the watches, which never return."""
        return [self._run(kind, informer) for kind, informer in self._informers.items()]

    async def _run(self, kind: str, informer: Informer[Any]) -> None:
        await self._needed.wait()
        missing = "ElasticPools of a ClusterQueue have no effect"
        await run_if_allowed(informer, missing=missing, grant=f"{kind}.kueue.x-k8s.io")

    def _is_listed(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers.values())
