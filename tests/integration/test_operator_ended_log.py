"""Checks the operator's log of ended pods and jobs, from a real API server's watches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import job, operator, run_job
from tests.support.wait import until


def ended(log: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON log lines by pod or job."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return {line.get("pod") or line["job"]: line for line in lines}


@pytest.mark.guarantee("log-of-ended-jobs")
async def test_every_ended_pod_and_job_has_a_line_even_if_it_is_deleted(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with (
        operator(cluster.kubeconfig, namespace, log, "--ended-log"),
        kubelet(kube, namespace),
    ):
        body = job(runPolicy={"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0})
        await run_job(kube, namespace, body)
        await end(kube, namespace, "job-worker-0", 0)
        await end(kube, namespace, "job-worker-1", 127, message="no such command")

        async def lines() -> bool:
            return {"job", "job-worker-0", "job-worker-1", "job-master"} <= ended(log).keys()

        await until("a line for each", lines)
    found = ended(log)
    assert (found["job-worker-0"]["exitCode"], found["job-worker-0"]["role"]) == (0, "worker")
    assert (found["job-worker-1"]["exitCode"], found["job-worker-1"]["message"]) == (
        127,
        "no such command",
    )
    assert found["job-master"]["reason"] == "Deleted"
    assert (found["job"]["phase"], found["job"]["members"]["worker"]["succeeded"]) == ("Failed", 1)
