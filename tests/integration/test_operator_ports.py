"""Attacks the ports of an operator that may open few files, while another tenant creates a job."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.admission import arguments
from tests.support.operator_process import job, workers
from tests.support.wait import until

FILES = 640
IDLE = 400
"""Connections to each port: together more than the operator may open files."""


def few_files() -> None:
    """Limit the files of the process that is started; its soft limit is as low as a container's."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES // 4, FILES))


@pytest.mark.guarantee("ports-are-guarded")
async def test_idle_clients_of_webhook_and_probes_keep_no_job_waiting(
    kube: Kube, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    webhook = free_port()
    probes = free_port()
    command = [sys.executable, "-m", "elasticjob_operator.main", "--namespace", namespace]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--master-image", "master:1"]
    command += ["--http-port", str(probes), *arguments("none", webhook)]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output, env=os.environ, preexec_fn=few_files)
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        await until("it leads", lambda: "leading as" in log.read_text(), explain=log.read_text)
        for _ in range(IDLE):
            for port in (webhook, probes):
                held.append(await asyncio.open_connection("127.0.0.1", port))
                held[-1][1].write(b"GET / HTTP/1.1\r\nHost: a\r\n")
        await kube.create(ELASTIC_JOBS, namespace, job())
        await until("the job's workers", lambda: workers(kube, namespace), explain=log.read_text)
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{probes}/healthz") as answer,
        ):
            assert answer.status == 200
        assert "Traceback" not in log.read_text()
    finally:
        for _, writer in held:
            writer.transport.abort()
        process.terminate()
        process.wait(30)
        print(log.read_text())
