"""Runs the operator's process on a real API server with a fake master's findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import job, operator, run_job
from tests.support.wait import until


@pytest.mark.guarantee("training-hangs")
async def test_findings_of_the_master_become_conditions_and_events_and_disappear_again(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())

        async def report(**progress: Any) -> None:
            body = {
                "apiVersion": ELASTIC_JOBS.api_version,
                "kind": ELASTIC_JOBS.kind,
                "metadata": {"name": "job"},
                "status": {"progress": progress},
            }
            await kube.apply(
                ELASTIC_JOBS,
                namespace,
                "job",
                body,
                subresource="status",
                field_manager=names.MASTER,
            )

        async def conditions() -> dict[str, str]:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            return {c["type"]: c["status"] for c in status["conditions"] if c["type"] in every}

        async def reasons() -> list[tuple[str, str]]:
            events = (await kube.list(EVENTS, namespace))["items"]
            return sorted((event["type"], event["reason"]) for event in events)

        unfit = {"job-worker-1": "no GPU answers"}
        await report(
            step=7,
            stalledSince="2026-01-01T12:00:00Z",
            stragglers=["job-worker-0"],
            unfit=unfit,
            processRestarted="job-worker-0: restart 1, after exit code 9",
        )
        every = ("TrainingStalled", "Stragglers", "UnfitNodes", "ProcessRestarted")
        await until(
            "the conditions are true",
            conditions,
            lambda found: found == dict.fromkeys(every, "True"),
        )
        await report(step=8)
        await until(
            "the conditions are false",
            conditions,
            lambda found: found == dict.fromkeys(every, "False"),
        )
        wanted = {
            *(
                ("Warning", reason)
                for reason in (
                    "Stalled",
                    "StragglersFound",
                    "NodeCheckFailed",
                    "TrainingProcessRestarted",
                )
            ),
            *(
                ("Normal", reason)
                for reason in ("Resumed", "NoStragglers", "AllFit", "NoneRestarted")
            ),
        }

        async def all_reported() -> bool:
            return [found for found in await reasons() if found in wanted] == sorted(wanted)

        await until("every change is reported, and once", all_reported)
        progress = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]["progress"]
        assert progress == {"step": 8}, "the operator leaves the master's status alone"
