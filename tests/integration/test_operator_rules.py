"""Reads the cluster's restart rules from a real ConfigMap."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS, EVENTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import job, operator, phase, run_job
from tests.support.wait import until

GOOD = "- {action: FailJob, exitCodes: [7], messagePattern: '^no (license|seat)'}\n"


@pytest.mark.guarantee("invalid-cluster-rules")
@pytest.mark.parametrize(
    ("text", "ends"), [(GOOD, "Failed"), (GOOD + "- {action: FailJob, exitCode: [1]}\n", "")]
)
async def test_the_clusters_rules_decide_and_bad_ones_are_named(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, text: str, ends: str
) -> None:
    body = {"metadata": {"name": names.RULES_CONFIG_MAP}, "data": {names.RULES_KEY: text}}
    await kube.create(CONFIG_MAPS, namespace, body)
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        await end(kube, namespace, "job-worker-0", 7, message="no license for you")
        if ends:
            status = await phase(kube, namespace, ELASTIC_JOBS, "job", ends)
            assert status["failures"][0]["action"] == "FailJob"
            return

        async def restarted() -> bool:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            return (
                bool(status.get("failures"))
                and status["replicaStatuses"]["worker"].get("ready") == 2
            )

        async def named() -> bool:
            events = (await kube.list(EVENTS, namespace))["items"]
            return any(
                each["reason"] == "RulesRefused" and "[1].exitCode" in each["note"]
                for each in events
            )

        await until("the member is restarted by the default rule", restarted)
        await until("the wrong rule is named in an event", named)
