"""Invariants of the order in which the roles of a job start."""

from __future__ import annotations

from elasticjob_api.meta import Json
from elasticjob_kube.resources import PODS

from tests.support.simulator.raw_objects import controller, is_ready, parsed, pod_role
from tests.support.simulator.recorded_history import RecordedHistory


class StartInvariants:
    """Checks that a role's first pods are created after the roles it depends on were ready."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self._started: set[str] = set()
        self._most: dict[tuple[str, str], int] = {}
        """The most members of a role that were ready at the same time.

        It is counted since the job was created, resumed or retried.
        """

    def check_job(self, before: Json | None, after: Json | None) -> None:
        if after is None or not _order(after):
            return
        uid = after["metadata"]["uid"]
        status = after.get("status", {})
        if any(
            each["type"] == "Running" and each["status"] == "True"
            for each in status.get("conditions", ())
        ):
            self._started.add(uid)
        old = (
            before.get("status", {})
            if before is not None and before["metadata"]["uid"] == uid
            else {}
        )
        is_retried = bool(old.get("retryTime")) and not status.get("retryTime")
        if is_retried or (status.get("phase") == "Suspended" != old.get("phase")):
            self._started.discard(uid)
            for role in after["spec"]["replicaSpecs"]:
                self._most.pop((uid, role), None)
        self._count(after)

    def check_pod(self, uid: str) -> None:
        """Count again after a change of a pod."""
        job = self.history.job_with(uid)
        if job is not None and _order(job):
            self._count(job)

    def check_created(self, pod: Json, job: Json) -> None:
        uid = job["metadata"]["uid"]
        role = pod_role(pod)
        policy = job["spec"].get("runPolicy", {})
        if uid in self._started:
            return
        for needed in _order(job).get(role, ()):
            replica = job["status"]["replicaStatuses"][needed]
            least = self.history.lowest_min_replicas[uid, needed]
            size = replica.get("desired", 0) if policy.get("startPolicy") == "AllReady" else least
            had = self._most.get((uid, needed), 0)
            assert had >= min(size, replica.get("desired", 0)), (
                f"{pod['metadata']['name']} is created, "
                f"and only {had} of {size} {needed}s were ready"
            )

    def _count(self, job: Json) -> None:
        uid = job["metadata"]["uid"]
        ready = dict.fromkeys(job["spec"]["replicaSpecs"], 0)
        for pod in self.history.all(PODS):
            if controller(pod) == uid and is_ready(pod) and pod_role(pod) in ready:
                ready[pod_role(pod)] += 1
        replicas = job.get("status", {}).get("replicaStatuses", {})
        for role, number in ready.items():
            number += len(parsed(replicas.get(role, {}).get("succeededIndices", "")))
            self._most[uid, role] = max(number, self._most.get((uid, role), 0))


def _order(job: Json) -> dict[str, list[str]]:
    roles = job["spec"]["replicaSpecs"]
    return {role: spec["dependsOn"] for role, spec in roles.items() if spec.get("dependsOn")}
