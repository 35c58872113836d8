"""The auto-scaler on a cluster: what it measures of real workers becomes plans that the operator executes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.e2e import scaling_jobs
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox

Json = dict[str, Any]
FULL = """
import pathlib, sys, time
import elasticjob

kept, step = [], 0
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
while resident() < 950 << 20:
    kept.append(b"x" * (1 << 20))
while not (pathlib.Path(sys.argv[1]) / "finish").exists():
    time.sleep(0.02)
    step += 1
    elasticjob.report_step(step, samples=1)
"""
"""A training that uses 950 MiB."""


def auto_scaled(job: Json, *, maximum: int | None, **autoscaling: Any) -> Json:
    """Return the job with auto-scaling, of at most so many workers, in windows of two seconds."""
    job["spec"]["autoscaling"] = {"enabled": True, "cooldownSeconds": 2, **autoscaling}
    worker = job["spec"]["replicaSpecs"]["worker"]
    del worker["maxReplicas"]
    worker |= {"maxReplicas": maximum} if maximum is not None else {}
    return job


def auto_plans(user: KubectlUser) -> list[Json]:
    return [plan for plan in user.items("scaleplan") if plan["spec"].get("source") == "Auto"]


def step_of(user: KubectlUser) -> int:
    return int(user.status(f"ej/{user.job}").get("progress", {}).get("step", 0))


@pytest.mark.thorough
def test_a_role_that_nearly_uses_up_its_memory_gets_more_in_place_and_once(sandbox: Sandbox, folder: Path) -> None:
    user = KubectlUser(sandbox, "full", folder)
    limited = {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    command = ["python", "-c", FULL, str(folder)]
    sandbox.apply(auto_scaled(scaling_jobs.job("full", folder, command=command, resources=limited), maximum=1))
    user.wait("ej/full", ".status.phase", "Running")
    before = user.pods()

    def ended() -> list[Json]:
        return [plan for plan in auto_plans(user) if plan.get("status", {}).get("phase") == "Succeeded"]

    [plan] = user.until("a plan for more memory has succeeded", ended)
    wanted = plan["spec"]["replicaResourceSpecs"]["worker"]["resource"]["memory"]
    assert plan["status"]["resizedPods"] == list(before)
    pod = user.get(f"pod/{next(iter(before))}")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == wanted
    trained = step_of(user)
    user.until("several windows have been measured since then", lambda: step_of(user) > trained + 400)
    assert len(auto_plans(user)) == 1, "what was measured with the old limit says nothing about the new one"
    assert user.pods() == before
    user.finish()


@pytest.mark.thorough
def test_a_job_without_max_replicas_grows_as_far_as_its_resource_limits_allow(sandbox: Sandbox, folder: Path) -> None:
    user = KubectlUser(sandbox, "growing", folder)
    asked = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    job = scaling_jobs.job("growing", folder, resources=asked)
    sandbox.apply(auto_scaled(job, maximum=None, resourceLimits={"cpu": "200m"}))
    user.runs_with(4)
    plans = sorted(auto_plans(user), key=lambda plan: plan["metadata"]["name"])
    assert [plan["spec"]["replicaResourceSpecs"]["worker"]["replicas"] for plan in plans] == [2, 4]
    assert "samples/s" in plans[-1]["spec"]["reason"]
    user.finish()
