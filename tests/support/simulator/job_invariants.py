"""Invariants of a job: its counters, members, size and current plan."""

from __future__ import annotations

import math
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.resources import PODS, SCALE_PLANS

from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    FINISHED_PLAN_PHASES,
    controller,
    has_agent,
    is_live,
    is_ready,
    is_terminating,
    parsed,
    pod_index,
    pod_role,
)
from tests.support.simulator.recorded_history import RecordedHistory

COUNTERS = ("restarts", "uncountedRestarts", "highestIndex", "incarnations")


class JobInvariants:
    """Checks every change of a job."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history

    def check(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if after is None:
            return
        uid = after["metadata"]["uid"]
        policies = [item["spec"].get("runPolicy", {}) for item in (before, after) if item]
        if any(policy.get("suspend") or policy.get("stop") for policy in policies):
            self.history.suspended_at[uid] = self.history.now()
        if is_terminating(after):
            self.history.suspended_at[uid] = math.inf  # its pods are deleted in the same way
        for role, spec in after["spec"]["replicaSpecs"].items():
            least = spec.get("minReplicas", 1)
            most = spec.get("maxReplicas", 10_000)
            self.history.widen_bounds(uid, role, least, most)
        if before is None or before["metadata"]["uid"] != uid:
            return
        old = before.get("status", {})
        new = after.get("status", {})
        if "Retrying" in (old.get("phase"), new.get("phase")):
            self.history.suspended_at[uid] = (
                self.history.now()
            )  # its pods are deleted in the same way
        begins_anew = bool(old.get("retryTime")) and not new.get("retryTime")
        if actor is None:
            self._note_lost_counts(uid, old, new)
            return
        if old.get("phase") in FINISHED_JOB_PHASES:
            assert new.get("phase") == old["phase"], (
                f"a job that has {old['phase']} is {new.get('phase')} again"
            )
            assert new.get("completionTime") == old.get("completionTime")
        for role, replica in new.get("replicaStatuses", {}).items():
            was = old.get("replicaStatuses", {}).get(role, {})
            for counter in COUNTERS:
                floor = -1 if counter == "highestIndex" else 0
                goes_back = replica.get(counter, floor) < was.get(counter, floor)
                may_go_back = begins_anew and counter in ("restarts", "uncountedRestarts")
                assert may_go_back or not goes_back, f"{counter} of {role} goes back"
            counted = replica.get("restarts", 0)
            by_index = sum(replica.get("restartsByIndex", {}).values())
            assert max(counted, by_index) <= self.history.failures[uid, role], (
                f"a failure of {role} is counted twice"
            )
            if after["spec"]["replicaSpecs"].get(role, {}).get("restartOnSuccess"):
                assert not replica.get("succeededIndices"), (
                    f"a {role} has succeeded for good, and is to run again"
                )
            done = parsed(replica.get("succeededIndices", "")) - parsed(
                was.get("succeededIndices", "")
            )
            if after["spec"]["replicaSpecs"].get(role, {}).get("agent") == "None":
                terminated = [
                    index
                    for index in done
                    if (uid, role, str(index)) not in self.history.ended_by_itself
                ]
                assert not terminated, (
                    f"{role} {terminated} are counted as succeeded, and were terminated"
                )
            lost = replica.get("uncountedRestarts", 0) + counted
            assert lost <= self.history.losses[uid, role], f"a loss of {role} is counted twice"
            first = not old.get("replicaStatuses")
            self._check_members(
                uid,
                role,
                was,
                replica,
                new,
                first=first or self._has_size_of_spec(after, role, old),
            )
        assert new.get("master", {}).get("incarnations", 0) >= old.get("master", {}).get(
            "incarnations", 0
        )
        failed = self.history.failures[uid, names.ROLE_MASTER]
        assert new.get("master", {}).get("restarts", 0) <= failed, (
            "a failure of the master is counted twice"
        )
        for role, spec in after["spec"]["replicaSpecs"].items():
            if spec.get("replicas", 1) != before["spec"]["replicaSpecs"][role].get("replicas", 1):
                self._check_write_back(uid, role, spec["replicas"], before)

    def _note_lost_counts(self, uid: str, old: Json, new: Json) -> None:
        """Allow the operator to count again the ends that another client's edit removed."""
        for role, was in old.get("replicaStatuses", {}).items():
            replica = new.get("replicaStatuses", {}).get(role, {})
            lost = was.get("restartsByIndex", {}).keys() - replica.get("restartsByIndex", {}).keys()
            self.history.failures[uid, role] += len(lost)
            self.history.losses[uid, role] += len(lost)

    def _has_size_of_spec(self, job: Json, role: str, old: Json) -> bool:
        """Return whether a suspended job gets the size in its spec because its plan was deleted."""
        plan = old.get("currentPlan")
        size = job["spec"]["replicaSpecs"].get(role, {}).get("replicas", 1)
        is_deleted = plan is not None and plan not in self.history.objects[SCALE_PLANS]
        suspended = self.history.may_be_suspended(job["metadata"]["uid"])
        return (
            suspended
            and is_deleted
            and job["status"]["replicaStatuses"][role].get("desired", 0) == size
        )

    def _check_members(
        self, uid: str, role: str, was: Json, replica: Json, status: Json, *, first: bool
    ) -> None:
        """Check that a plan that has begun and drained explains a change of the members.

        Their number must stay within the bounds.
        """
        old = parsed(was.get("indices", ""))
        new = parsed(replica.get("indices", ""))
        if first or old == new:
            return
        candidates = [
            plan for plan in self.history.plans_of(uid) if plan.get("status", {}).get("startTime")
        ]
        may_be_suspended = self.history.may_be_suspended(uid)
        plans = [
            plan
            for plan in candidates
            if _allows_members(plan, role, old, new, may_be_suspended=may_be_suspended)
        ]
        assert plans, f"{role} goes from {sorted(old)} to {sorted(new)}, which no plan says"
        gone = old - new
        if (
            gone
            and not may_be_suspended
            and all(p["status"]["phase"] == "Draining" and not _is_migrating(p) for p in plans)
        ):
            raise AssertionError(f"{role} {sorted(gone)} are let go while their plan still drains")
        assert len(new) >= min(self.history.lowest_min_replicas[uid, role], len(old)), (
            f"{len(new)} {role}s are below minReplicas"
        )
        desired = replica.get("desired", 0)
        most = max(self.history.highest_max_replicas[uid, role], was.get("desired", 0))
        if may_be_suspended:  # a plan that was deleted halfway may have left more
            most = max(
                [
                    most,
                    *(
                        len(parsed(plan["status"].get("before", {}).get(role, "")))
                        for plan in plans
                    ),
                ]
            )
        assert desired <= most, f"{desired} {role}s are above maxReplicas"
        surplus = max(_surplus_of(plan, role) for plan in plans)
        assert len(new) <= max(most + surplus, len(old)), (
            f"{len(new)} {role}s, with {surplus} who leave, are too many"
        )
        for move in (move for plan in plans for move in plan["status"].get("migrations", ())):
            if (
                move["role"] == role
                and move["index"] in gone
                and move["phase"] == "Done"
                and not may_be_suspended
            ):
                ready = (uid, role, str(move["replacement"])) in self.history.was_ready
                assert ready, (
                    f"{role} {move['index']} is removed, "
                    f"and its replacement {move['replacement']} was never ready"
                )
        for pod in self.history.all(PODS):
            if controller(pod) != uid or pod_role(pod) != role:
                continue
            if int(pod_index(pod)) in gone:
                self._check_drained(uid, role, pod, plans)
            elif int(pod_index(pod)) in new - old and not is_live(pod):
                # The counters of a removed member start at 0 when it is added again. The end of
                # its old pod is therefore counted once more.
                self.history.failures[uid, role] += 1
                self.history.losses[uid, role] += 1

    def _check_drained(self, uid: str, role: str, pod: Json, plans: list[Json]) -> None:
        """Check that a removed member has drained, or that its time to drain is over."""
        name = pod["metadata"]["name"]
        status = pod["status"]
        if (
            status.get("phase") != "Running"
            or is_terminating(pod)
            or not is_ready(pod)
            or not has_agent(pod)
        ):
            return
        if self.history.may_be_suspended(uid):
            return
        job = self.history.job_with(uid)
        assert job is not None
        default = job["spec"]["replicaSpecs"][role].get("drainSeconds", 30)
        for plan in plans:
            said = plan["status"]
            allowed = plan["spec"].get("drainSeconds", default)
            known = self.history.known_to_run.get(plan["metadata"]["uid"])
            if known is not None and pod["metadata"]["uid"] not in known:
                return
            rolled_back = int(pod_index(pod)) not in parsed(said["before"].get(role, ""))
            if (
                said["phase"] in FINISHED_PLAN_PHASES
                or rolled_back
                or name in said.get("forcedPods", ())
                or self.history.now() - parse_time(said["startTime"]) >= allowed
            ):
                return
        raise AssertionError(f"{name} is let go without having drained")

    def _check_write_back(self, uid: str, role: str, replicas: int, before: Json) -> None:
        current = before.get("status", {}).get("currentPlan")
        plan = next(
            (plan for plan in self.history.plans_of(uid) if plan["metadata"]["name"] == current),
            None,
        )
        assert plan is not None, f"replicas of {role} is set to {replicas} without a plan"
        was = before["spec"]["replicaSpecs"][role].get("replicas", 1)
        at_begin = plan["status"]["specReplicas"].get(role)
        assert was == at_begin, (
            f"replicas of {role} was edited to {was}, and is overwritten with {replicas}"
        )
        target = parsed(plan["status"].get("targets", {}).get(role, ""))
        assert len(target) == replicas, (
            f"replicas of {role} is set to {replicas}, the plan comes to {sorted(target)}"
        )


