"""The environment of the figures.

A control plane without a node, the operator's process, and pods that are counted. The pods are
neither scheduled nor run, so that the API server, etcd and the operator share the machine only with
the measurement itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from elasticjob_kube.errors import NotFound, TryLater
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    NAMESPACES,
    PODS,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
)
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.crds import apply_crds, apply_policies

from bench import jobs
from bench.figure import Result
from bench.pod_counter import PodCounter, count_pods

REPOSITORY = Path(__file__).parents[1]
_OPERATOR = Path(sys.executable).with_name("elasticjob-operator")
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class BenchCluster:
    """A control plane, and a separate namespace for each measurement."""

    cluster: clusters.Cluster
    kube: Kube
    logs: Path

    @asynccontextmanager
    async def namespace(self) -> AsyncIterator[str]:
        """A new namespace that takes pods.

        Emptied at the end, so that the cluster is idle for the next measurement.
        """
        created = await self.kube.create(NAMESPACES, None, {"metadata": {"generateName": "bench-"}})
        name: str = created["metadata"]["name"]

        async def is_ready() -> bool:
            try:
                await self.kube.get(SERVICE_ACCOUNTS, name, "default")
                await self.kube.get(CONFIG_MAPS, name, "kube-root-ca.crt")
            except NotFound:
                return False
            return True

        await until("a new namespace takes pods", is_ready)
        try:
            yield name
        finally:
            await self._empty(name)

    def pods(self, namespace: str) -> AbstractAsyncContextManager[PodCounter]:
        """Count the pods that are created in a namespace from now on."""
        return count_pods(self.kube, namespace)

    @asynccontextmanager
    async def running_job(self, workers: int) -> AsyncIterator[tuple[str, PodCounter]]:
        """Run an operator and a job whose workers are ready; yield its namespace and its pods."""
        async with (
            self.namespace() as namespace,
            self.operator(namespace),
            self.kubelet(namespace),
            self.pods(namespace) as pods,
        ):
            await self.start_job(namespace, pods, workers)
            yield namespace, pods

    async def start_job(self, namespace: str, pods: PodCounter, workers: int) -> None:
        """Create a job named `job`, and wait until it runs with all its workers."""
        await self.kube.create(ELASTIC_JOBS, namespace, jobs.job("job", workers))
        await pods.wait_for(workers)
        await until_running(self.kube, namespace)

    @asynccontextmanager
    async def operator(self, *namespaces: str) -> AsyncIterator[None]:
        """Run the operator; when the block begins it leads and is idle.

        It can watch only one namespace or all, so for several namespaces it watches all.
        """
        log = self.logs / f"operator-{'-'.join(namespaces)}.log"
        command = [str(_OPERATOR), "--kubeconfig", str(self.cluster.kubeconfig)]
        if len(namespaces) == 1:
            command += ["--namespace", *namespaces]
        command += ["--master-image", "master:1"]
        async with running(command, log) as process:
            await _wait_until_idle(process)
            yield

    @asynccontextmanager
    async def kubelet(self, namespace: str) -> AsyncIterator[None]:
        """Run a fake kubelet for one namespace, as a separate process: the pods become ready."""
        command = [
            sys.executable,
            "-m",
            "bench.fake_kubelet",
            str(self.cluster.kubeconfig),
            namespace,
        ]
        async with running(command, self.logs / f"kubelet-{namespace}.log") as process:
            await _wait_until_idle(process)
            yield

    async def _empty(self, namespace: str) -> None:
        """Delete jobs and pods without the garbage collector.

        The namespace stays: deleting it would take longer than most measurements.
        """
        for resource in (SCALE_PLANS, ELASTIC_JOBS, PODS):
            params = {
                "gracePeriodSeconds": "0",
                "propagationPolicy": "Orphan" if resource == ELASTIC_JOBS else "",
            }
            delete = partial(
                self.kube.request,
                "DELETE",
                resource.path(namespace),
                params=params,
                seconds=_TIMEOUT_SECONDS,
            )
            # The API server deletes them one by one and ends the request after 60 s.
            await retry(delete, TryLater, pauses=[0.1] * 10)

        async def is_empty() -> bool:
            left = [await self.kube.list(each, namespace) for each in (ELASTIC_JOBS, PODS)]
            return not any(each["items"] for each in left)

        await until("the jobs and pods of a namespace are gone", is_empty)


def on_cluster(
    measure: Callable[[BenchCluster], Awaitable[Result]], *, node: bool = False
) -> Callable[[], Awaitable[Result]]:
    """Return a measurement that starts the control plane it needs, or also a node.

    Both are removed at its end.
    """

    async def measured() -> Result:
        with (
            TemporaryDirectory(prefix="elasticjob-bench-") as directory,
            clusters.up(Path(directory) / "cluster", control_plane_only=not node) as cluster,
        ):
            await apply_crds(cluster.kubeconfig, REPOSITORY / "crds")
            await apply_policies(cluster.kubeconfig, REPOSITORY / "policies")
            async with connect(
                user_agent="elasticjob-bench", kubeconfig=cluster.kubeconfig
            ) as kube:
                return await measure(BenchCluster(cluster, kube, cluster.state / "logs"))

    return measured


async def until(
    what: str, condition: Callable[[], Awaitable[bool]], *, seconds: float = _TIMEOUT_SECONDS
) -> None:
    """Wait until a condition holds; `what` describes it in the error.

    Raises:
        TimeoutError: it did not hold in time.
    """
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.05)


async def until_running(kube: Kube, namespace: str) -> None:
    """Wait until the job of a namespace runs."""

    async def runs() -> bool:
        status = (await kube.get(ELASTIC_JOBS, namespace, "job")).get("status") or {}
        return bool(status.get("phase") == "Running")

    await until("the job runs", runs)


@asynccontextmanager
async def running(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[psutil.Process]:
    """Run a program while the block lasts; show the end of its output if the block fails."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, cwd=REPOSITORY, env=environment
        )
    try:
        yield psutil.Process(process.pid)
    except BaseException:
        sys.stderr.write(_end_of(log))
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _end_of(log: Path) -> str:
    return f"end of {log}:\n{log.read_text()[-3000:]}\n"


async def _wait_until_idle(process: psutil.Process) -> None:
    """Wait until a process that has started up uses no CPU any more."""
    used = -1.0
    quiet = 0
    end = time.monotonic() + _TIMEOUT_SECONDS
    while quiet < 4 and time.monotonic() < end:
        await asyncio.sleep(0.15)
        now = sum(process.cpu_times()[:2])
        quiet = quiet + 1 if now - used < 0.02 and now > 0.1 else 0
        used = now
