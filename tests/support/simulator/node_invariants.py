"""Invariants of the plans that move members away from nodes with a problem."""

from __future__ import annotations

from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import PODS, SCALE_PLANS

from tests.support.simulator.raw_objects import (
    controller,
    excluded_nodes,
    owners,
    pod_index,
    pod_role,
)
from tests.support.simulator.recorded_history import MAX_STALE_SECONDS, RecordedHistory


class NodeInvariants:
    """Checks that each such plan has a cause and that no pod has two of them.

    Checks also that replacements do not run on nodes with a problem.
    """

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self._problem_at: dict[str, float] = {}
        """The last time at which each node had a problem."""
        self._problems: dict[str, float] = {}
        """The time at which the present problem of each node began."""
        self._tried: dict[tuple[str, str], str] = {}
        """The plan's UID for each job's UID and pod's name."""

    def check_node(self, before: Json | None, after: Json | None) -> None:
        for item in filter(None, (before, after)):
            if _is_sick(item):
                self._problem_at[item["metadata"]["name"]] = self.history.now()
        if after is not None and _is_sick(after):
            self._problems.setdefault(after["metadata"]["name"], self.history.now())
        elif after is not None:
            self._problems.pop(after["metadata"]["name"], None)

    def check_plan(self, before: Json | None, after: Json | None, actor: Any) -> None:
        is_deleted = after is None and actor is None  # by a user
        if before is not None and (is_deleted or (after is not None and _has_lapsed(after))):
            for key in [
                key for key, uid in self._tried.items() if uid == before["metadata"]["uid"]
            ]:
                del self._tried[key]  # so the operator may create another plan
        if (
            before is not None
            or after is None
            or actor is None
            or "-condition-" not in after["metadata"]["name"]
        ):
            return
        plan = after["metadata"]["name"]
        (owner,) = owners(after)
        for entry in after["spec"]["migratePods"]:
            first = self._tried.setdefault((owner["uid"], entry["name"]), after["metadata"]["uid"])
            assert first == after["metadata"]["uid"], (
                f"{entry['name']} is in {plan}, and was in another plan"
            )
            pod = self.history.objects[PODS].get(entry["name"])
            node = pod["spec"].get("nodeName", "") if pod is not None else None
            lately = self.history.now() - self._problem_at.get(node or "", 0.0) < MAX_STALE_SECONDS
            is_sick = node is None or node in self._problems or lately
            assert is_sick, f"{plan} is for {entry['name']} on {node}, which has no problem"

    def check_created(self, pod: Json, job: Json) -> None:
        """Check that a replacement excludes all nodes that are known to have a problem."""
        plans = [
            plan
            for plan in self.history.all(SCALE_PLANS)
            if "-condition-" in plan["metadata"]["name"]
        ]
        running = [
            plan["status"]
            for plan in plans
            if plan.get("status", {}).get("phase") in ("Draining", "Executing")
        ]
        moves = [move for status in running for move in status.get("migrations", ())]
        starting = [(m["role"], str(m["replacement"])) for m in moves if m["phase"] == "Starting"]
        named = job["spec"]["runPolicy"].get("replaceOnNodeConditions")
        if (
            not named
            or controller(pod) != job["metadata"]["uid"]
            or (pod_role(pod), pod_index(pod)) not in starting
        ):
            return
        known = {
            name
            for name, since in self._problems.items()
            if self.history.now() - since > MAX_STALE_SECONDS
        }
        assert known <= excluded_nodes(pod), (
            f"{pod['metadata']['name']} may run on {known - excluded_nodes(pod)}"
        )


def _is_sick(node: Json) -> bool:
    return any(each["status"] == "True" for each in node.get("status", {}).get("conditions", ()))


def _has_lapsed(plan: Json) -> bool:
    """Return whether a plan's cause had gone before its turn."""
    status = plan.get("status", {})
    return status.get("phase") == "Cancelled" and not status.get("startTime")
