"""What must hold of the plans for members on nodes with a problem."""

from __future__ import annotations

from typing import Any

from elasticjob_kube.resources import PODS, SCALE_PLANS

from tests.support.simulator.raw_objects import (
    controller,
    excluded_nodes,
    owners,
    pod_index,
    pod_role,
)
from tests.support.simulator.recorded_history import MAX_STALE_SECONDS, RecordedHistory

Json = dict[str, Any]


class NodeInvariants:
    """Checks that each such plan has a cause, that no pod is tried twice, and where replacements may run."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self._problem_at: dict[str, float] = {}
        """When a node had a problem last."""
        self._problems: dict[str, float] = {}
        """Since when a node has the problem that it has now."""
        self._tried: dict[tuple[str, str], str] = {}
        """By job and pod, the plan for it."""

    def check_node(self, before: Json | None, after: Json | None) -> None:
        for item in filter(None, (before, after)):
            if _is_sick(item):
                self._problem_at[item["metadata"]["name"]] = self.history.now()
        if after is not None and _is_sick(after):
            self._problems.setdefault(after["metadata"]["name"], self.history.now())
        elif after is not None:
            self._problems.pop(after["metadata"]["name"], None)

    def check_plan(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if after is None and before is not None and actor is None:
            for key in [
                key for key, uid in self._tried.items() if uid == before["metadata"]["uid"]
            ]:
                del self._tried[key]  # its user has deleted the plan, which may be made once more
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
        """The replacement of a member on a node with a problem does not run on another such node."""
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
