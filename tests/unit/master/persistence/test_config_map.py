"""The state in a ConfigMap belongs to the latest master.

After any change of the ConfigMap one master continues.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_kube.errors import Conflict, NotFound, Refused, TryLater
from elasticjob_kube.resources import Resource
from elasticjob_kube.session import Kube
from elasticjob_master.persistence import config_map
from elasticjob_master.persistence.config_map import ConfigMapStore, Mark, read_mark
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import CredentialsRefused, StoreFailed, TakenOver
from elasticjob_master.persistence.stored_state import EncodedState
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.virtual_time import in_virtual_time

LATEST = 9_007_199_254_740_991


class FakeKube:
    """An API server with one ConfigMap, or without.

    Attributes:
        loses: answers that get lost, of requests that are carried out.
        hangs: there is no answer at all.
        refuses: the token is refused.
    """

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        self.object: dict[str, Any] | None = None
        self.loses = 0
        self.hangs = False
        self.refuses = False
        self.patches = 0
        self.create()

    def create(self) -> None:
        """Make the ConfigMap, as the operator does; it has nothing of an earlier one."""
        self.object = {"metadata": {"resourceVersion": str(next(self._versions))}}

    async def get(
        self, resource: Resource, namespace: str, name: str, *, as_type: Any = dict
    ) -> Any:
        await self._answer()
        return msgspec.json.decode(json.dumps(self._there()), type=as_type)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        there = self._there()
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.object = json.loads(json.dumps(_merged(there, body)))
        assert self.object is not None
        self.object["metadata"]["resourceVersion"] = str(next(self._versions))
        self.patches += 1
        await self._answer()
        return self.object

    def state(self) -> Any:
        return ((self.object or {}).get("binaryData") or {}).get("state")

    def _there(self) -> dict[str, Any]:
        if self.object is None:
            raise NotFound(404, "NotFound", "there is no such ConfigMap")
        return self.object

    async def _answer(self) -> None:
        if self.refuses:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if self.hangs:
            await asyncio.Event().wait()
        if self.loses:
            self.loses -= 1
            raise TryLater(0, "", "the answer got lost")


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    return old | {key: _merged(old.get(key), value) for key, value in patch.items()}


def store_at(kube: FakeKube) -> ConfigMapStore:
    return ConfigMapStore(cast(Kube, kube), "ns", "job-master-state")


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.mark.guarantee("master-configmap-lost")
async def test_a_state_that_was_emptied_or_recreated_is_written_back(kube: FakeKube) -> None:
    store = store_at(kube)
    assert await store.claim() is None
    await store.save(b"one")
    kube.object = None
    with pytest.raises(StoreFailed, match="no such ConfigMap"):
        await store.save(b"two")
    with pytest.raises(StoreFailed, match="no such ConfigMap"):
        await store.is_kept()
    kube.create()
    assert not await store.is_kept()
    await store.save(b"three")
    assert await store.is_kept()
    assert await store_at(kube).claim() == b"three"


@pytest.mark.guarantee("service-account-recreated")
@in_virtual_time
async def test_a_master_ends_if_its_token_is_refused_for_a_while_without_an_answer_between() -> (
    None
):
    kube = FakeKube()
    store = store_at(kube)
    await store.claim()
    for _ in range(3):
        kube.refuses = True
        for _ in range(2):
            with pytest.raises(StoreFailed, match="Unauthorized"):
                await store.save(b"one")
            await asyncio.sleep(config_map._REFUSED_SECONDS - 1)
        kube.refuses = False
        assert await store.is_kept() is False
    kube.refuses = True
    with pytest.raises(StoreFailed, match="Unauthorized"):
        await store.is_kept()
    await asyncio.sleep(config_map._REFUSED_SECONDS)
    with pytest.raises(CredentialsRefused, match="refused this pod's token for 30 s"):
        await store.is_kept()


async def test_a_state_emptied_in_place_is_missed(kube: FakeKube) -> None:
    store = store_at(kube)
    await store.claim()
    await store.save(b"one")
    assert kube.object is not None
    kube.object["metadata"]["resourceVersion"] = "900"
    assert await store.is_kept(), "a label, or the like"
    kube.object["binaryData"] = None
    assert not await store.is_kept()


async def test_an_earlier_master_ends_at_its_next_write_or_check(kube: FakeKube) -> None:
    first = store_at(kube)
    second = store_at(kube)
    third = store_at(kube)
    await first.claim()
    await first.save(b"one")
    assert await second.claim() == b"one"
    with pytest.raises(TakenOver, match="was written by another master"):
        await first.save(b"two")
    with pytest.raises(TakenOver):
        await first.save(b"two")
    await third.claim()
    with pytest.raises(TakenOver):
        await second.is_kept()


async def test_a_claim_waits_for_no_earlier_master_to_stop_writing(kube: FakeKube) -> None:
    first = store_at(kube)
    second = store_at(kube)
    await first.claim()
    await first.save(b"one")
    get = kube.get

    async def get_while_the_first_writes(*place: Any, **options: Any) -> Any:
        found = await get(*place, **options)
        kube.get = get  # type: ignore[method-assign]
        await first.save(b"two")
        return found

    kube.get = get_while_the_first_writes  # type: ignore[method-assign]
    assert await second.claim() == b"two", "nothing that the first one has stored is lost"
    with pytest.raises(TakenOver):
        await first.save(b"three")


async def test_a_later_claim_has_a_greater_mark_even_if_clocks_differ(kube: FakeKube) -> None:
    first = store_at(kube)
    second = store_at(kube)
    with mock.patch("time.time", return_value=2e9):
        await first.claim()
    with mock.patch("time.time", return_value=1e9):
        await second.claim()
    kube.create()
    await first.save(b"first")
    await second.save(b"second")
    with pytest.raises(TakenOver):
        await first.save(b"first again")


@pytest.mark.parametrize(
    "text", ["", "x", "1", "-1-0123456789abcdef", "9" * 40 + "-0123456789abcdef", "1-xyz"]
)
async def test_a_text_that_is_not_a_mark_names_no_owner(kube: FakeKube, text: str) -> None:
    assert read_mark(text) is None
    store = store_at(kube)
    await store.claim()
    kube.object = {
        "metadata": {"resourceVersion": "77", "annotations": {names.ANNOTATION_STATE_OF: text}}
    }
    await store.save(b"mine")
    assert kube.state()


def test_a_mark_is_read_as_it_is_written() -> None:
    assert read_mark(str(Mark(LATEST // 10, "0123456789abcdef"))) == Mark(
        LATEST // 10, "0123456789abcdef"
    )


async def test_no_answer_costs_a_bounded_time(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(kube)
    await store.claim()
    kube.hangs = True
    with monkeypatch.context() as patch:
        patch.setattr(config_map, "_REQUEST_SECONDS", 0.01)
        with pytest.raises(StoreFailed, match="not answered"):
            await store.save(b"one")
    kube.hangs = False
    await store.save(b"two")
    assert await store_at(kube).claim() == b"two"


STEPS = st.lists(
    st.sampled_from(("first", "second", "check first", "empty", "gone", "made", "lose")),
    min_size=1,
    max_size=12,
)


@pytest.mark.guarantee("master-configmap-lost")
@given(before=STEPS, after=STEPS)
async def test_after_any_changes_of_the_config_map_the_later_master_survives_and_the_earlier_ends(
    before: list[str], after: list[str]
) -> None:
    with mock.patch("time.time", itertools.count(1_000).__next__):
        await two_masters(before, after)


async def two_masters(before: list[str], after: list[str]) -> None:
    """Let a second master begin in the midst of it all."""
    kube = FakeKube()
    first = store_at(kube)
    second = store_at(kube)
    await first.claim()
    alive = {"first": first}
    for steps in (before, after):
        for step in steps:
            await act(kube, alive, step)
        kube.loses = 0
        if kube.object is None:
            kube.create()
        if second not in alive.values():
            await second.claim()
            alive["second"] = second
    for step in ("second", "first", "second"):
        await act(kube, alive, step)
    assert list(alive) == ["second"]
    assert await second.is_kept()


async def act(kube: FakeKube, alive: dict[str, ConfigMapStore], step: str) -> None:
    try:
        match step:
            case "empty" if kube.object is not None:
                kube.create()
            case "gone":
                kube.object = None
            case "made" if kube.object is None:
                kube.create()
            case "lose":
                kube.loses = 1
            case "check first" if "first" in alive:
                step = "first"
                await alive["first"].is_kept()
            case "first" | "second" if step in alive:
                await alive[step].save(step.encode())
    except StoreFailed:
        pass
    except TakenOver:
        del alive[step]


@pytest.mark.guarantee("master-configmap-lost")
@in_virtual_time
async def test_an_idle_master_writes_nothing_and_notices_that_its_state_was_deleted() -> None:
    kube = FakeKube()
    store = store_at(kube)
    await store.claim()
    writer = StateWriter(store, lambda: EncodedState(b"state"))
    writer.changed()
    work = asyncio.create_task(writer.run())
    await asyncio.sleep(60)
    patches = kube.patches
    await asyncio.sleep(600)
    assert kube.patches == patches, "at rest nothing is written"
    kube.create()
    await asyncio.sleep(30)
    assert kube.state()
    kube.object = None
    await asyncio.sleep(30)
    assert writer.failing_seconds() > 0
    kube.create()
    await asyncio.sleep(30)
    assert kube.state()
    assert writer.failing_seconds() == 0
    await store_at(kube).claim()
    await asyncio.sleep(30)
    with pytest.raises(TakenOver):
        work.result()
