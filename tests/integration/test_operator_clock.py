"""Lets the clock of the operator's machine jump, on a real API server."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from elasticjob_api import names
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, SECRETS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.operator_process import job, status_of, workers
from tests.support.wait import until

HERE = Path(__file__).parents[1] / "support" / "chaos"
JUMP = 2 * 3600


@contextmanager
def operator_with_clock(kubeconfig: Path, namespace: str, folder: Path) -> Iterator[Path]:
    """Run an operator; yield the file with the seconds by which its clock is ahead."""
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "clock.c", "-ldl"], check=True)
    environ = {"CHAOS_CLOCKS": str(folder), "CHAOS_CLOCK": "ahead", "LD_PRELOAD": str(library)}
    command = [sys.executable, "-m", "elasticjob_operator.main", "--kubeconfig", str(kubeconfig)]
    command += ["--namespace", namespace, "--master-image", "master:1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stderr=log)
    try:
        yield folder / "ahead"
    finally:
        process.terminate()
        process.wait(30)
        print((folder / "log").read_text())


@pytest.mark.guarantee("wrong-clock")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
async def test_a_clock_two_hours_ahead_ends_no_job_and_new_jobs_get_valid_certificates(
    kube: Kube, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with operator_with_clock(cluster.kubeconfig, namespace, tmp_path) as ahead:
        running = job("running", runPolicy={"activeDeadlineSeconds": 3600})
        await kube.create(ELASTIC_JOBS, namespace, running)
        await until("its workers", lambda: workers(kube, namespace, "running"), seconds=60)
        ahead.write_text(str(JUMP))
        await kube.create(ELASTIC_JOBS, namespace, job("new"))

        async def certificate() -> x509.Certificate | None:
            try:
                found = await kube.get(SECRETS, namespace, names.master_service("new"))
            except NotFound:
                return None
            return x509.load_pem_x509_certificate(base64.b64decode(found["data"][names.SECRET_CA]))

        made = await until("its certificate", certificate, seconds=60)
        assert made is not None
        assert made.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=50)
        await until(
            "a warning",
            lambda: "s ahead of the API server" in log.read_text(),
            explain=log.read_text,
        )
        change = {"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}
        await kube.patch(ELASTIC_JOBS, namespace, "running", change)
        await until(
            "a third worker",
            lambda: workers(kube, namespace, "running"),
            lambda found: len(found) == 3,
            seconds=60,
            explain=log.read_text,
        )
        status = await status_of(kube, namespace, ELASTIC_JOBS, "running")
        assert status["phase"] != "Failed", status
