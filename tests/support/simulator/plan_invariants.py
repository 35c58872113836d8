"""Invariants of ScalePlans, ScaleIns and ScaleOuts."""

from __future__ import annotations

from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS

from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    FINISHED_PLAN_PHASES,
    FINISHED_REQUEST_PHASES,
    belongs_to_other_job,
    is_terminating,
    owners,
    parsed,
)
from tests.support.simulator.recorded_history import RecordedHistory

ACTIVE_PHASES = ("Draining", "Executing")


class PlanInvariants:
    """Checks every change of a plan or request."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history

    def check_plan(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if actor is None:
            if after is None and before is not None:
                self.history.cancelled.append((self.history.now(), before))
            return
        if before is None:
            assert after is not None
            for owner in owners(after):
                if owner.get("kind") in ("ScaleIn", "ScaleOut"):
                    first = self.history.plan_of_request.get(owner["uid"])
                    present = any(
                        plan["metadata"]["uid"] == first for plan in self.history.all(SCALE_PLANS)
                    )
                    assert not present, f"{owner['name']} becomes a second plan"
                    assert first not in self.history.executed, (
                        f"{owner['name']} is executed a second time"
                    )
                    self.history.plan_of_request[owner["uid"]] = after["metadata"]["uid"]
            return
        name = before["metadata"]["name"]
        old = before.get("status", {})
        if after is None:
            wanted = old.get("phase") in FINISHED_PLAN_PHASES or not self._is_wanted(before)
            assert wanted, f"{name} is deleted in phase {old.get('phase')}"
            return
        new = after.get("status", {})
        uid = after["metadata"]["uid"]
        if old.get("phase") in FINISHED_PLAN_PHASES:
            assert new == old, f"{name} has ended and is changed"
            return
        self._check_removals(after, new)
        if new.get("drainingPods") or new.get("executionTime"):
            self.history.known_to_run.setdefault(uid, actor.store.running)
        if old.get("startTime"):
            for field in ("startTime", "before", "specReplicas"):
                assert new.get(field) == old.get(field), f"{field} of {name} changes while it runs"
            for role, text in new.get("targets", {}).items():
                sizes = [
                    len(parsed(status[field].get(role, "")))
                    for status, field in ((old, "before"), (old, "targets"))
                ]
                assert len(parsed(text)) >= min(sizes), (
                    f"{name} is rolled back to less than it began with: {role} {text}"
                )
        if new.get("phase") in ACTIVE_PHASES and old.get("phase") not in ACTIVE_PHASES:
            self._check_begin(after, uid)
            self._check_turn(name, actor.store.last)
        if new.get("phase") in FINISHED_PLAN_PHASES:
            if new["phase"] != "Succeeded":
                assert new.get("message"), f"{name} ends {new['phase']} without a reason"
            if new["phase"] == "Superseded":
                assert after["spec"].get("source") == "Auto", (
                    f"{name} is dropped, though it is not an Auto plan"
                )
            if new["phase"] == "Cancelled" and old.get("startTime"):
                self._check_size_restored(after)
            assert new.get("completionTime"), f"{name} has ended without a completionTime"

    def _check_removals(self, plan: Json, status: Json) -> None:
        """A plan waits for the removal of its own members only."""
        _, _, waits_for = status.get("waitingFor", "").partition("removed pods to be gone: ")
        own = {
            (role, index)
            for role, text in status.get("before", {}).items()
            for index in parsed(text)
        }
        for move in status.get("migrations", ()):
            own |= {(move["role"], index) for index in (move["index"], move["replacement"])}
        starts = {f"{plan['spec']['jobName']}-{role}-{index}-" for role, index in own}
        for pod in filter(None, waits_for.split(", ")):
            assert any(f"{pod}-".startswith(start) for start in starts), (
                f"{plan['metadata']['name']} waits for {pod}, which it did not remove"
            )

    def _check_size_restored(self, plan: Json) -> None:
        """Check that a plan cancelled by a suspension leaves the members from before it."""
        job = self.history.objects[ELASTIC_JOBS].get(plan["spec"]["jobName"])
        status = plan["status"]
        if (
            job is None
            or belongs_to_other_job(plan, job["metadata"]["uid"])
            or job["status"].get("phase") in FINISHED_JOB_PHASES
        ):
            return
        policy = job["spec"].get("runPolicy", {})
        if not (policy.get("suspend") or policy.get("stop")) or status.get("migrations"):
            return
        asked = {
            role: spec.get("replicas", 1) for role, spec in job["spec"]["replicaSpecs"].items()
        }
        if any(asked[role] != size for role, size in status.get("specReplicas", {}).items()):
            return  # the spec has the plan's size already, or was edited
        if "-back-" in plan["metadata"]["name"]:
            # This plan undoes one that was deleted while it ran. It restores the size in the spec,
            # which is also the size of a suspended job.
            return
        for role, text in status.get("before", {}).items():
            members = job["status"]["replicaStatuses"][role].get("indices", "")
            assert parsed(members) == parsed(text), (
                f"{role} {members} after the cancelled plan, not {text}"
            )

    def _is_wanted(self, plan: Json) -> bool:
        """Return whether an owner of the plan exists: deleting its owner cancels a plan."""
        alive = {
            item["metadata"]["uid"]
            for items in self.history.objects.values()
            for item in items.values()
        }
        return any(owner["uid"] in alive for owner in owners(plan))

    def _check_begin(self, plan: Json, uid: str) -> None:
        name = plan["metadata"]["name"]
        status = plan["status"]
        assert uid not in self.history.executed, f"{name} is executed twice"
        self.history.executed[uid] = name
        job = self.history.objects[ELASTIC_JOBS].get(plan["spec"]["jobName"])
        if job is None:
            return
        others = [
            other["metadata"]["name"]
            for other in self.history.plans_of(job["metadata"]["uid"])
            if other["metadata"]["uid"] != uid
            and other.get("status", {}).get("phase") in ACTIVE_PHASES
            and not is_terminating(other)
            and self.history.objects[SCALE_PLANS].get(other["metadata"]["name"]) is other
        ]
        assert not others, f"{name} begins while {others} run"
        for role, text in status.get("before", {}).items():
            members = parsed(job["status"]["replicaStatuses"][role].get("indices", ""))
            assert parsed(text) == members, (
                f"{name} begins at {role} {text}, but the job has {sorted(members)}"
            )

    def _check_turn(self, name: str, observed: Any) -> None:
        """Check that a plan begins only when the operator observes it as first in the queue."""
        everyone = [*observed.plans, *observed.scale_ins, *observed.scale_outs]
        requests = {item.metadata.uid for item in (*observed.scale_ins, *observed.scale_outs)}
        queue = []
        owners_with_plan = {
            owner.uid for plan in observed.plans for owner in plan.metadata.owner_references
        }
        auto = []
        for item in everyone:
            if item.metadata.deletion_timestamp is not None or item.status.phase not in (
                None,
                "Pending",
            ):
                continue
            is_plan = type(item).__name__ == "ScalePlan"
            if not is_plan and item.metadata.uid in owners_with_plan:
                continue
            of_request = any(owner.uid in requests for owner in item.metadata.owner_references)
            position = not of_request, item.metadata.creation_timestamp, item.metadata.uid
            queue.append((position, item.metadata.name, is_plan))
            if is_plan and item.spec.source == "Auto":
                auto.append((position, item.metadata.name))
        superseded = {other for _, other in sorted(auto)[:-1]}
        waiting = sorted(entry for entry in queue if not (entry[2] and entry[1] in superseded))
        assert waiting, f"{name} has its turn, but nothing waits"
        first = waiting[0][1]
        # The plan that undoes a deleted plan is first; the job's status names it.
        claimed = observed.job.status.current_plan == name
        assert first == name or claimed, f"{name} has its turn before {first}"

    def check_request(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if actor is None or before is None:
            return
        name = before["metadata"]["name"]
        old = before.get("status", {})
        if after is None:
            assert old.get("phase") in FINISHED_REQUEST_PHASES, (
                f"{name} is deleted in phase {old.get('phase')}"
            )
            return
        new = after.get("status", {})
        if old.get("phase") in FINISHED_REQUEST_PHASES:
            assert new == old, f"{name} has ended and is changed"
        elif new.get("phase") == "ScaleFailed":
            assert new.get("message"), f"{name} fails without a reason"
