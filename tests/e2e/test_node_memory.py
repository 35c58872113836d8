"""Lets a real kernel enforce a container's memory limit, and checks what happens to the member."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elasticjob_api.meta import Json

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.real_node import (
    container,
    counting_job,
    limit_by_default,
    record_pods,
    start_job,
)
from tests.support.e2e.sandbox import Sandbox

pytestmark = pytest.mark.real_node
MEBI = 1 << 20
HUNGRY = """
import sys, time
kept = b"x" * (200 << 20)
print("had enough memory", flush=True)
"""
IN_FORCE = (
    "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true"
)
"""The memory limit that the kernel enforces on a container, in cgroup v2 or v1."""


@pytest.mark.guarantee("uncounted-failures")
@pytest.mark.parametrize(
    "by_default", [False, True], ids=["its own limit", "the default of its namespace"]
)
def test_a_worker_killed_by_the_kernel_returns_with_more_memory(
    sandbox: Sandbox, tmp_path: Path, capfd: pytest.CaptureFixture[str], by_default: bool
) -> None:
    limited: Json = {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "160Mi"}}
    if by_default:
        limit_by_default(sandbox, default=limited.pop("limits"))
    user = KubectlUser(sandbox, "hungry")
    with record_pods(sandbox, tmp_path) as recorder:
        sandbox.apply(counting_job("hungry", command=["python", "-c", HUNGRY], resources=limited))
        user.wait("ej/hungry", ".status.phase", "Succeeded")
        ends = recorder.terminations("hungry")
    killed = [end for end in ends.values() if end["exitCode"]]
    print(f"killed: {json.dumps(killed)}")
    if any(end["reason"] != "OOMKilled" for end in killed):
        with capfd.disabled():
            print(f"\nkilled for memory, and not reported as OOMKilled: {json.dumps(killed)}")
    assert {end["exitCode"] for end in killed} == {137}
    workers = user.status()["replicaStatuses"]["worker"]
    assert workers["restarts"] == len(killed) == 1, "a kill for memory was taken for something else"
    assert workers["resourcesByIndex"]["0"]["memory"] == "320Mi"


def test_an_in_place_resize_changes_the_containers_cgroup_and_restarts_nothing(
    sandbox: Sandbox,
) -> None:
    user, before = start_job(sandbox, counting_job("growing", replicas=2))
    began = {name: container(user, name)["state"]["running"]["startedAt"] for name in before}
    assert {in_kernel(sandbox, name) for name in before} == {256 * MEBI}
    wanted = {"cpu": "30m", "memory": "320Mi"}
    plan = user.create("ScalePlan", "bigger", replicaResourceSpecs={"worker": {"resource": wanted}})
    assert sorted(plan["resizedPods"]) == sorted(before)
    assert {in_kernel(sandbox, name) for name in before} == {320 * MEBI}
    assert user.pods() == before, "a pod was replaced"
    assert {container(user, name)["restartCount"] for name in before} == {0}
    assert {
        name: container(user, name)["state"]["running"]["startedAt"] for name in before
    } == began
    assert {container(user, name)["resources"]["requests"]["cpu"] for name in before} == {"30m"}


def in_kernel(sandbox: Sandbox, pod: str) -> int:
    """Return the memory limit in force, read in the container itself."""
    return int(sandbox.kubectl("exec", pod, "--", "sh", "-c", IN_FORCE).split()[0])
