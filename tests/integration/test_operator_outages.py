"""Freezes or kills the control plane during a plan, or restores its storage.

The operator continues by itself with the same outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.errors import AlreadyExists, TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_OUTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster
from elasticjob_operator.store import TYPES

from tests.conftest import own_cluster
from tests.support.chaos_proxy import ChaosProxy, WriteRequest, chaos_proxy
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

LOST_WRITES = 500
"""So many that the versions after a restoration stay below those that the operator has seen."""

LONG_LEASE = ("--lease-seconds", "600")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a control plane for this file alone, whose parts may be frozen or killed."""
    with own_cluster(tmp_path_factory, control_plane_only=True) as cluster:
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
    else:
        start_again(cluster, name)


async def end(cluster: Cluster, name: str, number: signal.Signals = signal.SIGTERM) -> None:
    """End a process of the control plane, and wait for its end."""
    process = cluster.children[name]
    process.send_signal(number)
    await asyncio.to_thread(process.wait)


def start_again(cluster: Cluster, name: str) -> None:
    """Start a process of the control plane that has ended."""
    process = cluster.children[name]
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


@pytest.mark.guarantee("storage-restored")
async def test_after_its_storage_was_restored_the_operator_follows_edits_of_restored_jobs_only(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    data = cluster.state / "etcd"
    backup = tmp_path / "backup"
    async with (
        kubelet(kube, namespace),
        chaos_proxy(cluster, tmp_path) as proxy,
        # It leads all the time: a new leader lists everything anyway.
        operator(proxy.kubeconfig, namespace, tmp_path / "log", *LONG_LEASE) as process,
    ):
        await until("it leads", lambda: has_logged(tmp_path / "log", "leading as"))
        await run_job(kube, namespace, job())
        await end(cluster, "etcd")
        shutil.copytree(data, backup)
        start_again(cluster, "etcd")
        await until("it can be asked for", lambda: created(kube, namespace, "gone"))
        for number in range(LOST_WRITES):
            text = {"metadata": {"annotations": {"number": str(number)}}}
            await kube.patch(ELASTIC_JOBS, namespace, "gone", text)
        await phase(kube, namespace, ELASTIC_JOBS, "gone", "Running")
        edit = {"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", edit)
        await until("the edit is lost later", lambda: exists(kube, namespace, "job-worker-2"))
        await rest(proxy)  # a write that waits for its repetition would find that the job is gone

        # Its cache is of the later state, and after SIGTERM it waits a minute for watches to end.
        await end(cluster, "kube-apiserver", signal.SIGKILL)
        await end(cluster, "etcd")
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        start_again(cluster, "etcd")
        # The watches of what belongs to jobs find first that it is gone.
        proxy.slow_lists = [resource.plural for resource in (PODS, *TYPES)]
        before = len(proxy.writes)
        start_again(cluster, "kube-apiserver")
        edit["spec"]["replicaSpecs"]["worker"]["replicas"] = 4
        await until("it can be edited", lambda: edited(kube, namespace, edit))
        await until("it follows the edit", lambda: exists(kube, namespace, "job-worker-3"))
        assert await has_logged(tmp_path / "log", "the storage was restored")
        assert not await has_logged(tmp_path / "log", "finishing the work"), "no signal came"
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        assert [write.path for write in proxy.writes[before:] if makes_gone(write)] == []
        assert indices_of(await workers(kube, namespace, "job")) == [0, 1, 2, 3]
        assert process.returncode is None
        assert not await has_logged(tmp_path / "log", "Traceback")


def makes_gone(write: WriteRequest) -> bool:
    """Return whether a write creates an object, other than an event, for the job `gone`."""
    if write.method != "POST" or write.path.endswith("/events") or not write.body:
        return False  # without a body it was broken off, or has only begun
    name: str = json.loads(write.body).get("metadata", {}).get("name", "")
    return name.startswith("gone")


async def rest(proxy: ChaosProxy) -> None:
    """Return when the operator has written nothing for a while, or after a minute."""
    written = -1
    for _ in range(12):
        if written == len(proxy.writes):
            return
        written = len(proxy.writes)
        await asyncio.sleep(5)


async def edited(kube: Kube, namespace: str, edit: Json) -> bool:
    """Edit the job; return False if the API server does not accept it yet."""
    try:
        await kube.patch(ELASTIC_JOBS, namespace, "job", edit)
    except TryLater:
        return False
    return True


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
