"""Jobs share a full ElasticPool: by priority, and with an auto-scaler that proposes sizes."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e import scaling_jobs
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox

SHARDS = {"low": 2000, "high": 300}
WAITS_AT = {"low": 300, "high": 100}
"""The step at which each worker waits until a file says that it may go on."""
PREFETCH = 20
TRAINER = scaling_jobs.TRAINER.with_name("sharded_training.py")
MEMBER = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


def sharded(name: str, folder: Path, size: int, **pod: Any) -> Json:
    """Return a job that trains each shard of its data set once; its master needs as much CPU as a
    member.
    """
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "wait-at").write_text(str(WAITS_AT[name]))
    program = f"{TRAINER} {shlex.quote(str(folder))} {SHARDS[name]} {PREFETCH}"
    command = ["sh", "-c", f"exec python {program}"]
    job = scaling_jobs.job(name, folder, replicas=size, command=command, resources=MEMBER)
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker["maxReplicas"] = size
    worker["template"]["spec"] |= pod
    return job


def pool(name: str, **spec: Any) -> Json:
    """Return a pool of six times the CPU of a member."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticPool",
        "metadata": {"name": name},
        "spec": {"capacity": {"cpu": "600m"}, "cooldownSeconds": 1, **spec},
    }


def priority(name: str) -> Json:
    """Return a priority class above that of other pods."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }


def trained(folder: Path) -> Counter[str]:
    """Return how often each shard was trained."""
    return Counter(line for path in folder.glob("trained-*") for line in path.read_text().split())


def check_ends(low: KubectlUser, high: KubectlUser) -> None:
    """Check that the low job has its members again, and that both have trained each shard once."""
    (high.folder / "go").touch()
    high.wait("ej/high", ".status.phase", "Succeeded")
    low.until("the low job has its members again", lambda: low.at_rest(5))
    (low.folder / "go").touch()
    low.wait("ej/low", ".status.phase", "Succeeded")
    for job in (low, high):
        counts = trained(job.folder)
        assert len(counts) == SHARDS[job.job]
        assert set(counts.values()) == {1}


@pytest.mark.guarantee("pool-shares")
def test_a_job_of_higher_priority_gets_members_of_a_full_pool_and_gives_them_back(
    sandbox: Sandbox, folder: Path
) -> None:
    urgent = f"urgent-{sandbox.namespace}"
    sandbox.apply(pool("shared"), priority(urgent), sharded("low", folder / "low", 5))
    low = KubectlUser(sandbox, "low", folder / "low")
    low.until("the pool is full", lambda: low.at_rest(5))

    sandbox.apply(sharded("high", folder / "high", 2, priorityClassName=urgent))
    high = KubectlUser(sandbox, "high", folder / "high")
    high.until("the urgent job has its members", lambda: high.at_rest(2))
    low.until("the low job has given them", lambda: low.at_rest(2))
    (plan,) = low.items("scaleplan")
    assert plan["spec"]["source"] == "Pool"
    assert "high (0 of 2 members, priority 1000) waits" in plan["spec"]["reason"]

    check_ends(low, high)
    sandbox.kubectl("delete", "priorityclass", urgent)


@pytest.mark.guarantee("pool-shares")
@pytest.mark.thorough
def test_a_job_that_is_suspended_as_the_last_resort_trains_each_shard_once(
    sandbox: Sandbox, folder: Path
) -> None:
    urgent = f"urgent-{sandbox.namespace}"
    fixed = sharded("low", folder / "low", 5)
    fixed["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 5
    sandbox.apply(pool("shared", suspendLowerPriority=True), priority(urgent), fixed)
    low = KubectlUser(sandbox, "low", folder / "low")
    low.until("the pool is full", lambda: low.at_rest(5))

    sandbox.apply(sharded("high", folder / "high", 2, priorityClassName=urgent))
    high = KubectlUser(sandbox, "high", folder / "high")
    high.until("the urgent job has its members", lambda: high.at_rest(2))
    assert low.status()["phase"] == "Suspended"
    assert "suspended for high (0 of 2 members, priority 1000)" in low.status()["message"]

    check_ends(low, high)
    sandbox.kubectl("delete", "priorityclass", urgent)


def counting(name: str, folder: Path, size: int, **autoscaling: Any) -> Json:
    """Return a job that counts steps until it is finished."""
    folder.mkdir()
    folder.chmod(0o777)
    job = scaling_jobs.job(name, folder, replicas=size, resources=MEMBER)
    job["spec"]["autoscaling"] = autoscaling
    job["spec"]["replicaSpecs"]["worker"]["maxReplicas"] = 4
    return job


@pytest.mark.guarantee("pool-shares")
@pytest.mark.thorough
def test_what_an_auto_scaler_proposes_waits_until_its_pool_has_room(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(
        pool("shared"),
        counting("fixed", folder / "fixed", 3),
        counting("auto", folder / "auto", 1, enabled=True, cooldownSeconds=2),
    )
    fixed = KubectlUser(sandbox, "fixed", folder / "fixed")
    auto = KubectlUser(sandbox, "auto", folder / "auto")
    fixed.until("both jobs fill the pool", lambda: fixed.at_rest(3) and auto.at_rest(1))

    def waits() -> bool:
        """Return whether a size that the auto-scaler has proposed waits for the pool."""
        plans = [plan.get("status", {}) for plan in auto.items("scaleplan")]
        text = "members of worker in ElasticPool shared"
        return any(
            plan.get("phase") == "Pending" and text in plan.get("message", "") for plan in plans
        )

    auto.until("a proposal waits", waits, seconds=120)
    assert auto.at_rest(1)
    sandbox.kubectl("scale", "ej/fixed", "--replicas=1")
    auto.until("the pool is full", lambda: auto.at_rest(3) and waits(), seconds=120)
    assert fixed.at_rest(1)
    assert auto.get("elasticpool/shared")["status"]["used"] == "cpu 0.6/0.6"
    fixed.finish()
    auto.finish()
