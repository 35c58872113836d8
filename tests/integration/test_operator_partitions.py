"""Runs operators for all namespaces that share the work by partitions, in a cluster of their own.

Each job has each of its pods once, whichever process ends, freezes or has another number of
partitions.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_POOLS, EVENTS, NAMESPACES, SCALE_OUTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_operator.core.partitioning import Partition

from tests.conftest import own_cluster, wait_for_defaults
from tests.support.chaos_proxy import ChaosProxy, WriteRequest, chaos_proxy
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    create,
    has_logged,
    job,
    leader,
    operator,
    phase,
    run_job,
    status_of,
    worker_indices,
)
from tests.support.random_requests import record_twins
from tests.support.wait import until
from tests.support.warm_process import WarmProcess

pytestmark = pytest.mark.thorough

LEASES = (f"{names.OPERATOR}-0", f"{names.OPERATOR}-1")
PLACE = "default"
OPTIONS = ("--lease-namespace", PLACE, "--lease-seconds", "6", "--partitions")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster whose namespaces no other test uses."""
    with own_cluster(tmp_path_factory, control_plane_only=True) as made:
        yield made


@pytest_asyncio.fixture
async def teams(kube: Kube) -> AsyncIterator[tuple[str, str]]:
    """Make a namespace of each of two partitions, whose pods run; no member gets two live pods."""
    found = []
    async with AsyncExitStack() as stack:
        for index in range(2):
            name = await _namespace_of(kube, Partition(index, 2))
            found.append(name)
            stack.push_async_callback(kube.delete, NAMESPACES, None, name)
            await wait_for_defaults(kube, name)
            twins = await stack.enter_async_context(record_twins(kube, name))
            await stack.enter_async_context(kubelet(kube, name, node=f"node-{name}"))
            stack.callback(partial(_assert_empty, twins))
        yield found[0], found[1]


@pytest.mark.guarantee("partitions")
async def test_a_second_process_gets_its_share_and_the_first_one_gets_it_back_when_it_is_killed(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], tmp_path: Path
) -> None:
    start = partial(operator, cluster.kubeconfig, None)
    async with start(tmp_path / "first", *OPTIONS, "2") as first:
        await _leads(tmp_path / "first", 0, 1)
        for team in teams:
            await run_job(kube, team, job())
        async with start(tmp_path / "second", *OPTIONS, "2") as second:
            await until(
                "each leads one partition", partial(_leaders, kube), lambda found: len(found) == 2
            )
            for team in teams:
                await create(kube, team, SCALE_OUTS, "more", jobName="job", count=1)
                await phase(kube, team, SCALE_OUTS, "more", "ScaleSucceeded")
            second.kill()
            await second.wait()
            for team in teams:
                await create(kube, team, SCALE_OUTS, "most", jobName="job", count=1)
                await phase(kube, team, SCALE_OUTS, "most", "ScaleSucceeded")
                assert await worker_indices(kube, team) == [0, 1, 2, 3]
        assert len(await _leaders(kube)) == 1
        assert first.returncode is None
    for team in teams:
        reasons = {event["reason"] for event in (await kube.list(EVENTS, team))["items"]}
        assert "AnotherOperator" not in reasons
    assert await _leaders(kube) == {""}, "a process that ends releases its Leases"


@pytest.mark.guarantee("partitions", "two-leaders")
async def test_a_process_frozen_beyond_its_leases_writes_nothing_when_it_resumes(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "first"
    async with (
        _two_partitions_with_jobs(cluster, kube, teams, log) as (proxy, first),
        operator(cluster.kubeconfig, None, tmp_path / "second", *OPTIONS, "2"),
    ):
        await until(
            "each leads one partition", partial(_leaders, kube), lambda found: len(found) == 2
        )
        await _freeze_in_a_scale_out(kube, teams, proxy, first)
        before = await _resume_after_the_scale_out(kube, teams, proxy, first, log)
        assert _written(proxy, before) == []
        await until("it gets a share again", partial(_leaders, kube), lambda found: len(found) == 2)
        for team in teams:
            await create(kube, team, SCALE_OUTS, "most", jobName="job", count=1)
            await phase(kube, team, SCALE_OUTS, "most", "ScaleSucceeded")
            assert await worker_indices(kube, team) == list(range(6))


@pytest.mark.guarantee("partitions")
async def test_processes_with_another_number_of_partitions_take_turns(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], tmp_path: Path
) -> None:
    start = partial(operator, cluster.kubeconfig, None)
    one = tmp_path / "one"
    two = tmp_path / "two"
    three = tmp_path / "three"
    async with start(two, *OPTIONS, "2") as of_two:
        await _leads(two, 0, 1)
        async with start(one, *OPTIONS, "1"):
            text = f"waiting: lease {names.OPERATOR} is held by replicas with --partitions 2"
            await until("the one waits", partial(has_logged, one, text))
            for team in teams:
                await run_job(kube, team, job())
            assert not await has_logged(one, "leading as")
            of_two.send_signal(signal.SIGTERM)
            assert await of_two.wait() == 0
            await until("the one leads", partial(has_logged, one, "leading as"))
            async with start(three, *OPTIONS, "3"):
                await until("the three waits", partial(has_logged, three, "waiting: "))
                for team in teams:
                    await create(kube, team, SCALE_OUTS, "more", jobName="job", count=1)
                    await phase(kube, team, SCALE_OUTS, "more", "ScaleSucceeded")
                assert not await has_logged(three, "sharing the work")


