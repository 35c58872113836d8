"""Tests what a chaos run prints of a job that has not ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from elasticjob_api.meta import Json
from elasticjob_kube.errors import TryLater
from elasticjob_kube.session import Kube

from tests.support.chaos.unended import LINES, describe, read_last_lines

WAITING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}
STATUS: Json = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
    "initContainerStatuses": [{"name": "first", "ready": True, "state": {"terminated": {}}}],
    "containerStatuses": [{"name": "train", "ready": False, "state": WAITING}],
}


async def test_an_unready_pod_says_why_and_what_each_container_wrote_last() -> None:
    asked: list[tuple[str, Json]] = []

    async def request(_: str, path: str, params: Json) -> bytes:
        asked.append((path, params))
        if params["container"] == "first":
            raise TryLater(503, "ServiceUnavailable", "no answer")
        return b"step 7\nstep 8\n"

    kube: Any = SimpleNamespace(request=request)
    pods = {"job-worker-0": STATUS}
    logs = await read_last_lines(cast(Kube, kube), "chaos", pods)
    assert [params["tailLines"] for _, params in asked] == ["40", "40"]
    assert {path for path, _ in asked} == {"/api/v1/namespaces/chaos/pods/job-worker-0/log"}
    assert describe(pods, logs) == [
        f"job-worker-0: Running, Ready=False ContainersNotReady, train is {WAITING}",
        "  first: cannot be read: no answer",
        "  train: step 7",
        "  train: step 8",
    ]


def test_the_logs_of_many_pods_are_cut_to_their_last_lines() -> None:
    pods = {f"job-worker-{index}": STATUS for index in range(8)}
    logs = {pod: {"train": [f"step {step}" for step in range(40)]} for pod in pods}
    lines = describe(pods, logs)
    assert LINES - len(pods) < len(lines) <= LINES
    assert sum(line.endswith("step 39") for line in lines) == len(pods)


def test_a_pod_without_a_status_is_named() -> None:
    assert describe({"job-worker-0": None}, {}) == ["job-worker-0: no phase"]
