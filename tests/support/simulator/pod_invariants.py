"""Invariants of pods."""

from __future__ import annotations

from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_operator.core.model.observed import Observed

from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    MOST_RETAINED,
    controller,
    is_failure_of_program,
    is_live,
    is_ready,
    is_terminating,
    parsed,
    pod_index,
    pod_role,
)
from tests.support.simulator.recorded_history import RecordedHistory


class PodInvariants:
    """Checks every change of a pod, and records facts for the other invariants."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history

    def check(self, before: Json | None, after: Json | None, actor: Any) -> None:
        pod = after or before
        assert pod is not None
        name = pod["metadata"]["name"]
        uid = controller(pod)
        if uid is None:
            assert actor is None, f"pod {name} of another owner was touched"
            return
        if (
            before is not None
            and after is not None
            and before["metadata"]["labels"] != after["metadata"]["labels"]
        ):
            self.history.tampered.add(pod["metadata"]["uid"])
        job = self.history.job_with(uid)
        role = pod_role(pod)
        index = pod_index(pod)
        member = (uid, role, index)
        if after is not None and (is_ready(after) or after["status"].get("phase") == "Succeeded"):
            self.history.was_ready.add(member)
        if (
            after is not None
            and after["status"].get("phase") == "Succeeded"
            and not is_terminating(after)
        ):
            self.history.ended_by_itself.add(member)
        if after is not None and is_live(after):
            live = self.history.live[member]
            live.add(name)
            assert len(live) == 1, f"two live pods of {role} {index}: {sorted(live)}"
        else:
            self.history.live[member].discard(name)
        if before is None:
            self._check_created(pod, uid, job)
        self._count_terminations(before, after, uid, role)
        if actor is None or before is None or job is None:
            return
        leaves = after is None or (is_terminating(after) and not is_terminating(before))
        if leaves:
            self._check_deleted(before, after, job)
            if is_failure_of_program(before) and not is_terminating(before):
                self._check_not_needed(before, job, actor.store.last)

    def _check_created(self, pod: Json, uid: str, job: Json | None) -> None:
        name = pod["metadata"]["name"]
        role = pod_role(pod)
        index = pod_index(pod)
        assert name not in self.history.names[uid], f"the name {name} is used twice"
        self.history.names[uid].add(name)
        if job is None or is_terminating(job):
            return
        status = job["status"]
        assert status.get("phase") not in FINISHED_JOB_PHASES, (
            f"{name} is created for a job that has ended"
        )
        assert not status.get("retryTime"), f"{name} is created before the next attempt begins"
        if role != names.ROLE_MASTER:
            members = parsed(status["replicaStatuses"][role].get("indices", ""))
            assert int(index) in members, (
                f"{name} is created, but the job's members are {role} {sorted(members)}"
            )

    def _check_deleted(self, before: Json, after: Json | None, job: Json) -> None:
        """Check that a live pod is deleted only if it belongs to no member.

        It may be deleted by force only when its time to terminate is over.
        """
        name = before["metadata"]["name"]
        role = pod_role(before)
        index = pod_index(before)
        status = job["status"]
        spec = job["spec"]["master"] if role == names.ROLE_MASTER and "master" in job["spec"] else (
            job["spec"]["replicaSpecs"].get(role, {})
        )  # fmt: skip
        if is_terminating(before):
            allowed = spec.get("podForceDeleteSeconds", 120 if role == names.ROLE_MASTER else None)
            waited = self.history.now() - parse_time(before["metadata"]["deletionTimestamp"])
            assert allowed is not None, f"{name} is removed by force, which its role does not allow"
            assert waited >= allowed - 1, f"{name} is removed by force after {waited:.0f} s"
            return
        assert after is not None, f"{name} is removed by force"
        if not is_live(before) or status.get("phase") in (
            *FINISHED_JOB_PHASES,
            "Suspended",
            "Retrying",
        ):
            return
        if (
            self.history.may_be_suspended(job["metadata"]["uid"])
            or before["metadata"]["uid"] in self.history.tampered
        ):
            return
        assert role != names.ROLE_MASTER, f"the healthy master {name} is deleted"
        members = parsed(status["replicaStatuses"][role].get("indices", ""))
        assert int(index) not in members, (
            f"{name} is deleted, but the job's members are {role} {sorted(members)}"
        )

    def _check_not_needed(self, failed: Json, job: Json, last: Observed) -> None:
        """Check that a pod whose program failed is deleted only if enough other failed pods stay.

        Pods of ended and suspended jobs, and of removed members, are not retained.
        """
        name = failed["metadata"]["name"]
        role = pod_role(failed)
        index = pod_index(failed)
        policy = last.job.spec.run_policy
        if (
            is_terminating(job)
            or policy.suspend
            or policy.stop
            or job["status"].get("phase")
            in (
                *FINISHED_JOB_PHASES,
                "Suspended",
                "Retrying",
            )
        ):
            return
        if role != names.ROLE_MASTER:
            members = parsed(job["status"]["replicaStatuses"][role].get("indices", ""))
            if int(index) not in members or job["spec"]["replicaSpecs"][role].get("restartRules"):
                return
        if (
            last.last_refusal
            or self.history.has_cluster_rules
            or failed["metadata"]["uid"] in self.history.tampered
        ):
            return
        others = [
            pod.name for pod in last.pods if pod.status.phase == "Failed" and pod.name != name
        ]
        assert len(others) >= MOST_RETAINED, (
            f"{name} is deleted, and of other failed pods only {others} stay"
        )

    def _count_terminations(
        self, before: Json | None, after: Json | None, uid: str, role: str
    ) -> None:
        """Count each termination once; the operator must not count more."""
        if after is not None and before is not None and is_live(before) and not is_live(after):
            master = role == names.ROLE_MASTER  # each end of a master is a failure
            self.history.failures[uid, role] += after["status"]["phase"] == "Failed" or master
            self.history.losses[uid, role] += 1
        elif after is None and before is not None and is_live(before):
            self.history.losses[uid, role] += 1
