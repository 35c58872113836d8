"""Simulates how the master and the launcher's agent run the script of a plan."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS

from tests.support.simulator.cluster import JOB
from tests.support.simulator.fake_kube import FakeKube
from tests.support.simulator.raw_objects import is_live, is_ready, pod_role, requested_by

_AGAIN_SECONDS = 5.0


class ScriptRuns:
    """Runs each script that a plan's status orders in the pod that the status names.

    Attributes:
        lost_rate: probability that the end of a script is never reported.
    """

    def __init__(self, kube: FakeKube, rng: random.Random, note: Callable[..., None]) -> None:
        self.kube = kube
        self.rng = rng
        self.note = note
        self.lost_rate = rng.choice((0.0, 0.2))
        self._ordered: set[str] = set()
        self._run: dict[str, str] = {}

    def on_plan(self, raw: bytes) -> None:
        """Order the script of a changed plan, if it was not ordered before."""
        plan: Json = msgspec.json.decode(raw)
        uid = plan["metadata"]["uid"]
        if _is_wanted(plan) and uid not in self._ordered:
            self._ordered.add(uid)
            self._after(self.rng.random() * 5, self._order, plan["metadata"]["name"], uid)

    def _order(self, name: str, uid: str) -> None:
        """Send the master's order to the agent, if the plan still waits for its script.

        Without a ready master this is retried. The agent ignores orders after the script's timeout.
        """
        plan = self.kube.objects.get((SCALE_PLANS, name))
        if plan is None or plan["metadata"]["uid"] != uid or not _is_wanted(plan):
            return
        run = plan["status"]["script"]
        pod = self.kube.objects.get((PODS, run["pod"]))
        if pod is None or not is_live(pod):
            return
        if not self._has_master():
            self._after(_AGAIN_SECONDS, self._order, name, uid)
            return
        left = (
            parse_time(run["startTime"])
            + plan["spec"]["timeoutSeconds"]
            - asyncio.get_running_loop().time()
        )
        if left <= 0 or self.rng.random() < self.lost_rate:
            return
        request = requested_by(plan)
        assert request not in self._run, (
            f"the script of {name} runs in {run['pod']} after {self._run[request]}"
        )
        self._run[request] = run["pod"]
        seconds = self.rng.random() * 15
        code = 137 if seconds > left else self.rng.choice((0, 0, 3))
        self.note("agent:", run["pod"], "runs the script of", name, "to exit code", code)
        self._after(min(seconds, left), self._report, uid, pod["metadata"]["uid"], run["pod"], code)

    def _report(self, plan: str, pod_uid: str, pod_name: str, code: int) -> None:
        """Let the agent report the script's end; a ready master writes it into the job's status.

        Without a ready master the agent repeats the report.
        """
        pod = self.kube.objects.get((PODS, pod_name))
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if pod is None or pod["metadata"]["uid"] != pod_uid or not is_live(pod) or job is None:
            return
        if not self._has_master():
            self._after(_AGAIN_SECONDS, self._report, plan, pod_uid, pod_name, code)
            return
        end = {"plan": plan, "exitCode": code, "message": "done"}
        progress = {**job.get("status", {}).get("progress", {}), "script": end}
        self.kube.set_status(ELASTIC_JOBS, JOB, progress=progress)

    def _has_master(self) -> bool:
        return any(
            pod_role(pod) == names.ROLE_MASTER and is_ready(pod) for pod in self.kube.all(PODS)
        )

    def _after(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, what, *args)


def _is_wanted(plan: Json) -> bool:
    """Return whether a plan waits for its script and has chosen the script's pod."""
    run = plan.get("status", {}).get("script") or {}
    return (
        bool(run.get("pod"))
        and "completionTime" not in run
        and plan["status"].get("phase") == "Executing"
    )
