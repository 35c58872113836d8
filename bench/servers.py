"""The servers under load.

A master with or without Kubernetes, and the bare server it is compared with. Each is a process of
its own with the TLS certificate and the token of a real job, made as the operator makes them.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.resources import ELASTIC_JOBS, SERVICE_ACCOUNTS
from elasticjob_operator.certificates import new_job_secrets
from elasticjob_operator.ensure_infrastructure import ensure_infrastructure

from bench import jobs
from bench.bench_cluster import BenchCluster, running
from bench.grpc_client import Connection, connect

_START_SECONDS = 30.0
_LISTEN = ("--address=127.0.0.1", "--grpc-port=0", "--http-port=0")
_PORT = re.compile(rb"gRPC on \S+?:(\d+)")


@dataclass(frozen=True)
class Server:
    """One running server."""

    process: psutil.Process
    port: int

    def cpu_seconds(self) -> float:
        """CPU time it has used since its start, all threads."""
        used = self.process.cpu_times()
        return float(used.user + used.system)

    def rss(self) -> int:
        """Bytes of memory it has in use."""
        return int(self.process.memory_info().rss)

    async def connect(self) -> Connection:
        """Open a connection that shows the job's token."""
        return await connect(
            self.port, tls=_client_tls(), token=_secrets()[names.SECRET_TOKEN].decode()
        )


@asynccontextmanager
async def master(*, workers: int) -> AsyncIterator[Server]:
    """Run a master that forms a world as soon as this many workers have joined."""
    command = [
        str(Path(sys.executable).with_name("elasticjob-master")),
        "--standalone",
        "--framework=jax",
    ]
    command += [f"--min={workers}", *_LISTEN]
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        async with _running([*command, f"--state-file={folder}/state"], Path(folder)) as server:
            yield server


@asynccontextmanager
async def master_of_job(bench: BenchCluster, namespace: str) -> AsyncIterator[Server]:
    """Make a job and run its master as in a pod.

    With its service account's rights and token, at the API server.
    """
    name = "bench"
    job = msgspec.convert(
        await bench.kube.create(ELASTIC_JOBS, namespace, jobs.job(name, 1)), ElasticJob
    )
    await ensure_infrastructure(bench.kube, job)
    path = SERVICE_ACCOUNTS.path(namespace, names.master_service(name), "token")
    granted = msgspec.json.decode(await bench.kube.request("POST", path, body={"spec": {}}))
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(bench.cluster.port),
        names.ENV_JOB_NAME: name,
        names.ENV_JOB_UID: job.metadata.uid,
        names.ENV_NAMESPACE: namespace,
        names.ENV_POD_NAME: names.master_pod(name, 0),
        names.ENV_FRAMEWORK: job.spec.framework,
    }
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        _service_account(Path(folder), bench, granted["status"]["token"])
        command = [sys.executable, "-m", "bench.master_in_pod", folder, *_LISTEN]
        async with _running(command, Path(folder), environment) as server:
            yield server


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    """Run the bare server."""
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        async with _running([sys.executable, "-m", "bench.bare_server"], Path(folder)) as server:
            yield server


@asynccontextmanager
async def _running(
    command: list[str], folder: Path, more: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    secrets = {key: value.decode() for key, value in _secrets().items()}
    environment = {
        **os.environ,
        names.ENV_TOKEN: secrets[names.SECRET_TOKEN],
        names.ENV_TLS_CERT: secrets[names.SECRET_CERT],
        names.ENV_TLS_KEY: secrets[names.SECRET_KEY],
        **(more or {}),
    }
    log = folder / "log"
    async with running(command, log, environment) as process:
        async with asyncio.timeout(_START_SECONDS):
            while (found := _PORT.search(log.read_bytes())) is None:
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    raise RuntimeError(f"{command[0]} has ended")
                await asyncio.sleep(0.02)
        yield Server(process, int(found[1]))


def _service_account(folder: Path, bench: BenchCluster, token: str) -> None:
    """Write the files that the kubelet puts into every pod."""
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes((bench.cluster.state / "pki" / "ca.crt").read_bytes())


@cache
def _secrets() -> dict[str, bytes]:
    return new_job_secrets("bench", "bench")


@cache
def _client_tls() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_secrets()[names.SECRET_CA].decode())
    context.set_alpn_protocols(["h2"])
    return context
