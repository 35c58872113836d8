"""Runs leader election on a real API server: an elector acquires, loses and releases the lease."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.clock import Clock
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import CONFIG_MAPS, LEASES
from elasticjob_kube.session import Kube
from elasticjob_operator.core.partitioning import Shares
from elasticjob_operator.lease import LeaderElector, LeaseLost

from tests.support.no_file import no_file
from tests.support.wait import until

SECONDS = 2


async def lead(elector: LeaderElector, leading: asyncio.Event) -> None:
    async with elector.leadership():
        leading.set()
        await asyncio.Event().wait()


async def begun(kube: Kube, namespace: str, identity: str) -> asyncio.Task[None]:
    """Start an elector and wait until it leads."""
    leading = asyncio.Event()
    task = asyncio.create_task(lead(LeaderElector(kube, namespace, identity, SECONDS), leading))
    async with asyncio.timeout(10):
        await leading.wait()
    return task


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        await task


async def holder(kube: Kube, namespace: str) -> str:
    found: Json = await kube.get(LEASES, namespace, names.OPERATOR)
    return str(found["spec"].get("holderIdentity", ""))


async def resource_version(kube: Kube, namespace: str) -> str:
    found: Json = await kube.get(LEASES, namespace, names.OPERATOR)
    return str(found["metadata"]["resourceVersion"])


async def test_a_leader_renews_its_lease_and_releases_it_at_its_end(
    kube: Kube, namespace: str
) -> None:
    task = await begun(kube, namespace, "first")
    version = await resource_version(kube, namespace)
    await until(
        "the lease is renewed",
        lambda: resource_version(kube, namespace),
        lambda now: now != version,
        seconds=10,
    )
    assert await holder(kube, namespace) == "first"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    assert await holder(kube, namespace) == ""
    second = await begun(kube, namespace, "second")
    assert await holder(kube, namespace) == "second"
    second.cancel()
    await asyncio.wait([second])


async def test_a_leader_whose_lease_another_has_taken_notices_and_leaves_it_alone(
    kube: Kube, namespace: str
) -> None:
    task = await begun(kube, namespace, "first")
    await kube.patch(LEASES, namespace, names.OPERATOR, {"spec": {"holderIdentity": "thief"}})
    with pytest.raises(LeaseLost, match=f"lease {namespace}/{names.OPERATOR} is held by thief;"):
        await ended(task)
    assert await holder(kube, namespace) == "thief"


async def test_a_leader_recreates_its_deleted_lease(kube: Kube, namespace: str) -> None:
    task = await begun(kube, namespace, "first")
    await kube.delete(LEASES, namespace, names.OPERATOR)

    async def recreated() -> bool:
        return "first" in [
            found["spec"].get("holderIdentity")
            for found in (await kube.list(LEASES, namespace))["items"]
        ]

    await until("the lease is recreated", recreated, seconds=20)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.guarantee("two-leaders")
async def test_a_leader_that_cannot_reach_the_api_server_stops_leading(
    kube: Kube, namespace: str
) -> None:
    cut = asyncio.Event()

    class Breakable(Kube):
        """A connection that hangs while it is cut."""

        clock = Clock()

        async def request(self, *args: object, **options: object) -> bytes:
            if cut.is_set():
                await asyncio.sleep(600)
                raise TryLater(0, "", "cut")
            return await kube.request(*args, **options)  # type: ignore[arg-type]

    task = await begun(Breakable.__new__(Breakable), namespace, "first")
    cut.set()
    with pytest.raises(LeaseLost, match=r"could not be renewed for 1\.6 s; another operator may"):
        await ended(task)
    cut.clear()
    assert await holder(kube, namespace) == "first"


@pytest.mark.guarantee("ports-are-guarded")
async def test_a_leader_that_can_open_no_file_stops_leading_until_it_can(
    kube: Kube, namespace: str
) -> None:
    task = await begun(kube, namespace, "first")
    with no_file(), pytest.raises(LeaseLost, match="could not be renewed"):
        await ended(task)
    again = await begun(kube, namespace, "first")
    again.cancel()
    await asyncio.wait([again])


@pytest.mark.guarantee("two-leaders")
async def test_an_api_server_frozen_for_half_of_the_lease_costs_no_leadership(
    kube: Kube, namespace: str
) -> None:
    seconds = 8
    thawed = asyncio.Event()
    thawed.set()

    class Freezable(Kube):
        """A session whose requests hang for ever if sent while the API server is frozen."""

        clock = Clock()

        async def request(self, *args: object, **options: object) -> bytes:
            if not thawed.is_set():
                await asyncio.Event().wait()
            return await kube.request(*args, **options)  # type: ignore[arg-type]

    leading = asyncio.Event()
    elector = LeaderElector(Freezable.__new__(Freezable), namespace, "first", seconds)
    task = asyncio.create_task(lead(elector, leading))
    async with asyncio.timeout(10):
        await leading.wait()
    thawed.clear()
    await asyncio.sleep(seconds * 8 / 15)
    thawed.set()
    version = await resource_version(kube, namespace)
    await until(
        "the lease is renewed",
        lambda: resource_version(kube, namespace),
        lambda now: now != version,
    )
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_a_lease_that_we_already_hold_is_renewed_before_we_lead(
    kube: Kube, namespace: str
) -> None:
    elector = LeaderElector(kube, namespace, "first", SECONDS)
    made = await kube.create(LEASES, namespace, elector._body({}, transitions=0))
    task = await begun(kube, namespace, "first")
    found = await kube.get(LEASES, namespace, names.OPERATOR)
    assert found["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.guarantee("partitions")
@pytest.mark.parametrize("others", [0, 1])
async def test_a_wish_is_granted_by_a_leader_of_two_partitions_and_dropped_by_one_of_the_last(
    kube: Kube, namespace: str, others: int
) -> None:
    shares = Shares(2, led=set(range(1, 1 + others)))
    elector = LeaderElector(kube, namespace, "first", SECONDS, shares=shares)
    async with elector.leadership() as leadership:
        wish = {"metadata": {"annotations": {f"{names.GROUP}/wanted-by": "second"}}}
        await kube.patch(LEASES, namespace, names.OPERATOR, wish)

        async def is_dropped() -> bool:
            found: Json = await kube.get(LEASES, namespace, names.OPERATOR)
            return not found["metadata"].get("annotations")

        await until("the wish is dropped", is_dropped)
        assert leadership.ending.is_set() == bool(others)
        assert await holder(kube, namespace) == "first"
    assert await holder(kube, namespace) == ""


@pytest.mark.guarantee("partitions")
async def test_a_shared_lease_is_renewed_by_each_holder_and_released_by_none(
    kube: Kube, namespace: str
) -> None:
    async with asyncio.timeout(30):
        first = LeaderElector(kube, namespace, "all", SECONDS, is_shared=True)
        second = LeaderElector(kube, namespace, "all", SECONDS, is_shared=True)
        async with first.leadership() as early:
            async with second.leadership() as late:
                until_now = (early.valid_until, late.valid_until)
                while early.valid_until == until_now[0] or late.valid_until == until_now[1]:
                    await asyncio.sleep(0.05)
            assert await holder(kube, namespace) == "all"
            early.check()
        assert await holder(kube, namespace) == "all"


async def test_a_session_without_the_lease_sends_no_write_and_still_reads(
    kube: Kube, namespace: str
) -> None:
    def refuse() -> None:
        raise TryLater(0, "LeaseLost", "not now")

    guarded = kube.guarded(refuse)
    with pytest.raises(TryLater, match="not now"):
        await guarded.create(CONFIG_MAPS, namespace, {"metadata": {"name": "late"}})
    with pytest.raises(TryLater, match="not now"):
        await guarded.delete(CONFIG_MAPS, namespace, "kube-root-ca.crt")
    found = await guarded.list(CONFIG_MAPS, namespace)
    assert [item["metadata"]["name"] for item in found["items"]] == ["kube-root-ca.crt"]
