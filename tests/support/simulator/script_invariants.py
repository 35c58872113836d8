"""Invariants of the scripts of plans and requests."""

from __future__ import annotations

from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import SCALE_PLANS

from tests.support.simulator.raw_objects import requested_by
from tests.support.simulator.recorded_history import MAX_STALE_SECONDS, RecordedHistory


class ScriptInvariants:
    """Checks every change that the operator makes of a plan or request with a script."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self._ordered: dict[str, tuple[str, str]] = {}

    def check_job(self, job: Json) -> None:
        """Record the last time at which the job allowed scripts."""
        if job["spec"].get("runPolicy", {}).get("allowScripts"):
            self.history.scripts_allowed_at[job["metadata"]["name"]] = self.history.now()

    def check_plan(self, before: Json | None, after: Json | None, actor: Any) -> None:
        if actor is None or before is None or after is None or not after["spec"].get("script"):
            return
        name = after["metadata"]["name"]
        old = before.get("status", {})
        new = after.get("status", {})
        was = old.get("script") or {}
        run = new.get("script") or {}
        if run.get("pod"):
            order = (after["metadata"]["uid"], run["pod"])
            first = self._ordered.setdefault(requested_by(after), order)
            assert first == order, f"the script of {name} is ordered from {order}, after {first}"
        if not was and run.get("pod"):
            allowed = self.history.scripts_allowed_at.get(after["spec"]["jobName"], 0.0)
            assert self.history.now() - allowed < MAX_STALE_SECONDS, (
                f"{name} runs a script that its job does not allow"
            )
        if was:
            kept = (
                was
                if "completionTime" in was
                else {key: was[key] for key in ("pod", "startTime") if key in was}
            )
            assert kept.items() <= run.items(), (
                f"the run of the script of {name} goes from {was} to {run}"
            )
        succeeded = run.get("exitCode") == 0
        assert succeeded or new.get("phase") != "Succeeded", (
            f"{name} succeeds without its script: {run}"
        )
        if after["spec"].get("removePods") and not succeeded:
            begun = "executionTime" in new or new.get("drainingPods") or new.get("removedPods")
            assert not begun, f"members of {name} leave before its script has succeeded: {new}"

    def check_request(self, before: Json | None, after: Json | None, actor: Any) -> None:
        """Check that a request succeeds only if its script did.

        If the script failed, the request's message must say so.
        """
        if actor is None or before is None or after is None or not after["spec"].get("script"):
            return
        name = after["metadata"]["name"]
        status = after.get("status", {})
        plans = {plan["metadata"]["name"]: plan for plan in self.history.all(SCALE_PLANS)}
        plan = plans.get(status.get("plan", ""), {})
        run = plan.get("status", {}).get("script") or {}
        if status.get("phase") == "ScaleSucceeded":
            assert status["script"]["exitCode"] == 0, f"{name} succeeds without its script"
        elif (
            status.get("phase") == "ScaleFailed"
            and run.get("exitCode")
            and plan["status"]["phase"] == "Failed"
        ):
            assert "spec.script: ended with exit code" in status["message"], (
                f"{name} hides why: {status}"
            )
