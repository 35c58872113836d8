"""Freezes or kills the control plane during a plan.

The operator continues by itself with the same outcome.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_kube.errors import AlreadyExists, TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_OUTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster

from tests.conftest import shared_cluster
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    create,
    has_logged,
    job,
    operator,
    phase,
    run_job,
    workers,
)
from tests.support.random_requests import record_twins
from tests.support.wait import until

pytestmark = pytest.mark.thorough

OUTAGES = [
    ("kube-apiserver", signal.SIGSTOP, 8),
    ("kube-apiserver", signal.SIGSTOP, 30),
    ("kube-apiserver", signal.SIGKILL, 0),
    ("kube-apiserver", signal.SIGKILL, 30),
    ("etcd", signal.SIGSTOP, 8),
    ("etcd", signal.SIGSTOP, 30),
    ("etcd", signal.SIGKILL, 0),
]
"""The process, the fault and its seconds; a killed process is restarted after them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a control plane for this file alone, whose parts may be frozen or killed."""
    with shared_cluster(
        tmp_path_factory, f"disturbed-{os.getpid()}", control_plane_only=True
    ) as cluster:
        yield cluster


async def disturb(cluster: Cluster, name: str, number: signal.Signals, seconds: float) -> None:
    """Freeze or kill a process of the control plane, and resume or restart it after a while."""
    process = cluster.children[name]
    process.send_signal(number)
    if number == signal.SIGKILL:
        await asyncio.to_thread(process.wait)
    await asyncio.sleep(seconds)
    if number == signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
        return
    assert isinstance(process.args, list)
    command = [os.fspath(argument) for argument in process.args]
    again: subprocess.Popen[bytes] = daemons.start(
        name, command, state=cluster.state, environ=os.environ
    )
    cluster.children[name] = again


@pytest.mark.guarantee("api-server-outage")
@pytest.mark.parametrize(("name", "number", "seconds"), OUTAGES)
async def test_an_outage_during_a_plan_costs_neither_the_plan_nor_the_operator(
    cluster: Cluster,
    kube: Kube,
    namespace: str,
    tmp_path: Path,
    name: str,
    number: signal.Signals,
    seconds: float,
) -> None:
    async def worker_count() -> int:
        try:
            return len(await workers(kube, namespace))
        except TryLater:
            return 0

    async with (
        record_twins(kube, namespace) as twins,
        kubelet(kube, namespace),
        operator(cluster.kubeconfig, namespace, tmp_path / "log") as process,
    ):
        await until("it leads", lambda: has_logged(tmp_path / "log", "leading as"))
        await run_job(kube, namespace, job())
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=3)
        await until("the plan has begun", worker_count, lambda count: count > 2)
        await disturb(cluster, name, number, seconds)
        back = time.monotonic()
        # A new job shows that the controller works again; no object from before the outage can show
        # that.
        await until("it can be asked for", lambda: created(kube, namespace, "after"))
        await until("the operator is back at work", lambda: exists(kube, namespace, "after-master"))
        print(f"back at work {time.monotonic() - back:.1f} s after the end of the outage")
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await phase(kube, namespace, ELASTIC_JOBS, "after", "Running")
        # A pod whose create was not answered may exist or not, so its member may have another name.
        counts = {
            name: indices_of(await workers(kube, namespace, name)) for name in ("job", "after")
        }
        assert counts == {"job": [0, 1, 2, 3, 4], "after": [0, 1]}
        assert process.returncode is None
        assert not await has_logged(tmp_path / "log", "Traceback")
        assert twins == []


def indices_of(pods: list[str]) -> list[int]:
    """Return the index of each member, by its pod's name."""
    return sorted(int(name.partition("-worker-")[2].split("-")[0]) for name in pods)


async def created(kube: Kube, namespace: str, name: str) -> bool:
    """Create a job; return False if the API server does not accept it yet."""
    try:
        await kube.create(ELASTIC_JOBS, namespace, job(name))
    except TryLater:
        return False
    except AlreadyExists:  # created by an attempt whose answer was lost
        pass
    return True


async def exists(kube: Kube, namespace: str, name: str) -> bool:
    """Return whether the pod exists, as far as the API server answers."""
    try:
        return name in [
            pod["metadata"]["name"] for pod in (await kube.list(PODS, namespace))["items"]
        ]
    except TryLater:
        return False
