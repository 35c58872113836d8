"""Several jobs of an ElasticPool in one ClusterQueue in memory, with a played Kueue.

After each write it is checked that the jobs have no more pods than quota.
"""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api.meta import Json
from elasticjob_api.pooled_jobs import KUEUE_QUEUE
from elasticjob_kube.resources import ELASTIC_POOLS, KUEUE_FLAVORS, KUEUE_WORKLOADS, PODS
from elasticjob_operator.core.model.cluster_queue import ClusterQueue, LocalQueue, QueuedWorkload
from elasticjob_operator.queue_store import QueueStore

from tests.support.played_kueue import CLUSTER_QUEUE, FLAVOR, PlayedKueue
from tests.support.simulator.cluster import NAMESPACE
from tests.support.simulator.fake_kube import copied
from tests.support.simulator.pool_cluster import POOL, PoolCluster, PoolOperator

_LOCAL = {
    "metadata": {"name": "team", "namespace": NAMESPACE},
    "spec": {"clusterQueue": CLUSTER_QUEUE},
}
_LIVE = ("Pending", "Running")


def queue_of(pods: int) -> ClusterQueue:
    """Return the queue with quota for this number of pods."""
    resources = [{"name": "cpu", "nominalQuota": pods}]
    found = {
        "metadata": {"name": CLUSTER_QUEUE},
        "spec": {"resourceGroups": [{"flavors": [{"resources": resources}]}]},
        "status": {"conditions": [{"type": "Active", "status": "True"}]},
    }
    return msgspec.convert(found, ClusterQueue)


class _Operator(PoolOperator):
    """An operator that reads Kueue's objects, too."""

    def __init__(self, kube: Any) -> None:
        super().__init__(kube)
        self.use_kueue()
        queues = self.store.queues = QueueStore(lambda: True)
        self.store.pools.has_queue = queues.has_queue
        queues.update_local_queue(None, msgspec.convert(_LOCAL, LocalQueue))

    async def decide(self) -> None:
        assert self.quota is not None
        assert self.store.queues is not None
        self.store.queues.workloads.clear()
        for item in self.kube.all(KUEUE_WORKLOADS):
            self.store.queues.update_workload(None, msgspec.convert(copied(item), QueuedWorkload))
        await self.quota.first()
        await super().decide()


class QueueCluster(PoolCluster):
    """A cluster with a pool of a ClusterQueue, its jobs, and Kueue."""

    operator_type = _Operator
    labels = {KUEUE_QUEUE: "team"}

    def __init__(self, pods: int) -> None:
        self.kueue = PlayedKueue(self, pods, elastic=True, partial=True)
        super().__init__(clusterQueue=CLUSTER_QUEUE)
        del self.pool["capacity"]

    @property
    def now(self) -> float:
        """The time for Kueue."""
        return self.clock.seconds

    async def start(self) -> None:
        await super().start()
        nodes = {"metadata": {"name": FLAVOR}, "spec": {"nodeLabels": {}}}
        await self.kube.create(KUEUE_FLAVORS, None, nodes)

    def play(self) -> None:
        self.kueue.admit()
        queues = self.operator.store.queues
        assert queues is not None
        queues.update_cluster_queue(None, queue_of(self.kueue.quota))

    def status(self) -> Json:
        """Return the status of the pool."""
        return dict(self.kube.objects[ELASTIC_POOLS, POOL].get("status", {}))

    async def foreign(self, name: str, pods: int, priority: int) -> None:
        """Create a Workload of somebody else."""
        sets = [{"name": "main", "count": pods, "template": {"spec": {"containers": []}}}]
        spec = {"queueName": "team", "priority": priority, "podSets": sets}
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        crash_in = self.kube.crash_in
        self.kube.crash_in = None
        await self.kube.create(KUEUE_WORKLOADS, NAMESPACE, body)
        self.kube.crash_in = crash_in

    def check(self) -> None:
        live = [pod for pod in self.kube.all(PODS) if pod["status"]["phase"] in _LIVE]
        assert len(live) <= self.kueue.quota, [pod["metadata"]["name"] for pod in live]