def _is_migrating(plan: Json) -> bool:
    return bool(plan["status"].get("migrations"))


def _surplus_of(plan: Json, role: str) -> int:
    """Return the number of members that may exist together with their replacements."""
    status = plan["status"]
    moves: int = sum(move["role"] == role for move in status.get("migrations", ()))
    before, targets = (
        parsed(status.get(field, {}).get(role, "")) for field in ("before", "targets")
    )
    return moves + len(before - targets)


def _allows_members(
    plan: Json, role: str, old: frozenset[int], new: frozenset[int], *, may_be_suspended: bool
) -> bool:
    """Return whether a plan can have changed one set of members to the other."""
    status = plan["status"]
    before = parsed(status.get("before", {}).get(role, ""))
    targets = parsed(status.get("targets", {}).get(role, ""))
    moves = [m for m in status.get("migrations", ()) if m.get("role", "worker") == role]
    extra = {m["replacement"] for m in moves if m.get("replacement") is not None}
    moved = {m["index"] for m in moves if m.get("index") is not None}
    if (
        may_be_suspended
        or plan["spec"].get("onTimeout") == "Rollback"
        or status["phase"] in FINISHED_PLAN_PHASES
    ):
        return new <= before | targets | extra and new >= (before & targets) - moved
    # Until the removed members have drained, they are members together with the new ones.
    both = before if "executionTime" not in status else frozenset[int]()
    return (targets | both) - moved <= new <= targets | both | moved | extra
