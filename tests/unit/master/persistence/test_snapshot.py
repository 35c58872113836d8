"""The master does not lose its stored state, and requests wait until their effect is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import shards_pb2
from elasticjob_master.config import load
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.rendezvous.member_events import MemberConnected
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.main import serve
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.state_writer import NotStored, StateWriter
from elasticjob_master.persistence.store import NoStore
from elasticjob_master.persistence.stored_state import EncodedState, StoredState
from elasticjob_master.server.services.shard_service import ShardService
from elasticjob_shards import Dataset, LeasesOfRound

STORED = Path(__file__).with_name("stored_state.json")
"""A state of version 2 in which every field is set."""
UIDS = ("uid-0", "uid-1")


def master_of(*uids: str, running_round: int = 1) -> Controller:
    """Return a master and its members, which are connected and run processes of this round."""
    controller = Controller(framework="jax", facts=JobFacts(sizes={}))
    for index, uid in enumerate(uids):
        controller.register(Identity(f"job-worker-{index}", uid, names.ROLE_WORKER, index))
        if running_round:
            controller.connect(MemberConnected(uid, running_round), lambda _: None)
    return controller


def next_master(state: StoredState) -> Controller:
    """Return a master that continues from a stored state."""
    controller = master_of()
    snapshot.restore(controller, state)
    return controller


async def test_a_master_that_is_ended_before_it_has_read_the_state_leaves_it_alone(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.write_bytes(b"all that an earlier master knew")
    config = load(
        ["--standalone", "--insecure", "--grpc-port=0", "--http-port=0", f"--state-file={state}"],
        {},
    )
    stop = asyncio.Event()
    stop.set()
    await serve(config, stop)
    assert state.read_bytes() == b"all that an earlier master knew"


async def test_leases_of_removed_members_are_free_after_a_restart() -> None:
    before = master_of("uid-0", running_round=0)
    ledger = before.ledgers.declare(Dataset("d", 4, 1))
    ledger.lease("uid-0", 1, "one")
    ledger.lease("uid-1", 2, "two")
    after = next_master(snapshot.take(before, job_uid=""))
    restored = after.ledgers.get("d")
    assert {uid: holder.leased for uid, holder in restored.holders().items()} == {"uid-0": {0}}
    assert [shard.id for shard in restored.lease("uid-0", 1, "one")] == [0], (
        "the answer is known to the next master"
    )
    assert [shard.id for shard in restored.lease("uid-2", 4)] == [1, 2, 3]


@pytest.mark.guarantee("leases-survive-the-master")
async def test_leases_of_a_process_that_the_earlier_master_did_not_store_stay_with_it() -> None:
    """The stored state has an earlier process of the member, whose end releases its leases."""
    before = master_of("uid-0")
    before.ledgers.declare(Dataset("d", 4, 1)).lease("uid-0", 1, "one")
    after = next_master(snapshot.take(before, job_uid=""))
    leases = [LeasesOfRound("d", 2, [2, 3])]
    after.connect(MemberConnected("uid-0", running_round=2), lambda _: None, leases)
    ledger = after.ledgers.get("d")
    assert {uid: holder.leased for uid, holder in ledger.holders().items()} == {"uid-0": {2, 3}}


@pytest.mark.guarantee("older-state-of-the-master")
@pytest.mark.parametrize("rounds", [1, 5])
async def test_the_training_ends_although_an_older_state_was_restored(rounds: int) -> None:
    """What the agents report wins over the stored leases, and over the stored round."""
    before = master_of(*UIDS)
    ledger = before.ledgers.declare(Dataset("d", 12, 1))
    held = {uid: [shard.id for shard in ledger.lease(uid, 3, f"r-{uid}")] for uid in UIDS}
    backup = snapshot.take(before, job_uid="")
    for uid, shards in held.items():
        ledger.report(uid, shards)
    held = {uid: [shard.id for shard in ledger.lease(uid, 2, f"s-{uid}")] for uid in UIDS}
    assert held == {"uid-0": [6, 7], "uid-1": [8, 9]}

    after = next_master(backup)
    for uid in UIDS:
        leases = [LeasesOfRound("d", rounds, held[uid])]
        after.connect(MemberConnected(uid, rounds), lambda _: None, leases, complete=True)
    ledger = after.ledgers.get("d")
    assert {uid: sorted(holder.leased) for uid, holder in ledger.holders().items()} == held
    for uid in UIDS:
        ledger.report(uid, held[uid])
    again = [shard.id for shard in ledger.lease("uid-0", 12, "t")]
    assert again == [0, 1, 2, 3, 4, 5, 10, 11], "the state does not contain that six were done"
    ledger.report("uid-0", again)
    assert ledger.finished
    reasons = [event.reason for event in after.history.events()]
    assert reasons.count("StateOutdated") == (rounds == 5)


@pytest.mark.guarantee("older-state-of-the-master")
async def test_an_agent_of_an_earlier_version_keeps_the_leases_that_it_does_not_report() -> None:
    before = master_of("uid-0")
    before.ledgers.declare(Dataset("d", 4, 1)).lease("uid-0", 2, "one")
    after = next_master(snapshot.take(before, job_uid=""))
    after.connect(MemberConnected("uid-0", running_round=1), lambda _: None)
    assert after.ledgers.get("d").account().leased == 2


@pytest.mark.guarantee("leases-survive-the-master")
async def test_a_request_whose_answer_was_lost_with_the_master_is_a_new_one() -> None:
    before = master_of("uid-0")
    before.ledgers.declare(Dataset("d", 4, 1)).lease("uid-0", 2, "lost")
    after = next_master(snapshot.take(before, job_uid=""))
    after.connect(MemberConnected("uid-0", running_round=1), lambda _: None, complete=True)
    ledger = after.ledgers.get("d")
    assert [shard.id for shard in ledger.lease("uid-1", 1, "other")] == [0]
    assert [shard.id for shard in ledger.lease("uid-0", 2, "lost")] == [1, 2]
    assert [shard.id for shard in ledger.lease("uid-0", 2, "lost")] == [1, 2], "sent twice"


async def test_no_throughput_of_0_is_recorded_before_a_member_reports_to_a_new_master() -> None:
    def train(master: Controller, step: int) -> None:
        (member,) = master.members
        master.step(member, StepReport(1, step, samples=32, seconds=1))

    before = master_of("uid-0")
    train(before, 5)
    before.record_end()
    after = next_master(snapshot.take(before, job_uid=""))
    after.tick_monitors(0)
    after.record_end()
    train(after, 6)
    after.record_end()
    assert [each.samples_per_second for each in after.history.samples()] == [32, 32]


def test_a_state_that_was_stored_before_is_read_and_stored_again_as_it_was() -> None:
    state = msgspec.json.decode(STORED.read_bytes(), type=StoredState)
    stored = json.loads(STORED.read_bytes()) | {"broken_nodes": [], "spent": []}  # newer than it
    assert json.loads(msgspec.json.encode(state)) == stored
    again = json.loads(msgspec.json.encode(snapshot.take(next_master(state), job_uid="x")))
    expected = stored | {"master_starts": 4}
    # A round that restores a checkpoint was always that of its world.
    for ledger in expected["ledgers"]:
        ledger["restored_world"] = ledger["restored_round"]
    # A verdict without the size that it was found at, and two fields of a former search.
    for former in ("useless", "heading", "turned"):
        del expected["memory"][former]
    assert again == expected


def test_a_memory_of_the_auto_scaler_that_cannot_be_read_costs_no_other_state() -> None:
    state = msgspec.json.decode(STORED.read_bytes(), type=StoredState)
    controller = next_master(msgspec.structs.replace(state, memory={"rates": 5}))
    assert controller.rendezvous.round == state.round
    assert len(controller.ledgers) == len(state.ledgers)
    assert controller.scaling.autoscaler.memory == ScalingMemory()


async def test_a_data_set_is_confirmed_when_it_is_stored_and_then_at_once() -> None:
    controller = master_of()
    state_writer = StateWriter(NoStore(), lambda: EncodedState(b""))
    controller.subscribe("changed", state_writer.changed)
    service = ShardService(controller, state_writer)
    request = shards_pb2.CreateDatasetRequest(dataset="d", size=4, shard_size=1, epochs=1)
    calls = [asyncio.create_task(service.CreateDataset(request, None)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls), "a master killed now would not know it"
    await state_writer.flush()
    assert [(await call).shards for call in calls] == [4, 4]
    state_writer.changed()
    assert (await service.CreateDataset(request, None)).shards == 4, (
        "other changes are not waited for"
    )


async def test_a_request_that_waits_for_a_change_does_not_wait_for_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state_writer = StateWriter(NoStore(), lambda: EncodedState(b""))
    state_writer.changed()
    early = state_writer.changes
    waiting = asyncio.create_task(state_writer.wait_until_stored(early))
    await asyncio.sleep(0)
    assert not waiting.done()
    await state_writer.flush()
    await waiting
    state_writer.changed()
    await state_writer.wait_until_stored(early)
    monkeypatch.setattr("elasticjob_master.persistence.state_writer._STORED_TIMEOUT_SECONDS", 0.01)
    with pytest.raises(NotStored, match="try again"):
        await state_writer.wait_until_stored(state_writer.changes)
