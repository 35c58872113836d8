"""Several jobs of an ElasticPool in memory: the operator's code, with pods that start and drain.

After each write it is checked that the jobs hold no more than the pool has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.meta import Json
from elasticjob_api.pod_requests import pod_requests
from elasticjob_api.quantity import parse_quantity
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    ELASTIC_POOLS,
    PODS,
    PRIORITY_CLASSES,
    SCALE_PLANS,
)
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.pool_sharing import PoolSharing
from elasticjob_operator.pool_store import PriorityClass
from elasticjob_operator.work_queue import Retry

from tests.support.simulator.cluster import (
    CUSTOM,
    NAMESPACE,
    Operator,
    end_container,
    free_of_cost,
    job_body,
    run_pods,
)
from tests.support.simulator.fake_kube import Crash, FakeKube, copied

POOL = "pool"


class _Clock:
    """A clock that the test moves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds


class PoolOperator(Operator):
    """An operator that decides about the pool, too."""

    def __init__(self, kube: Any) -> None:
        super().__init__(kube)
        self.sharing = PoolSharing(kube, self.store, lambda _: None, free_of_cost())

    async def decide(self) -> None:
        """Observe everything, decide about the pool, and reconcile each job."""
        for resource in CUSTOM:
            for item in self.kube.all(resource):
                self.store.update(resource, copied(item))
        for item in self.kube.all(ELASTIC_POOLS):
            self.store.pools.update(None, msgspec.convert(copied(item), ElasticPool))
        for item in self.kube.all(PRIORITY_CLASSES):
            found = msgspec.convert(copied(item), PriorityClass)
            self.store.pools.update_priority(None, found)
        await self.pods.refresh()
        try:
            await self.sharing.reconcile(JobKey(NAMESPACE, POOL))
            for key in self.store.job_keys():
                await self.reconciler.reconcile(key)
        except Retry:
            return  # later


class PoolCluster:
    """A cluster with a pool and its jobs."""

    operator_type: type[PoolOperator] = PoolOperator
    labels: Mapping[str, str] = {}

    def __init__(self, **pool: Any) -> None:
        self.clock = _Clock(1_800_000_000.0)
        kube: Any = FakeKube(now=self.clock.now)
        self.kube = kube
        self.kube.clock = self.clock
        self.kube.after_write = self.check
        self.pool = {"capacity": {"cpu": "4600m"}, "cooldownSeconds": 1, **pool}
        self.operator = self.operator_type(self.kube)
        self.deaths = 0

    async def start(self) -> None:
        """Create the pool and a priority class."""
        metadata = {"name": POOL, "namespace": NAMESPACE}
        await self.kube.create(ELASTIC_POOLS, NAMESPACE, {"metadata": metadata, "spec": self.pool})
        urgent = {"metadata": {"name": "urgent"}, "value": 1000}
        await self.kube.create(PRIORITY_CLASSES, None, urgent)

    async def submit(self, name: str, replicas: int, *, priority: str = "") -> None:
        """Create a job as a user: faults are the operator's only."""
        body = job_body(replicas, 1, replicas)
        body["metadata"] |= {"name": name, "labels": dict(self.labels)}
        if priority:
            pod = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
            pod["priorityClassName"] = priority
        crash_in = self.kube.crash_in
        self.kube.crash_in = None
        await self.kube.create(ELASTIC_JOBS, NAMESPACE, body)
        self.kube.crash_in = crash_in

    async def settle(self, *, turns: int = 120) -> None:
        """Let operator, kubelets and agents work until nothing changes any more."""
        quiet = 0
        for _ in range(turns):
            before = self.kube.version
            self.clock.seconds += 2
            try:
                await self.operator.decide()
            except Crash:
                self.kube.crash_in = None
                self.deaths += 1
                self.operator = self.operator_type(self.kube)
            run_pods(self.kube)
            self.play()
            quiet = quiet + 1 if self.kube.version == before else 0
            if quiet == 3:
                return
        raise AssertionError("the cluster does not come to rest")

    def play(self) -> None:
        """Let others work, as Kueue."""

    def finish(self, job: str) -> None:
        """Let all members of a job end with success."""
        for pod in self.members(job):
            end_container(self.kube, pod["metadata"]["name"], 0)

    def members(self, job: str) -> list[Json]:
        """Return the running pods of a job's workers."""
        return [
            pod
            for pod in self.kube.pods()
            if pod["metadata"]["labels"][names.LABEL_JOB_NAME] == job
            and pod["status"]["phase"] == "Running"
        ]

    def job(self, name: str) -> ElasticJob:
        """Return a job as stored."""
        return msgspec.convert(self.kube.objects[ELASTIC_JOBS, name], ElasticJob)

    def plans(self, job: str) -> list[Json]:
        """Return a job's plans."""
        return [plan for plan in self.kube.all(SCALE_PLANS) if plan["spec"]["jobName"] == job]

    def check(self) -> None:
        """Check that the pods hold no more than the pool has, and no member has two."""
        live = [pod for pod in self.kube.all(PODS) if pod["status"]["phase"] in _LIVE]
        held = sum(pod_requests(pod["spec"]).get("cpu", 0) for pod in live)
        assert held <= parse_quantity(self.pool["capacity"]["cpu"]), [
            pod["metadata"]["name"] for pod in live
        ]
        members = [
            (labels[names.LABEL_JOB_NAME], labels[names.LABEL_ROLE], labels.get(names.LABEL_INDEX))
            for labels in (pod["metadata"]["labels"] for pod in live)
        ]
        assert len(members) == len(set(members))


_LIVE = ("Pending", "Running")
