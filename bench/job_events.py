"""Plays events of one job to the operator's store and decisions, without a cluster.

Every request succeeds at once, and new pods are ready at once. What an event costs is what the
store and all decisions about it cost; playing the API server's part is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import format_indices
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests.infrastructure import manifest_inputs
from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.model import actions as do
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store
from msgspec.structs import replace

from bench import jobs

T = TypeVar("T")
Measure = Callable[[Callable[[], object]], float]
"""Calls a function, and returns what that has cost."""
_KEY = JobKey("bench", "job")
_CREATED = "2026-01-01T00:00:00Z"
_MOST_DECISIONS = 50


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU that a call takes."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


@dataclass
class RunningJob:
    """A running job whose members have no agent, as the API server has it.

    Attributes:
        measure: measures the operator's work.
        cost: the sum of what it has measured.
        decisions: the number of decisions.
    """

    members: int
    measure: Measure = cpu_ms
    store: Store = field(default_factory=Store)
    cost: float = 0.0
    decisions: int = 0
    _job: Json = field(default_factory=dict)
    _plans: dict[str, Json] = field(default_factory=dict)
    _pods: dict[str, Pod] = field(default_factory=dict)
    _versions: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        """Make the job and its pods, and let the operator write what it finds to write."""
        self._job = _job(self.members)
        job = self._store_job()
        for number in range(self.members):
            body = member_pod(
                job, "worker", number, 0, resources={}, restarts=0, defaults=jobs.DEFAULTS
            )
            self._observe(self._running(body))
        self._observe(self._running(master_pod(job, 0, restarts=0, defaults=jobs.DEFAULTS)))
        self.store.infrastructure(job).ensured_for = manifest_inputs(job)
        self.settle()
        self.cost = 0.0

    def lose_member(self, index: int) -> None:
        """Let the first pod of a member fail, and the operator replace it."""
        pod = self._pods[f"job-worker-{index}"]
        self._observe(replace(pod, status=replace(pod.status, phase="Failed")))
        self.settle()

    def plan(self, name: str, workers: int) -> None:
        """Create a ScalePlan to this size, and let the operator execute it."""
        self._add_plan(jobs.plan(name, "job", workers))
        self.settle()
        assert self._plans[name]["status"]["phase"] == "Succeeded", self._plans[name]["status"]

    def settle(self) -> None:
        """Decide, and execute the decisions, until there is nothing left to do."""
        for _ in range(_MOST_DECISIONS):
            decision = self.decide()
            if not decision.actions:
                return
            for action in decision.actions:
                self._execute(action)
        raise AssertionError("the decisions do not end")

    def decide(self) -> do.Decision:
        """Decide once."""
        job = self.store.job(_KEY)
        assert job is not None
        # Counts are written once a second; each write here is as long after the last.
        now = time.time() + 2.0 * self.decisions
        self.decisions += 1
        return self._measured(lambda: decide(self.store.observed(job), now, jobs.DEFAULTS))

    def _measured(self, work: Callable[[], T]) -> T:
        found: list[T] = []
        self.cost += self.measure(lambda: found.append(work()))
        return found[0]

    def _execute(self, action: do.Action) -> None:
        match action:
            case do.PatchJobStatus(patch):
                _merge(self._job, {"status": patch})
                self._store_job()
            case do.WriteBackReplicas(role, replicas):
                _merge(self._job, {"spec": {"replicaSpecs": {role: {"replicas": replicas}}}})
                self._job["metadata"]["generation"] += 1
                job = self._store_job()
                self.store.infrastructure(job).ensured_for = manifest_inputs(job)
            case do.PatchStatus(_, name, _, _, patch):
                _merge(self._plans[name], {"status": patch})
                self._store_plan(name)
            case do.Adopt(_, name, _, _, owners):
                _merge(self._plans[name], {"metadata": {"ownerReferences": list(owners)}})
                self._store_plan(name)
            case do.CreatePlan(body):
                self._add_plan(msgspec.to_builtins(body))
            case do.CreatePod(body):
                self._observe(self._running(body))
            case do.DeletePod(name):
                pod = self._pods.pop(name)
                self._measured(lambda: self.store.update_pod(pod, None))
                job = self._store_job()
                self.store.pods.record_gone(identity_of(job), name)
            case do.DeleteScaling(_, name, uid):
                del self._plans[name]
                self.store.forget_uid(uid)
            case do.ConfirmGone(names):
                for name in names:
                    assert name not in self._pods
                    self.store.pods.record_gone(identity_of(self._store_job()), name)
            case do.EnsureInfrastructure() | do.EmitEvent():
                pass
            case _:
                raise AssertionError(f"no event of these leads to {action}")

    def _add_plan(self, body: Json) -> None:
        name = body["metadata"]["name"]
        body["metadata"] |= {
            "namespace": "bench",
            "uid": f"uid-{name}",
            "creationTimestamp": _CREATED,
        }
        self._plans[name] = body
        self._store_plan(name)

    def _store_plan(self, name: str) -> None:
        plan = self._plans[name]
        plan["metadata"]["resourceVersion"] = str(next(self._versions))
        self.store.update(SCALE_PLANS, plan)

    def _store_job(self) -> ElasticJob:
        self._job["metadata"]["resourceVersion"] = str(next(self._versions))
        self.store.update(ELASTIC_JOBS, self._job)
        job = self.store.job(_KEY)
        assert job is not None
        return job

    def _observe(self, pod: Pod) -> None:
        before = self._pods.get(pod.name)
        self._pods[pod.name] = pod
        self._measured(lambda: self.store.update_pod(before, pod))

    def _running(self, body: Any) -> Pod:
        """Return a pod as a watch reports it that is ready."""
        version = next(self._versions)
        metadata = body["metadata"] | {
            "uid": f"{version:08x}",
            "resourceVersion": str(version),
            "creationTimestamp": _CREATED,
        }
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return msgspec.convert({"metadata": metadata, "spec": body["spec"], "status": status}, Pod)


def _job(members: int) -> Json:
    body = jobs.job("job", members)
    body["metadata"] |= {"namespace": "bench", "uid": "0-1-2-3", "generation": 1}
    body["spec"]["framework"] = "custom"
    body["spec"]["replicaSpecs"]["worker"]["agent"] = "None"
    indices = format_indices(range(members))
    worker = {
        "desired": members,
        "indices": indices,
        "startedIndices": indices,
        "highestIndex": members - 1,
    }
    body["status"] = {
        "phase": "Running",
        "replicaStatuses": {"worker": worker},
        "master": {"incarnations": 1},
    }
    return body


def _merge(target: Json, patch: Any) -> None:
    """Apply a merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.setdefault(key, {})
            _merge(inner, value)
        else:
            target[key] = value
