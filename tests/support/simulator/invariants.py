"""What must hold after every single write to the cluster, and when all is quiet: the promises, told independently.

Nothing here is computed by the operator's own functions, so that a mistake in them cannot hide itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.times import parse_time
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    FINISHED_PLAN_PHASES,
    FINISHED_SCALER_PHASES,
    controller,
    is_live,
    is_ready,
    is_terminating,
    owners,
    parsed,
    pod_index,
    pod_role,
)

Json = dict[str, Any]
ACTIVE_PHASES = ("Draining", "Executing")
COUNTERS = ("restarts", "uncountedRestarts", "highestIndex", "incarnations")
MAX_STALE_SECONDS = 120.0
"""How long the operator may act on what it has not seen changed: longer than any delay of a watch."""
MAX_REPORT_DELAY_SECONDS = 30.0
"""How late the operator may hear of a pod."""


class Invariants:
    """Looks at every change, with who made it: `actor` is the operator's process, or None for the rest of the world."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.objects: dict[Resource, dict[str, Json]] = defaultdict(dict)
        self.names: dict[str, set[str]] = defaultdict(set)
        self.live: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self.plan_of_request: dict[str, str] = {}
        self.executed: dict[str, str] = {}
        self.suspended_at: dict[str, float] = {}
        self.lowest_min_replicas: dict[tuple[str, str], int] = {}
        self.highest_max_replicas: dict[tuple[str, str], int] = {}
        self.was_ready: set[tuple[str, str, str]] = set()
        self.running_since: dict[str, float] = {}
        self.cancelled: list[tuple[float, Json]] = []
        self.failures: dict[tuple[str, str], int] = defaultdict(int)
        self.losses: dict[tuple[str, str], int] = defaultdict(int)

    def check(self, kind: str, resource: Resource, name: str, raw: bytes, actor: Any) -> None:
        before = self.objects[resource].get(name)
        after: Json | None = msgspec.json.decode(raw) if kind != "DELETED" else None
        if after is None:
            self.objects[resource].pop(name, None)
        else:
            self.objects[resource][name] = after
        if resource is PODS:
            self._check_pod(before, after, actor)
        elif resource is ELASTIC_JOBS:
            self._check_job(before, after, actor)
        elif resource is SCALE_PLANS:
            self._check_plan(before, after, actor)
        elif resource in (SCALE_INS, SCALE_OUTS):
            self._check_scaler(before, after, actor)
        elif actor is not None and before is not None:
            assert owners(before), f"{name} of another owner was touched"

    def job_with(self, uid: str | None) -> Json | None:
        return next((job for job in self.all(ELASTIC_JOBS) if job["metadata"]["uid"] == uid), None)

    def all(self, resource: Resource) -> list[Json]:
        return list(self.objects[resource].values())

    # --- pods -----------------------------------------------------------------------------------------------------

    def _check_pod(self, before: Json | None, after: Json | None, actor: Any) -> None:
        pod = after or before
        assert pod is not None
        name, uid = pod["metadata"]["name"], controller(pod)
        if uid is None:
            assert actor is None, f"pod {name} of another owner was touched"
            return
        job, role, index = self.job_with(uid), pod_role(pod), pod_index(pod)
        member = (uid, role, index)
        if after is not None and (is_ready(after) or after["status"].get("phase") == "Succeeded"):
            self.was_ready.add(member)
        if after is not None and after["status"].get("phase") == "Running":
            self.running_since.setdefault(after["metadata"]["uid"], self.now())
        if after is not None and is_live(after):
            self.live[member].add(name)
            assert len(self.live[member]) == 1, f"two live pods of {role} {index}: {sorted(self.live[member])}"
        else:
            self.live[member].discard(name)
        if before is None:
            self._check_pod_created(pod, uid, job)
        self._count_terminations(before, after, uid, role)
        if actor is None or before is None or job is None:
            return
        leaves = after is None or (is_terminating(after) and not is_terminating(before))
        if leaves:
            self._check_pod_deleted(before, after, job)

    def _check_pod_created(self, pod: Json, uid: str, job: Json | None) -> None:
        name, role, index = pod["metadata"]["name"], pod_role(pod), pod_index(pod)
        assert name not in self.names[uid], f"the name {name} is used twice"
        self.names[uid].add(name)
        if job is None or is_terminating(job):
            return
        status = job["status"]
        assert status.get("phase") not in FINISHED_JOB_PHASES, f"{name} is created for a job that has ended"
        if role != names.ROLE_MASTER:
            members = parsed(status["replicaStatuses"][role].get("indices", ""))
            assert int(index) in members, f"{name} is created, but the job is held to {role} {sorted(members)}"

    def _check_pod_deleted(self, before: Json, after: Json | None, job: Json) -> None:
        """Only what is wanted gone may be deleted, and only by force what has had its time."""
        name, role, index, status = before["metadata"]["name"], pod_role(before), pod_index(before), job["status"]
        spec = job["spec"]["master"] if role == names.ROLE_MASTER and "master" in job["spec"] else (
            job["spec"]["replicaSpecs"].get(role, {})
        )  # fmt: skip
        if is_terminating(before):
            allowed = spec.get("podForceDeleteSeconds", 120 if role == names.ROLE_MASTER else None)
            waited = self.now() - parse_time(before["metadata"]["deletionTimestamp"])
            assert allowed is not None, f"{name} is removed by force, though nobody allows it"
            assert waited >= allowed - 1, f"{name} is removed by force after {waited:.0f} s"
            return
        assert after is not None, f"{name} is removed by force"
        if not is_live(before) or status.get("phase") in (*FINISHED_JOB_PHASES, "Suspended"):
            return
        if self._may_be_suspended(job["metadata"]["uid"]):
            return
        assert role != names.ROLE_MASTER, f"the healthy master {name} is deleted"
        members = parsed(status["replicaStatuses"][role].get("indices", ""))
        assert int(index) not in members, f"{name} is deleted, but the job is held to {role} {sorted(members)}"

    def _count_terminations(self, before: Json | None, after: Json | None, uid: str, role: str) -> None:
        """Count what may be counted by the operator, at most once each."""
        if after is not None and before is not None and is_live(before) and not is_live(after):
            master = role == names.ROLE_MASTER  # which has no end of its own
            self.failures[uid, role] += after["status"]["phase"] == "Failed" or master
            self.losses[uid, role] += 1
        elif after is None and before is not None and is_live(before):
            self.losses[uid, role] += 1

    # --- the job --------------------------------------------------------------------------------------------------

    def _check_job(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if after is None:
            return
        uid = after["metadata"]["uid"]
        if after["spec"].get("runPolicy", {}).get("suspend") or (
            before and before["spec"].get("runPolicy", {}).get("suspend")
        ):
            self.suspended_at[uid] = self.now()
        for role, spec in after["spec"]["replicaSpecs"].items():
            least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 10_000)
            self.lowest_min_replicas[uid, role] = min(least, self.lowest_min_replicas.get((uid, role), least))
            self.highest_max_replicas[uid, role] = max(most, self.highest_max_replicas.get((uid, role), most))
        if before is None or actor is None or before["metadata"]["uid"] != uid:
            return
        old, new = before.get("status", {}), after.get("status", {})
        if old.get("phase") in FINISHED_JOB_PHASES:
            assert new.get("phase") == old["phase"], f"a job that has {old['phase']} is {new.get('phase')} again"
            assert new.get("completionTime") == old.get("completionTime")
        for role, replica in new.get("replicaStatuses", {}).items():
            was = old.get("replicaStatuses", {}).get(role, {})
            for counter in COUNTERS:
                floor = -1 if counter == "highestIndex" else 0
                assert replica.get(counter, floor) >= was.get(counter, floor), f"{counter} of {role} goes back"
            assert replica.get("restarts", 0) <= self.failures[uid, role], f"a failure of {role} is counted twice"
            lost = replica.get("uncountedRestarts", 0) + replica.get("restarts", 0)
            assert lost <= self.losses[uid, role], f"a loss of {role} is counted twice"
            self._check_members(uid, role, was, replica, new, first=not old.get("replicaStatuses"))
        assert new.get("master", {}).get("incarnations", 0) >= old.get("master", {}).get("incarnations", 0)
        failed = self.failures[uid, names.ROLE_MASTER]
        assert new.get("master", {}).get("restarts", 0) <= failed, "a failure of the master is counted twice"
        if new.get("currentPlan") not in (None, old.get("currentPlan")):
            self._check_queue_order(new["currentPlan"], actor)
        for role, spec in after["spec"]["replicaSpecs"].items():
            if spec.get("replicas", 1) != before["spec"]["replicaSpecs"][role].get("replicas", 1):
                self._check_write_back(uid, role, spec["replicas"], before)

    def _check_members(self, uid: str, role: str, was: Json, replica: Json, status: Json, *, first: bool) -> None:
        """The size the job is held to changes by a plan that has begun and drained, and stays in the bounds."""
        old, new = parsed(was.get("indices", "")), parsed(replica.get("indices", ""))
        if first or old == new:
            return
        candidates = [plan for plan in self._plans(uid) if plan.get("status", {}).get("startTime")]
        may_be_suspended = self._may_be_suspended(uid)
        plans = [
            plan for plan in candidates if _allows_members(plan, role, old, new, may_be_suspended=may_be_suspended)
        ]
        assert plans, f"{role} goes from {sorted(old)} to {sorted(new)}, which no plan says"
        gone = old - new
        if (
            gone
            and not may_be_suspended
            and all(p["status"]["phase"] == "Draining" and not _is_migrating(p) for p in plans)
        ):
            raise AssertionError(f"{role} {sorted(gone)} are let go while their plan still drains")
        assert len(new) >= min(self.lowest_min_replicas[uid, role], len(old)), (
            f"{len(new)} {role}s are below minReplicas"
        )
        desired, most = replica.get("desired", 0), max(self.highest_max_replicas[uid, role], was.get("desired", 0))
        if may_be_suspended:  # what was half done and was then deleted may have left more
            most = max([most, *(len(parsed(plan["status"].get("before", {}).get(role, ""))) for plan in plans)])
        assert desired <= most, f"{desired} {role}s are above maxReplicas"
        surplus = max(_surplus_of(plan, role) for plan in plans)
        assert len(new) <= max(most + surplus, len(old)), f"{len(new)} {role}s, with {surplus} who leave, are too many"
        for move in (move for plan in plans for move in plan["status"].get("migrations", ())):
            if move["role"] == role and move["index"] in gone and move["phase"] == "Done" and not may_be_suspended:
                ready = (uid, role, str(move["replacement"])) in self.was_ready
                assert ready, f"{role} {move['index']} goes, and its replacement {move['replacement']} was never ready"
        for pod in self.all(PODS):
            if controller(pod) != uid or pod_role(pod) != role:
                continue
            if int(pod_index(pod)) in gone:
                self._check_drained(uid, role, pod, plans)
            elif int(pod_index(pod)) in new - old and not is_live(pod):
                # A member that comes back begins anew: an end that was counted before it went is counted again.
                self.failures[uid, role] += 1
                self.losses[uid, role] += 1

    def _check_drained(self, uid: str, role: str, pod: Json, plans: list[Json]) -> None:
        """A member that leaves has ended, or had the time to."""
        name, status = pod["metadata"]["name"], pod["status"]
        if status.get("phase") != "Running" or is_terminating(pod) or not is_ready(pod):
            return
        if self._may_be_suspended(uid):
            return
        job = self.job_with(uid)
        assert job is not None
        default = job["spec"]["replicaSpecs"][role].get("drainSeconds", 30)
        for plan in plans:
            said = plan["status"]
            allowed = plan["spec"].get("drainSeconds", default)
            if self.running_since[pod["metadata"]["uid"]] > parse_time(said["startTime"]) - MAX_REPORT_DELAY_SECONDS:
                return  # it was not known to run when it was decided who drains
            rolled_back = int(pod_index(pod)) not in parsed(said["before"].get(role, ""))
            if (
                said["phase"] in FINISHED_PLAN_PHASES
                or rolled_back
                or name in said.get("forcedPods", ())
                or self.now() - parse_time(said["startTime"]) >= allowed
            ):
                return
        raise AssertionError(f"{name} is let go without having drained")

    def _may_be_suspended(self, uid: str) -> bool:
        """Whether the operator may think that the job is suspended: a running plan is undone then."""
        return self.now() - self.suspended_at.get(uid, 0.0) < MAX_STALE_SECONDS

    def _check_queue_order(self, name: str, actor: Any) -> None:
        """A plan's turn comes when nothing that the operator knew of is older."""
        plan = self.objects[SCALE_PLANS].get(name)
        if "-back-" in name or (plan is not None and plan.get("status", {}).get("startTime")):
            return  # what follows on the deletion of a running plan comes before all others; what has begun goes on
        observed = actor.store.last
        everyone = [*observed.plans, *observed.scale_ins, *observed.scale_outs]
        positions = {item.metadata.uid: (item.metadata.creation_timestamp, item.metadata.uid) for item in everyone}
        queue, owners_with_plan = [], {owner.uid for plan in observed.plans for owner in plan.metadata.owner_references}
        auto = []
        for item in everyone:
            if item.metadata.deletion_timestamp is not None or item.status.phase not in (None, "Pending"):
                continue
            is_plan = type(item).__name__ == "ScalePlan"
            if not is_plan and item.metadata.uid in owners_with_plan:
                continue
            position = positions[item.metadata.uid]
            for owner in item.metadata.owner_references:
                position = positions.get(owner.uid, position)
            queue.append((position, item.metadata.name, is_plan))
            if is_plan and item.spec.source == "Auto":
                auto.append((position, item.metadata.name))
        superseded = {other for _, other in sorted(auto)[:-1]}
        waiting = sorted(entry for entry in queue if not (entry[2] and entry[1] in superseded))
        assert waiting, f"{name} has its turn, but nothing waits"
        first = waiting[0][1]
        claimed = observed.job.status.current_plan == name
        assert first == name or claimed, f"{name} has its turn before {first}"

    def _check_write_back(self, uid: str, role: str, replicas: int, before: Json) -> None:
        current = before.get("status", {}).get("currentPlan")
        plan = next((plan for plan in self._plans(uid) if plan["metadata"]["name"] == current), None)
        assert plan is not None, f"replicas of {role} is set to {replicas} without a plan"
        was, at_begin = (
            before["spec"]["replicaSpecs"][role].get("replicas", 1),
            plan["status"]["specReplicas"].get(role),
        )
        assert was == at_begin, f"replicas of {role} was edited to {was}, and is overwritten with {replicas}"
        target = parsed(plan["status"].get("targets", {}).get(role, ""))
        assert len(target) == replicas, f"replicas of {role} is set to {replicas}, the plan comes to {sorted(target)}"

    def _plans(self, uid: str) -> list[Json]:
        job = self.job_with(uid)
        recent = [plan for when, plan in self.cancelled if self.now() - when < MAX_STALE_SECONDS]
        plans = [*self.all(SCALE_PLANS), *recent]
        return [
            p
            for p in plans
            if job and p["spec"]["jobName"] == job["metadata"]["name"] and not _belongs_to_other_job(p, uid)
        ]

    # --- plans and requests ---------------------------------------------------------------------------------------

    def _check_plan(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if actor is None:
            if after is None and before is not None:
                self.cancelled.append((self.now(), before))
            return
        if before is None:
            assert after is not None
            for owner in owners(after):
                if owner.get("kind") in ("ScaleIn", "ScaleOut"):
                    first = self.plan_of_request.get(owner["uid"])
                    present = any(plan["metadata"]["uid"] == first for plan in self.all(SCALE_PLANS))
                    assert not present, f"{owner['name']} becomes a second plan"
                    assert first not in self.executed, f"{owner['name']} is executed a second time"
                    self.plan_of_request[owner["uid"]] = after["metadata"]["uid"]
            return
        name, old = before["metadata"]["name"], before.get("status", {})
        if after is None:
            wanted = old.get("phase") in FINISHED_PLAN_PHASES or not self._is_wanted(before)
            assert wanted, f"{name} is deleted in phase {old.get('phase')}"
            return
        new, uid = after.get("status", {}), after["metadata"]["uid"]
        if old.get("phase") in FINISHED_PLAN_PHASES:
            assert new == old, f"{name} has ended and is changed"
            return
        if old.get("startTime"):
            for field in ("startTime", "before", "specReplicas"):
                assert new.get(field) == old.get(field), f"{field} of {name} changes while it runs"
            for role, text in new.get("targets", {}).items():
                sizes = [
                    len(parsed(status[field].get(role, ""))) for status, field in ((old, "before"), (old, "targets"))
                ]
                assert len(parsed(text)) >= min(sizes), (
                    f"{name} is rolled back to less than it began with: {role} {text}"
                )
        if new.get("phase") in ACTIVE_PHASES and old.get("phase") not in ACTIVE_PHASES:
            self._check_plan_begins(after, uid)
        if new.get("phase") in FINISHED_PLAN_PHASES:
            if new["phase"] != "Succeeded":
                assert new.get("message"), f"{name} ends {new['phase']} without a reason"
            if new["phase"] == "Superseded":
                assert after["spec"].get("source") == "Auto", f"{name} is dropped, though it is not an Auto plan"
            if new["phase"] == "Cancelled" and old.get("startTime"):
                self._check_size_restored(after)
            assert new.get("completionTime"), f"{name} has ended at no time"

    def _check_size_restored(self, plan: Json) -> None:
        """A plan that is cancelled because the job is suspended leaves the size from before it."""
        job, status = self.objects[ELASTIC_JOBS].get(plan["spec"]["jobName"]), plan["status"]
        if (
            job is None
            or job["status"].get("phase") in FINISHED_JOB_PHASES
            or _belongs_to_other_job(plan, job["metadata"]["uid"])
        ):
            return
        if not job["spec"].get("runPolicy", {}).get("suspend") or status.get("migrations"):
            return
        asked = {role: spec.get("replicas", 1) for role, spec in job["spec"]["replicaSpecs"].items()}
        if any(asked[role] != size for role, size in status.get("specReplicas", {}).items()):
            return  # its size is in the spec already, or somebody else's is
        for role, text in status.get("before", {}).items():
            members = job["status"]["replicaStatuses"][role].get("indices", "")
            assert parsed(members) == parsed(text), f"{role} {members} is held after the cancelled plan, not {text}"

    def _is_wanted(self, plan: Json) -> bool:
        """Whether whatever a plan was made for is still there: deleting a ScaleIn or ScaleOut cancels it."""
        alive = {item["metadata"]["uid"] for items in self.objects.values() for item in items.values()}
        return any(owner["uid"] in alive for owner in owners(plan))

    def _check_plan_begins(self, plan: Json, uid: str) -> None:
        name, status = plan["metadata"]["name"], plan["status"]
        assert uid not in self.executed, f"{name} is executed twice"
        self.executed[uid] = name
        job = self.objects[ELASTIC_JOBS].get(plan["spec"]["jobName"])
        if job is None:
            return
        others = [
            other["metadata"]["name"]
            for other in self._plans(job["metadata"]["uid"])
            if other["metadata"]["uid"] != uid
            and other.get("status", {}).get("phase") in ACTIVE_PHASES
            and not is_terminating(other)
            and self.objects[SCALE_PLANS].get(other["metadata"]["name"]) is other
        ]
        assert not others, f"{name} begins while {others} run"
        for role, text in status.get("before", {}).items():
            members = parsed(job["status"]["replicaStatuses"][role].get("indices", ""))
            assert parsed(text) == members, f"{name} begins at {role} {text}, but the job is held to {sorted(members)}"

    def _check_scaler(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if actor is None or before is None:
            return
        name, old = before["metadata"]["name"], before.get("status", {})
        if after is None:
            assert old.get("phase") in FINISHED_SCALER_PHASES, f"{name} is deleted in phase {old.get('phase')}"
            return
        new = after.get("status", {})
        if old.get("phase") in FINISHED_SCALER_PHASES:
            assert new == old, f"{name} has ended and is changed"
        elif new.get("phase") == "ScaleFailed":
            assert new.get("message"), f"{name} fails without a reason"


def _belongs_to_other_job(plan: Json, uid: str) -> bool:
    """Whether it is of an earlier job of the same name."""
    jobs = {owner["uid"] for owner in owners(plan) if owner["kind"] == "ElasticJob"}
    label = plan["metadata"].get("labels", {}).get(names.LABEL_JOB_UID, uid)
    return label != uid or bool(jobs and uid not in jobs)


def _is_migrating(plan: Json) -> bool:
    return bool(plan["status"].get("migrations"))


def _surplus_of(plan: Json, role: str) -> int:
    """How many have another in their place before they have gone."""
    status = plan["status"]
    moves: int = sum(move["role"] == role for move in status.get("migrations", ()))
    before, targets = (parsed(status.get(field, {}).get(role, "")) for field in ("before", "targets"))
    return moves + len(before - targets)


def _allows_members(plan: Json, role: str, old: frozenset[int], new: frozenset[int], *, may_be_suspended: bool) -> bool:
    """Whether a plan can have led from one set of members to the other."""
    status = plan["status"]
    before, targets = parsed(status.get("before", {}).get(role, "")), parsed(status.get("targets", {}).get(role, ""))
    moves = [m for m in status.get("migrations", ()) if m.get("role", "worker") == role]
    extra = {m["replacement"] for m in moves if m.get("replacement") is not None}
    moved = {m["index"] for m in moves if m.get("index") is not None}
    if may_be_suspended or plan["spec"].get("onTimeout") == "Rollback" or status["phase"] in FINISHED_PLAN_PHASES:
        return new <= before | targets | extra and new >= (before & targets) - moved
    # Until those who leave have drained, they are there with those who come.
    both = before if "executionTime" not in status else frozenset[int]()
    return (targets | both) - moved <= new <= targets | both | moved | extra
