"""A cluster in memory with one job and an operator.

Its real decisions, store and executor over a fake API server. The operator decides, and pods start,
drain and end, only when the test calls for it, so every history is repeatable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_RESTART_DELAY_SECONDS, ElasticJob
from elasticjob_api.indices import parse_indices
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NODES,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_operator.cluster_watches import QuotaWatch
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.members.backoff import seconds_left
from elasticjob_operator.core.model.nodes import Node
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.errors import StaleState
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import Retry
from elasticjob_operator.workload_executor import WorkloadExecutor

from tests.support.simulator.fake_kube import Crash, FakeKube, copied

NAMESPACE = "ns"
JOB = "job"
CUSTOM = (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)
DEFAULTS = Defaults(master_image="master:1", agent_image="agent:1")


def free_of_cost() -> DecisionCosts:
    """Return costs of a machine that decides in no time, so that histories can be repeated."""
    return DecisionCosts(cpu_clock=lambda: 0.0)


class Operator:
    """One process of the operator, which works only when the test calls a method."""

    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        self.store = Store()
        self.pods: Informer[Pod] = Informer(
            self.session,
            PODS,
            Pod,
            label_selector=names.LABEL_JOB_UID,
            on_change=lambda old, new: _void(self.store.update_pod(old, new)),
        )
        self.nodes: Informer[Node] = Informer(
            self.session,
            NODES,
            Node,
            on_change=lambda old, new: _void(self.store.update_node(old, new)),
        )
        events = Events(self.session, "simulator")
        pods = self.store.pods
        pod_executor = PodExecutor(self.session, self.pods, pods, events, "default/lease")
        self.executor = Executor(self.session, self.store, pod_executor, events)
        self.reconciler = Reconciler(
            self.session, self.store, self.executor, DEFAULTS, free_of_cost()
        )
        self.quota: QuotaWatch | None = None

    def use_kueue(self) -> None:
        """Let jobs with a queue label wait for quota."""
        self.quota = QuotaWatch(self.session, self.store, Scope(), lambda _: None)
        workloads = WorkloadExecutor(self.session, self.quota.workloads)
        self.executor = dataclasses.replace(self.executor, workloads=workloads)
        self.reconciler = dataclasses.replace(self.reconciler, executor=self.executor)

    @property
    def session(self) -> Any:
        """The API server, as the operator's own code takes it."""
        return self.kube

    async def watch(self) -> None:
        """Observe everything as it is now."""
        for resource in CUSTOM:
            for item in self.kube.all(resource):
                self.store.update(resource, copied(item))
            present = {item["metadata"]["uid"] for item in self.kube.all(resource)}
            key = JobKey(NAMESPACE, JOB)
            for custom in [*self.store.requests(key), *filter(None, [self.store.job(key)])]:
                if type(custom).__name__ == resource.kind and custom.metadata.uid not in present:
                    self.store.forget(custom)
        await self.pods.refresh()
        await self.nodes.refresh()
        if self.quota is not None:
            await self.quota.first()

    async def work(self, now: float, *, rounds: int = 60, pauses: bool = False) -> float | None:
        """Decide and execute until there is nothing to do, or with `pauses` until an error.

        Return the seconds after which to do so again.
        """
        for _ in range(rounds):
            job = self.store.job(JobKey(NAMESPACE, JOB))
            if job is None:
                return None
            decision = decide(self.store.observed(job), now, DEFAULTS)
            if not decision.actions:
                return decision.requeue_after
            try:
                await self.executor.execute(job, decision.actions)
            except StaleState:
                await self.watch()
            except Retry:
                if pauses:
                    return None
                await self.watch()
        raise AssertionError(f"does not settle; it wants {decision.actions}")


