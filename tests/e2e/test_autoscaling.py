"""Runs the auto-scaler on a cluster.

Its measurements of real workers become plans that the operator executes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from tests.support.e2e import scaling_jobs
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox

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
    """Return the job with auto-scaling up to `most` workers, in windows of two seconds."""
    job["spec"]["autoscaling"] = {"enabled": True, "cooldownSeconds": 2, **autoscaling}
    worker = job["spec"]["replicaSpecs"]["worker"]
    del worker["maxReplicas"]
    worker |= {"maxReplicas": maximum} if maximum is not None else {}
    return job


def auto_plans(user: KubectlUser) -> list[Json]:
    return [plan for plan in user.items("scaleplan") if plan["spec"].get("source") == "Auto"]


def step_of(user: KubectlUser) -> int:
    return int(user.status(f"ej/{user.job}").get("progress", {}).get("step", 0))


def without_resources(name: str, folder: Path, **autoscaling: Any) -> Json:
    """Return a job of a worker and a parameter server, without resources and largest size."""
    job = auto_scaled(scaling_jobs.job(name, folder, resources={}), maximum=None, **autoscaling)
    roles = job["spec"]["replicaSpecs"]
    roles["ps"] = {
        "replicas": 1,
        "minReplicas": 1,
        "onWorldChange": "Keep",
        "template": roles["worker"]["template"],
    }
    return job


def requests_of(pod: Json) -> Json:
    found: Json = pod["spec"]["containers"][0].get("resources", {})
    return found


@pytest.mark.guarantee("unset-resources")
@pytest.mark.thorough
def test_a_job_without_resources_gets_them_for_all_roles_and_so_does_the_next_job(
    sandbox: Sandbox, folder: Path
) -> None:
    user = KubectlUser(sandbox, "bare", folder)
    limits = {"cpu": "400m"}
    profile = "cm/elasticjob-profile-counting"
    sandbox.apply(without_resources("bare", folder, resourceLimits=limits, profile="counting"))
    user.until("the first plan", lambda: auto_plans(user), seconds=120)
    user.wait("scaleplan/bare-auto-1", ".status.phase", "Succeeded")
    plan = user.get("scaleplan/bare-auto-1")
    roles = plan["spec"]["replicaResourceSpecs"]
    assert roles["worker"]["replicas"] >= 2
    assert set(roles) == {"ps", "worker"}
    assert "worker requests nothing, and a member has used" in plan["spec"]["reason"]
    moved = plan["status"]["migrations"]
    assert {each["phase"] for each in moved} == {"Done"}, (
        "a pod without requests can get them only by another pod"
    )
    assert len(moved) == 2
    for name in user.pods():
        resources = requests_of(user.get(f"pod/{name}"))
        assert resources["requests"].keys() == {"cpu", "memory"}
        assert "limits" not in resources, (
            "usage above that of the first minutes must kill no member"
        )

    def kept() -> list[Json]:
        lines = user.get(profile).get("data", {}).get("jobs", "").splitlines()
        return [job for job in map(json.loads, lines) if job.get("size")]

    [settled] = user.until("the size at which it has settled is kept", kept, seconds=120)
    user.finish()

    (folder / "finish").unlink()
    again = KubectlUser(sandbox, "again", folder)
    slow = {"resourceLimits": limits, "profile": "counting", "cooldownSeconds": 60}
    sandbox.apply(without_resources("again", folder, **slow))
    again.until("the first plan", lambda: auto_plans(again), seconds=120)
    again.wait("scaleplan/again-auto-1", ".status.phase", "Succeeded")
    begun = again.get("scaleplan/again-auto-1")["spec"]
    assert begun["reason"].startswith("as bare needed on ")
    wanted = begun["replicaResourceSpecs"]
    cores = {role: float(parse_quantity(each["resource"]["cpu"])) for role, each in wanted.items()}
    assert set(cores) == {"ps", "worker"}
    fit = int((float(parse_quantity(limits["cpu"])) - cores["ps"]) / cores["worker"] + 1e-9)
    assert wanted["worker"].get("replicas", 1) == max(1, min(settled["size"], fit)), (
        "as far as the limits allow"
    )
    again.finish()


@pytest.mark.guarantee("resources-changed-in-place")
@pytest.mark.thorough
def test_a_role_that_nearly_exhausts_its_memory_gets_more_in_place_and_once(
    sandbox: Sandbox, folder: Path
) -> None:
    user = KubectlUser(sandbox, "full", folder)
    limited = {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    command = ["python", "-c", FULL, str(folder)]
    sandbox.apply(
        auto_scaled(scaling_jobs.job("full", folder, command=command, resources=limited), maximum=1)
    )
    user.wait("ej/full", ".status.phase", "Running")
    before = user.pods()

    def ended() -> list[Json]:
        return [
            plan for plan in auto_plans(user) if plan.get("status", {}).get("phase") == "Succeeded"
        ]

    [plan] = user.until("a plan for more memory has succeeded", ended)
    wanted = plan["spec"]["replicaResourceSpecs"]["worker"]["resource"]["memory"]
    assert plan["status"]["resizedPods"] == list(before)
    pod = user.get(f"pod/{next(iter(before))}")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == wanted
    trained = step_of(user)
    user.until(
        "several windows have been measured since then", lambda: step_of(user) > trained + 400
    )
    assert len(auto_plans(user)) == 1, (
        "measurements with the old limit say nothing about the new one"
    )
    assert user.pods() == before
    user.finish()


@pytest.mark.thorough
def test_a_job_without_max_replicas_grows_to_its_resource_limits(
    sandbox: Sandbox, folder: Path
) -> None:
    user = KubectlUser(sandbox, "growing", folder)
    asked = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    job = scaling_jobs.job("growing", folder, resources=asked)
    sandbox.apply(auto_scaled(job, maximum=None, resourceLimits={"cpu": "200m"}))
    user.runs_with(4)
    plans = sorted(auto_plans(user), key=lambda plan: plan["metadata"]["name"])
    assert plans[-1]["spec"]["replicaResourceSpecs"]["worker"]["replicas"] == 4
    assert "samples/s" in plans[-1]["spec"]["reason"]
    user.finish()
