"""Edits labels, owners and statuses by hand on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import job, operator, phase, run_job
from tests.support.wait import until

NOTHING: dict[str, Any] = {"labels": None, "ownerReferences": None, "annotations": None}


async def all_pods(kube: Kube, namespace: str) -> list[str]:
    """Return the names of all pods that have not ended, whatever their labels are."""
    pods = (await kube.list(PODS, namespace))["items"]
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"].get("phase") in ("Pending", "Running")
    )


@pytest.mark.guarantee("edited-pod-labels")
@pytest.mark.thorough
async def test_pods_with_edited_labels_or_owners_are_replaced(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async def edit(name: str, metadata: dict[str, Any]) -> None:
        await kube.patch(PODS, namespace, name, {"metadata": metadata})

    async def wait_for_pods(*expected: str, or_else: tuple[str, ...] = ()) -> None:
        await until(
            f"the pods are {expected}",
            lambda: all_pods(kube, namespace),
            lambda found: found in (sorted(expected), sorted(or_else)),
        )

    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        await edit("job-worker-0", {"labels": {names.LABEL_JOB_UID: None}})
        await wait_for_pods("job-master", "job-worker-0-1", "job-worker-1")
        await edit("job-worker-1", {"labels": {names.LABEL_INDEX: "0"}})
        await wait_for_pods("job-master", "job-worker-0-1", "job-worker-1-2")
        await edit("job-master", NOTHING)
        await wait_for_pods("job-master-1", "job-worker-0-1", "job-worker-1-2")
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
    for name in ("job-master-1", "job-worker-0-1"):
        await edit(name, NOTHING)
    await edit("job-worker-1-2", {"ownerReferences": None})
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        names_of_one_order = ("job-master-2", "job-worker-0-3", "job-worker-1-4")
        await wait_for_pods(
            *names_of_one_order, or_else=("job-master-2", "job-worker-0-4", "job-worker-1-3")
        )
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")

        async def missing() -> set[str]:
            events = (await kube.list(EVENTS, namespace))["items"]
            notes = " ".join(each["note"] for each in events if each["reason"] == "PodTampered")
            return {name for name in tampered if f"{name} is deleted, since" not in notes}

        tampered = (
            "job-worker-0",
            "job-worker-1",
            "job-master",
            "job-worker-1-2",
            "job-worker-0-1",
        )
        await until("an event for each", missing, lambda left: not left)
    assert not (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"].get("restarts")


@pytest.mark.guarantee("foreign-status-writes")
async def test_an_invalid_status_is_rejected_or_stalls_the_job_and_no_status_makes_an_extra_pod(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async def write(**role: Any) -> None:
        status = {"status": {"replicaStatuses": {"worker": role}}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", status, subresource="status")

    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job(most=3))
        for odd in (
            {"indices": "5000000-8000000"},
            {"restarts": -1},
            {"resources": {f"r{n}": "1" for n in range(99)}},
            {"desired": 30_000},
        ):
            with pytest.raises(Refused, match="worker"):
                await write(**odd)
        most = 0

        async def stalled() -> bool:
            conditions = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]["conditions"]
            return any(each["reason"] == "StatusInvalid" for each in conditions)

        async def as_before() -> bool:
            nonlocal most
            names_ = [name for name in await all_pods(kube, namespace) if "worker" in name]
            most = max(most, len(names_))
            status = (await kube.get(ELASTIC_JOBS, namespace, "job")).get("status", {})
            is_idle = status.get("phase") == "Running" and "currentPlan" not in status
            return is_idle and len(names_) == 2 == status["replicaStatuses"]["worker"]["desired"]

        for odd in ({"indices": "0-19999"}, {"desired": 20_000}):
            await write(**odd)
            await until(f"the job is as before {odd}", as_before)
        assert most <= 3
        pods = await all_pods(kube, namespace)
        await write(indices="0-99999")
        await until("the job is stalled", stalled)
        assert await all_pods(kube, namespace) == pods
        reset = {"status": None}
        await kube.patch(ELASTIC_JOBS, namespace, "job", reset, subresource="status")
        await until("the job runs with a new status", as_before)
        assert await all_pods(kube, namespace) == pods