class Cluster:
    """A cluster, a job in it, and the operator, which may die."""

    def __init__(
        self, *, replicas: int | None = 2, least: int = 1, most: int | None = 6, **spec: Any
    ) -> None:
        self.kube = FakeKube()
        self.now = time.time() + 10
        self.kube.after_write = self.check
        self.operator = Operator(self.kube)
        self._body = job_body(replicas, least, most, **spec)

    async def start(self) -> None:
        await self.create(ELASTIC_JOBS, self._body)
        await self.settle()

    async def apply(self, resource: Resource, name: str, **spec: Any) -> None:
        """Apply a custom resource as a user does."""
        body = {
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"jobName": JOB, **spec},
        }
        await self.create(resource, body)

    async def create(self, resource: Resource, body: Json) -> None:
        """Create as a user: faults are the operator's only."""
        faults = self.kube.crash_in, self.kube.lose_answer_in
        self.kube.crash_in = self.kube.lose_answer_in = None
        await self.kube.create(resource, NAMESPACE, body)
        self.kube.crash_in, self.kube.lose_answer_in = faults

    async def run_operator(self, *, pauses: bool = False) -> bool:
        """Let the operator observe and reconcile once; return False when it died.

        A new process takes its place.
        """
        self.now += 2
        try:
            await self.operator.watch()
            await self.operator.work(self.now, pauses=pauses)
        except Crash:
            self.kube.crash_in = None
            self.operator = Operator(self.kube)
            return False
        return True

    async def settle(self, *, turns: int = 80) -> None:
        """Let operator, kubelets and agents work until nothing changes any more."""
        for _ in range(turns):
            before = self.kube.version
            alive = await self.run_operator()
            self.run_pods()
            if alive and self.kube.version == before:
                due = self._next_restart()
                if due is None:
                    return
                self.now = max(self.now, due)
        raise AssertionError("the cluster does not come to rest")

    def _next_restart(self) -> float | None:
        """Return when the next back-off ends; None if no member has one."""
        if (ELASTIC_JOBS, JOB) not in self.kube.objects:
            return None
        status = self.job().status
        if status.phase in ("Succeeded", "Failed", "Stopped", "Suspended"):
            return None
        if status.retry_time is not None:
            return parse_time(status.retry_time)
        waits = [
            wait
            for replica in status.replica_statuses.values()
            for wait in replica.back_off.values()
        ]
        waits += [status.master.back_off] if status.master.back_off is not None else []
        longest = MAX_RESTART_DELAY_SECONDS
        found = (
            self.now + left
            for wait in waits
            if (left := seconds_left(wait, self.now, longest=longest))
        )
        return min(found, default=None)

    def run_pods(self) -> None:
        """Let every pod take one step: start, drain or terminate."""
        run_pods(self.kube)

    def end(self, name: str, code: int, reason: str = "Error") -> None:
        """Let a pod's training container end."""
        end_container(self.kube, name, code, reason)

    def job(self) -> ElasticJob:
        return msgspec.convert(self.kube.objects[ELASTIC_JOBS, JOB], ElasticJob)

    async def events(self) -> list[str]:
        """Return reason and note of each Event that was sent about the job."""
        await asyncio.sleep(0)  # they are sent in the background
        about_job = (each for each in self.kube.events if each["regarding"]["name"] == JOB)
        return [f"{each['reason']}: {each['note']}" for each in about_job]

    def edit_role(self, role: str = "worker", **fields: Any) -> None:
        """Edit a role of the job's spec as a user does."""
        self.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"][role].update(fields))

    def edit_policy(self, **fields: Any) -> None:
        """Edit the job's runPolicy as a user does."""
        self.kube.edit(
            ELASTIC_JOBS, JOB, lambda spec: spec.setdefault("runPolicy", {}).update(fields)
        )

    def check(self) -> None:
        """Check after each write that no member has two live pods."""
        with_pod: set[tuple[str, str]] = set()
        for pod in self.kube.all(PODS):
            labels = pod["metadata"]["labels"]
            member = (labels[names.LABEL_ROLE], labels.get(names.LABEL_INDEX, ""))
            if pod["status"]["phase"] in ("Pending", "Running"):
                assert member not in with_pod, f"two live pods of {member}"
                with_pod.add(member)

    def check_final_state(self) -> None:
        """Check what holds when nothing changes any more.

        The job has its pods, and all plans and requests ended.
        """
        job = self.job()
        for role, replica in job.status.replica_statuses.items():
            wanted = parse_indices(replica.indices) - parse_indices(replica.succeeded_indices)
            live = {
                int(p["metadata"]["labels"][names.LABEL_INDEX])
                for p in self.kube.pods(role)
                if p["status"]["phase"] == "Running"
            }
            assert live == wanted, f"{role}: live {sorted(live)}, wanted {sorted(wanted)}"
            assert replica.desired == len(parse_indices(replica.indices))
        for plan in self.kube.all(SCALE_PLANS):
            assert plan["status"]["phase"] in (
                "Succeeded",
                "Failed",
                "Superseded",
                "PartiallySucceeded",
                "Cancelled",
            ), plan
        for request in (*self.kube.all(SCALE_INS), *self.kube.all(SCALE_OUTS)):
            assert request["status"]["phase"] in ("ScaleSucceeded", "ScaleFailed"), request
        assert job.status.current_plan is None


def run_pods(kube: FakeKube) -> None:
    """Let every pod take one step: start, drain or terminate."""
    draining = {
        name
        for plan in kube.all(SCALE_PLANS)
        if plan.get("status", {}).get("phase") == "Draining"
        for name in plan["status"].get("drainingPods", ())
    }
    for pod in kube.all(PODS):
        name = pod["metadata"]["name"]
        phase = pod["status"]["phase"]
        if "deletionTimestamp" in pod["metadata"]:
            kube.remove(PODS, name)
        elif name in draining and phase == "Running":
            end_container(kube, name, names.EXIT_DRAINED)
        elif phase == "Pending":
            make_ready(kube, name)


def make_ready(kube: FakeKube, name: str) -> None:
    """Let a pod run and be ready."""
    ready = {"type": "Ready", "status": "True"}
    kube.set_status(PODS, name, phase="Running", conditions=[ready])


def end_container(kube: FakeKube, name: str, code: int, reason: str = "Error") -> None:
    """Let a pod's training container end."""
    terminated = {"exitCode": code, "reason": reason if code else "Completed"}
    kube.set_status(
        PODS,
        name,
        phase="Failed" if code else "Succeeded",
        conditions=[],
        containerStatuses=[{"name": "train", "state": {"terminated": terminated}}],
    )


def job_body(replicas: int | None, least: int, most: int | None, **spec: Any) -> Json:
    container = {
        "name": "train",
        "image": "train:1",
        "command": ["train"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    worker = {
        "minReplicas": least,
        "template": {"spec": {"containers": [container]}},
        "drainSeconds": 30,
    }
    worker |= {"replicas": replicas} if replicas is not None else {}
    worker |= {"maxReplicas": most} if most is not None else {}
    worker |= spec.pop("worker", {})
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": JOB, "namespace": NAMESPACE},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}, **spec},
    }


def pick(rng: random.Random, items: list[Any]) -> Any:
    return items[rng.randrange(len(items))]


def _void(_: object) -> None:
    return None
