"""The members of a large world get a checkpoint in memory, and none gives it to many."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from elasticjob import AgentError, _state
from elasticjob._state_choice import CHILDREN
from elasticjob_agent.state import peers

from tests.support.state_members import CHECKPOINT, STORE, Members, Values, members

pytestmark = [pytest.mark.guarantee("state-in-memory"), pytest.mark.asyncio]
COUNT = 40
MODEL = bytes(range(256)) * 4096
ABOVE = 2
"""A member that gives the model to others, and does not hold it before."""


def holds_all(world: Members, position: int) -> bool:
    held = world.folder(position).held()[CHECKPOINT]
    model = (world.root / str(position) / STORE / CHECKPOINT / "0" / "model").read_bytes()
    return held.complete and len(held.whole) == world.count and model == MODEL


async def test_a_checkpoint_spreads_over_many_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path, monkeypatch, COUNT) as world:
        world.save(MODEL)
        assert await world.begin() == [CHECKPOINT] * COUNT
        assert all(holds_all(world, position) for position in range(COUNT))
        assert world.served.total() == COUNT - 2, "only the part with files, once for each"
        assert max(world.served.values()) <= CHILDREN


async def test_what_few_members_keep_after_a_world_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path, monkeypatch, 3) as world:
        world.save(MODEL)
        await world.begin()
        held = world.folder(2).held()[CHECKPOINT]
        assert held.whole == {0, 1, 2}
        assert held.empty == {1, 2}


async def test_few_members_fetch_from_one_that_had_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for(self: peers.StateServer, *_: object) -> None:
        raise AssertionError("a member waits for another one")

    monkeypatch.setattr(peers.StateServer, "_wait_for", wait_for)
    async with members(tmp_path, monkeypatch, CHILDREN + 1) as world:
        world.save(MODEL)
        assert await world.begin() == [CHECKPOINT] * (CHILDREN + 1)


@pytest.mark.parametrize("fault", ["frozen", "gone", "no address", "earlier agents", "slow"])
async def test_members_below_one_that_gives_nothing_fetch_from_one_that_had_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "frozen":
        monkeypatch.setattr(peers, "PROGRESS_SECONDS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with members(tmp_path, monkeypatch, COUNT) as world:
            world.save(MODEL)
            if fault in ("frozen", "gone"):
                world.connections[ABOVE].address = f"127.0.0.1:{silent.getsockname()[1]}"
            if fault == "gone":
                silent.close()
            elif fault == "no address":
                world.connections[ABOVE].address = None
            elif fault == "earlier agents":
                monkeypatch.setattr(peers.StateServer, "_wait_for", _at_once)
            elif fault == "slow":
                monkeypatch.setattr(peers, "EXPECTED_SECONDS", 0.0)
            assert await world.begin() == [CHECKPOINT] * COUNT
        assert all(holds_all(world, position) for position in range(COUNT))


async def _at_once(self: peers.StateServer, *_: object) -> None:
    """Refuse a part that is not here, as agents do that know no waiting."""


async def test_a_world_begins_at_the_storage_if_one_member_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "EXPECTED_SECONDS", 0.5)
    rooms = {ABOVE: len(MODEL) // 2}
    async with members(tmp_path, monkeypatch, COUNT, rooms) as world:
        world.save(MODEL)
        assert await world.begin() == [""] * COUNT
        assert world.votes.count(True) == 1, "the others have got it from elsewhere"


async def test_a_world_begins_at_the_storage_if_who_had_a_part_has_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "EXPECTED_SECONDS", 0.5)
    async with members(tmp_path, monkeypatch, COUNT) as world:
        world.save(MODEL)
        found = await world.begin(lambda: world.folder(0).remove_part(CHECKPOINT, 0))
        assert found == [""] * COUNT


@pytest.mark.parametrize("full", ["inventory", "choice"])
async def test_a_world_whose_values_are_full_begins_at_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    monkeypatch.setattr(_state, "_INVENTORY_SECONDS", 0.5)
    fits = Values.set

    def is_full(self: Values, key: str, value: bytes) -> None:
        if CHECKPOINT.encode() in value if full == "choice" else key.endswith("/held/2"):
            raise AgentError("the bound is 262144")
        fits(self, key, value)

    monkeypatch.setattr(Values, "set", is_full)
    async with members(tmp_path, monkeypatch, 3) as world:
        world.save(MODEL)
        assert await world.begin() == [""] * 3
