"""Uses the Python client in an environment that also has Kubeflow's SDK."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from elasticjob_localcluster.cluster import Cluster

from tests.support.framework_python import checkout, installed_by

SCRIPT = """
import kubeflow.trainer
from elasticjob.client import Client
with Client() as client:
    print([job.name for job in client.list()])
"""


@pytest.mark.thorough
async def test_jobs_are_listed_with_a_kubeconfig_beside_kubeflows_sdk(
    cluster: Cluster, namespace: str
) -> None:
    folders = ("api", "kube", "client", "dashboard", "shards", "library")
    process = await asyncio.create_subprocess_exec(
        installed_by("kubeflow_env"),
        "-c",
        SCRIPT.replace("Client()", f"Client(namespace={namespace!r})"),
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": checkout(*folders)},
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
    )
    out, _ = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, "[]")
