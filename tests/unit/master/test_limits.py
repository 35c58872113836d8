"""Checks the limits of what clients can store in the master, and a state that is too large."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest
from elasticjob_agent import process_environment, training_socket
from elasticjob_agent.remote_shell import worker
from elasticjob_api import limits
from elasticjob_api.refusals import NotCurrent
from elasticjob_api.step_report import StepReport
from elasticjob_kube import guarded_server
from elasticjob_master.controller import Controller
from elasticjob_master.core.history import Event, Sample
from elasticjob_master.core.progress import StoredProgress
from elasticjob_master.core.rendezvous import members as core_members
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.members import Identity, Members
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.sync import barrier, key_value
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.persistence import snapshot, stored_state
from elasticjob_master.persistence.config_map import ConfigMapStore
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import NoStore, StoreFailed
from elasticjob_master.persistence.stored_state import StoredLedger
from elasticjob_master.server import grpc_server
from elasticjob_master.server.services import discovery_service, job_service, remote_shell_service
from elasticjob_shards import Dataset, dataset, ledgers
from elasticjob_shards import ledger as core_ledger

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
LIMITS: dict[str, tuple[int, ...]] = {
    "One gRPC message to the master": (grpc_server.LONGEST_MESSAGE,),
    "Members": (core_members.MOST_MEMBERS,),
    "Metrics in a report; characters of a name": (
        limits.MAX_METRICS,
        limits.MAX_METRIC_NAME_CHARACTERS,
    ),
    "Watches of status, members, progress, history and plans": (job_service.MOST_WATCHES,),
    "Watches of hosts": (discovery_service.MOST_HOST_WATCHES,),
    "Data sets; their parts, all together": (ledgers.MOST_DATASETS, dataset.MOST_PARTS),
    "Shards asked for at a time; leased at a time, all together": (
        limits.MAX_LEASED_SHARDS,
        ledgers.MOST_LEASES,
    ),
    "Shards of a data set that have failed": (core_ledger.MOST_FAILED,),
    "Keys of a round; characters of a key": (key_value.MOST_KEYS, key_value.LONGEST_KEY),
    "Bytes of a value; of all keys and values": (key_value.LONGEST_VALUE, key_value.MOST_BYTES),
    "Barriers of a round; that are waited at, at a time": (
        barrier.MOST_BARRIERS,
        barrier.MOST_WAITING,
    ),
    "Open HTTP connections": (guarded_server.MOST_CONNECTIONS,),
    "Sessions of a worker at a time": (worker.MOST_SESSIONS,),
    "Messages of the remote shell: bytes of one; of all that wait; calls that wait": (
        remote_shell_service.LONGEST_DATA,
        remote_shell_service.MOST_DATA,
        remote_shell_service.MOST_WAITING,
    ),
    "Connections to the agent's socket": (training_socket.MAX_CONNECTIONS,),
    "A line on the agent's socket": (training_socket.MAX_LINE_BYTES,),
    "Answers a training process does not read": (training_socket.MAX_UNREAD_BYTES,),
    "Calls of a training process at a time, on one connection": (
        training_socket.MAX_CONCURRENT_CALLS,
    ),
    "Characters of a process's command and environment, references replaced": (
        process_environment.MAX_CHARACTERS,
    ),
}


def with_unit(value: int) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if value >= 32 * 2**10 and value % size == 0 and value not in (ledgers.MOST_LEASES,):
            return f"{value // size} {unit}"
    return f"{value:,}"


@pytest.mark.guarantee("bad-input-is-refused")
def test_the_documented_limits_equal_those_in_the_code() -> None:
    table = DOCUMENT.read_text().partition("<!-- limits -->")[2].partition("<!-- /limits -->")[0]
    documented = {
        line.split("|")[1].strip(): line.split("|")[2].strip()
        for line in table.strip().splitlines()
    }
    for what, values in LIMITS.items():
        assert documented[what] == "; ".join(with_unit(value) for value in values)
    largest = ConfigMapStore.largest
    assert largest is not None
    assert documented["Stored state"] == f"{with_unit(largest)}, compressed"


def identity(index: int, incarnation: int = 0) -> Identity:
    return Identity(
        f"job-worker-{index}-{incarnation}",
        f"uid-{index}-{incarnation}",
        "worker",
        index,
        incarnation,
    )


def incompressible(size: int) -> str:
    """Return text that compression does not make smaller."""
    return random.Random(size).randbytes(size // 2).hex()


def full() -> stored_state.StoredState:
    """Return a state with large parts. The least needed parts are the largest."""
    return stored_state.StoredState(
        samples=[
            Sample(number, float(number), 1, 1, number, random.Random(number).random())
            for number in range(3000)
        ],
        events=[Event(1, 1.0, "Told", incompressible(20_000))],
        progress=StoredProgress(step=7, metrics={incompressible(10_000): 1.0}),
        ledgers=[StoredLedger("d", 10, 1, 1, parts_digest=incompressible(4_000))],
    )


@pytest.mark.guarantee("master-state-too-large")
def test_the_least_needed_parts_of_a_too_large_state_are_left_out_but_never_the_ledgers() -> None:
    whole = full()
    size = len(stored_state.encode(whole))
    assert (
        stored_state.encode_within(whole, None)
        == stored_state.encode_within(whole, size)
        == stored_state.EncodedState(stored_state.encode(whole))
    )
    left_out = []
    for largest in range(size - 1, 5_000, -500):
        kept = stored_state.encode_within(whole, largest)
        assert len(kept.data) <= largest
        decoded = stored_state.decode(kept.data)
        assert decoded.ledgers == whole.ledgers
        assert decoded.progress.step == 7
        if kept.left_out not in left_out:
            left_out.append(kept.left_out)
    with pytest.raises(
        stored_state.StateTooLarge, match=r"100 is the most that is stored .*1 data sets"
    ):
        stored_state.encode_within(whole, 100)
    assert left_out == [("samples",), ("samples", "events"), ("samples", "events", "metrics")]


@pytest.mark.guarantee("master-state-too-large")
async def test_a_state_that_does_not_fit_is_reported_and_does_not_count_as_stored() -> None:
    def snapshot() -> stored_state.EncodedState:
        return stored_state.encode_within(full(), 10)

    state_writer = StateWriter(NoStore(), snapshot)
    state_writer.changed()
    with pytest.raises(StoreFailed, match="10 is the most that is stored"):
        await state_writer.flush()
    assert state_writer.unstored_seconds() > 0
    assert state_writer.stored_bytes == 0


@pytest.mark.guarantee("master-state-too-large")
async def test_ten_thousand_members_with_leases_fit_into_a_config_map() -> None:
    controller = Controller(framework="jax", facts=JobFacts(sizes={}))
    rng = random.Random(1)
    ledger = controller.ledgers.declare(Dataset("d", 10**7, 10))
    for index in range(10_000):
        uid = str(uuid.UUID(int=rng.getrandbits(128)))
        node = f"node-{rng.randrange(1250)}"
        address = f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}"
        controller.members.add(
            Identity(f"job-worker-{index}", uid, "worker", index, 0, address, node), 0.0
        )
        ledger.lease(uid, 4, uuid.UUID(int=rng.getrandbits(128)).hex)
    uids = tuple(member.uid for member in controller.members)
    controller.restore(StateRestored((), "training", 1, uids), 0)
    largest = ConfigMapStore.largest
    assert largest is not None
    kept = snapshot.encode(controller, job_uid="job", largest=largest)
    print(f"{len(kept.data) / 1024:.0f} KiB of {largest / 1024:.0f}")
    assert kept.left_out == ()


def test_the_number_of_members_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_members, "MOST_MEMBERS", 3)
    members = Members()
    for index in range(3):
        members.check_registration(identity(index))
        members.add(identity(index), 0.0)
    members.check_registration(identity(1))
    with pytest.raises(NotCurrent, match="3 members already; a job can have at most 3"):
        members.check_registration(identity(3))


def test_a_pod_keeps_its_role_and_index() -> None:
    members = Members()
    members.add(identity(1), 0.0)
    with pytest.raises(NotCurrent, match="uid-1-0 is worker 1; it cannot become worker 2"):
        members.check_registration(Identity("job-worker-1-0", "uid-1-0", "worker", 2))


async def test_a_report_of_a_future_round_changes_nothing() -> None:
    controller = Controller(framework="jax", facts=JobFacts(sizes={"worker": RoleSize(1, 1)}))
    controller.register(identity(0))
    member = controller.members.get("uid-0-0")
    assert member is not None
    controller.restore(StateRestored((), "training", 3, ()), 0)
    controller.step(member, StepReport(round=2**60, step=900))
    controller.step(member, StepReport(round=3, step=5))
    assert (controller.progress.round, controller.progress.step) == (3, 5)
