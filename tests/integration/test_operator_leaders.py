"""Runs two operators.

One leads, and the other continues its work, whichever way the first one ends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_OUTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.chaos_proxy import ChaosProxy, When, WriteRequest, chaos_proxy
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    create,
    has_logged,
    job,
    operator,
    phase,
    run_job,
    worker_indices,
)
from tests.support.random_requests import record_twins
from tests.support.wait import until
from tests.support.warm_process import WarmProcess

pytestmark = pytest.mark.thorough

LEASE = ("--lease-seconds", "3")


@pytest.mark.guarantee("operator-can-be-killed")
async def test_the_waiting_operator_continues_a_plan_of_a_killed_leader(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with _two_operators(cluster, kube, namespace, tmp_path) as (first, proxy):
        await _scale_out(kube, namespace, proxy, first, signal.SIGKILL)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        assert await has_logged(tmp_path / "second", "leading as")
        assert await worker_indices(kube, namespace) == list(range(5))


@pytest.mark.guarantee("two-leaders")
async def test_a_leader_frozen_beyond_its_lease_writes_nothing_when_it_resumes(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "first"
    async with _two_operators(cluster, kube, namespace, tmp_path) as (first, proxy):
        await _scale_out(kube, namespace, proxy, first, signal.SIGSTOP)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        before = len(proxy.writes)
        first.send_signal(signal.SIGCONT)
        await until("it notices", lambda: has_logged(log, "another operator may lead"))
        await until("it waits", lambda: has_logged(log, "waiting: "))
        assert not await has_logged(log, "finishing the work"), "it has no signal to end"
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        assert await worker_indices(kube, namespace) == list(range(5))
        # A create that it had begun to send continues; the API server has the pod already.
        written = [write for write in proxy.writes[before:] if write.status not in (0, 409)]
        assert written == []


@pytest.mark.guarantee("two-leaders")
async def test_a_container_restarted_in_its_pod_leads_again_at_once(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    first_log = tmp_path / "first"
    again_log = tmp_path / "again"
    long = ("--lease-seconds", "3600")
    async with operator(cluster.kubeconfig, namespace, first_log, *long, pod_uid="uid-1") as first:
        await until("it leads", lambda: has_logged(first_log, "leading as"))
        first.kill()
        await first.wait()
        async with operator(cluster.kubeconfig, namespace, again_log, *long, pod_uid="uid-1"):
            await until("it leads again", lambda: has_logged(again_log, "leading as"))


@asynccontextmanager
async def _two_operators(
    cluster: Cluster, kube: Kube, namespace: str, folder: Path
) -> AsyncIterator[tuple[WarmProcess, ChaosProxy]]:
    """Run an operator that leads and one that waits; yield the first one and its proxy.

    Their logs are `first` and `second` of the folder. No member may ever have two live pods.
    """
    first_log = folder / "first"
    second_log = folder / "second"
    async with (
        record_twins(kube, namespace) as twins,
        kubelet(kube, namespace, node=f"node-{namespace}"),
        chaos_proxy(cluster, folder) as proxy,
        operator(proxy.kubeconfig, namespace, first_log, *LEASE) as first,
    ):
        await until("the first leads", lambda: has_logged(first_log, "leading as"))
        async with operator(cluster.kubeconfig, namespace, second_log, *LEASE):
            await until("the second waits", lambda: has_logged(second_log, "waiting"))
            yield first, proxy
            assert twins == []


async def _scale_out(
    kube: Kube,
    namespace: str,
    proxy: ChaosProxy,
    leading: WarmProcess,
    number: signal.Signals,
) -> None:
    """Scale a job out, and signal the leader between the create of the first pod and its answer."""
    await run_job(kube, namespace, job())
    signalled = asyncio.Event()

    def on_write(write: WriteRequest, when: When) -> None:
        if when == "after" and write.path.endswith("/pods") and not signalled.is_set():
            leading.send_signal(number)
            signalled.set()

    proxy.on_write = on_write
    await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=3)
    async with asyncio.timeout(30):
        await signalled.wait()