@pytest.mark.guarantee("partitions", "two-leaders")
async def test_a_frozen_process_of_an_earlier_number_of_partitions_writes_nothing_when_it_resumes(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "first"
    async with (
        _two_partitions_with_jobs(cluster, kube, teams, log) as (proxy, first),
        operator(cluster.kubeconfig, None, tmp_path / "second", *OPTIONS, "3"),
    ):
        await _freeze_in_a_scale_out(kube, teams, proxy, first)
        before = await _resume_after_the_scale_out(kube, teams, proxy, first, log)
        text = f"waiting: lease {names.OPERATOR} is held by replicas with --partitions 3"
        await until("it waits", partial(has_logged, log, text))
        assert _written(proxy, before) == []
        for team in teams:
            assert await worker_indices(kube, team) == list(range(5))


@pytest.mark.guarantee("partitions", "pool-shares")
async def test_of_pools_in_several_partitions_only_the_oldest_counts_the_nodes(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], tmp_path: Path
) -> None:
    old, young = teams
    await create(kube, old, ELASTIC_POOLS, "nodes")
    await until("a later second has begun", partial(_creates_later, kube, old, young))
    text = f"has no effect: ElasticPool {old}/nodes counts the nodes, too"
    of_old, of_young = (partial(status_of, kube, team, ELASTIC_POOLS, "nodes") for team in teams)
    async with (
        operator(cluster.kubeconfig, None, tmp_path / "first", *OPTIONS, "2"),
        operator(cluster.kubeconfig, None, tmp_path / "second", *OPTIONS, "2"),
    ):
        await until("each leads", partial(_leaders, kube), lambda found: len(found) == 2)
        for team in teams:
            await run_job(kube, team, job())
        await until("the old one shares", of_old, lambda status: status.get("jobs") == 1)
        status = await until("the young one says so", of_young, lambda status: "message" in status)
        assert status["message"].startswith(text)
        assert "jobs" not in status
        await kube.delete(ELASTIC_POOLS, old, "nodes")
        await until("the young one shares", of_young, lambda status: status.get("jobs") == 1)


async def _creates_later(kube: Kube, old: str, young: str) -> bool:
    """Create a pool in another namespace; return whether it is younger, by its time in seconds."""
    made = await create(kube, young, ELASTIC_POOLS, "nodes")
    first = await kube.get(ELASTIC_POOLS, old, "nodes")
    if made["metadata"]["creationTimestamp"] > first["metadata"]["creationTimestamp"]:
        return True
    await kube.delete(ELASTIC_POOLS, young, "nodes")
    return False


async def _namespace_of(kube: Kube, partition: Partition) -> str:
    """Create a namespace that belongs to a partition; return its name."""
    while True:
        made = await kube.create(NAMESPACES, None, {"metadata": {"generateName": "team-"}})
        name: str = made["metadata"]["name"]
        if partition.has(name):
            return name
        await kube.delete(NAMESPACES, None, name)


async def _leads(log: Path, *partitions: int) -> None:
    """Wait until the process with this log leads these partitions."""
    for partition in partitions:
        await until(
            f"it leads {partition}", partial(has_logged, log, f"leading partition {partition} of ")
        )


async def _leaders(kube: Kube) -> set[str]:
    """Return the holders of both partitions' Leases."""
    return {await leader(kube, PLACE, lease) for lease in LEASES}


@asynccontextmanager
async def _two_partitions_with_jobs(
    cluster: Cluster, kube: Kube, teams: tuple[str, str], log: Path
) -> AsyncIterator[tuple[ChaosProxy, WarmProcess]]:
    """Run a process behind a proxy that leads both partitions, with a job in each."""
    async with (
        chaos_proxy(cluster, log.parent) as proxy,
        operator(proxy.kubeconfig, None, log, *OPTIONS, "2") as process,
    ):
        await _leads(log, 0, 1)
        for team in teams:
            await run_job(kube, team, job())
        yield proxy, process


async def _freeze_in_a_scale_out(
    kube: Kube, teams: tuple[str, str], proxy: ChaosProxy, process: WarmProcess
) -> None:
    """Scale a job of each partition out, and freeze the process between a create and its answer."""
    frozen = asyncio.Event()

    def on_write(write: WriteRequest, when: str) -> None:
        if when == "after" and write.path.endswith("/pods") and not frozen.is_set():
            process.send_signal(signal.SIGSTOP)
            frozen.set()

    proxy.on_write = on_write
    for team in teams:
        await create(kube, team, SCALE_OUTS, "more", jobName="job", count=3)
    async with asyncio.timeout(30):
        await frozen.wait()


async def _resume_after_the_scale_out(
    kube: Kube,
    teams: tuple[str, str],
    proxy: ChaosProxy,
    process: WarmProcess,
    log: Path,
) -> int:
    """Resume the process when others have ended its work, and wait until it notices.

    Return the number of its writes until it was resumed.
    """
    for team in teams:
        await phase(kube, team, SCALE_OUTS, "more", "ScaleSucceeded")
    before = len(proxy.writes)
    process.send_signal(signal.SIGCONT)
    await until("it notices", partial(has_logged, log, "another operator may lead"))
    return before


def _written(proxy: ChaosProxy, before: int) -> list[WriteRequest]:
    """Return the writes since then that have changed something, except those of Leases.

    A create that the process had begun to send continues; the API server has the pod already.
    """
    return [
        write
        for write in proxy.writes[before:]
        if write.status not in (0, 409) and "/leases/" not in write.path
    ]


def _assert_empty(found: list[str]) -> None:
    assert found == []
