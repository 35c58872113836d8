"""The state that is stored for a restart of the master, and its encoding.

The structs are encoded by field name, and a stored name is kept for ever: an earlier or a later
master may read it. A field that gets another name here is mapped to its stored name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from elasticjob_api.pod_identity import MemberKey
from msgspec.structs import replace

from elasticjob_master.core.accounting import StoredAccounting
from elasticjob_master.core.history import Event, Sample
from elasticjob_master.core.progress import StoredProgress
from elasticjob_master.core.rendezvous.host_discovery import Host
from elasticjob_master.core.stall import StoredStall
from elasticjob_master.core.straggler_replacement import ReplacementMemory

VERSION = 2
_LARGEST = 256 * 1024 * 1024


class StateTooLarge(Exception):
    """The state does not fit. The message contains its size and the bound."""


class UnreadableState(Exception):
    """The stored bytes are damaged or of another version, as the message says."""


class StoredMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member. Its times are not stored, and begin again after a restart."""

    order: int
    pod_name: str
    pod_uid: str
    role: str
    index: int
    incarnation: int = 0
    address: str = ""
    node_name: str = ""
    slots: int = 1
    process_round: int = 0
    started: bool = False
    joined_round: int = 0
    last_round: int = 0
    crashed: bool = False
    retry: bool = False
    draining: bool = False
    drain_seconds: float = 0.0
    exiting: bool = False
    succeeded: bool = False
    step: int = 0
    restarts: int = 0
    straggler: bool = False
    check: str = ""
    check_seconds: float = 0.0
    check_problem: str = ""


class StoredHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member's leases of one data set, by request: runs of positions."""

    uid: str
    request_id: str = ""
    latest: list[int] = []
    earlier: list[int] = []


class StoredLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A data set and its ledger. `waiting` and `failed` are runs of positions."""

    name: str
    size: int
    shard_size: int
    epochs: int
    shuffle: bool = False
    seed: int = 0
    parts: tuple[int, ...] = ()
    parts_digest: str = ""
    streamed: bool = False
    ended: bool = False
    fresh: int = 0
    waiting: list[int] = []
    failed: list[int] = []
    returned: int = 0
    restored_world: int = 0
    restored_round: int = 0
    restored_from: str = ""
    holders: list[StoredHolder] = []


class StoredKeyValue(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"addition_results": "answers", "passed_barriers": "barriers"},
):
    """The key-value store of the present round, and how often each barrier was passed."""

    round: int = 0
    values: dict[str, bytes] = {}
    addition_results: dict[str, int] = {}
    passed_barriers: dict[str, int] = {}


_STORED_NAMES = {
    "world_failed": "broken",
    "world_incomplete": "uneven",
    "successors": "standing_by",
    "last_plan_number": "plans_emitted",
}


class StoredState(msgspec.Struct, frozen=True, rename=_STORED_NAMES):
    """The whole stored state."""

    version: int = VERSION
    job_uid: str = ""
    master_starts: int = 0
    phase: str = "waiting"
    round: int = 0
    world: list[str] = []
    finished: bool = False
    world_failed: bool = False
    world_incomplete: bool = False
    successors: list[MemberKey] = []
    members: list[StoredMember] = []
    host_version: int = 0
    hosts: list[Host] = []
    progress: StoredProgress = StoredProgress()
    stall: StoredStall = StoredStall()
    ledgers: list[StoredLedger] = []
    memory: dict[str, Any] = {}
    last_plan_number: int = 0
    samples: list[Sample] = []
    events: list[Event] = []
    keyvalue: StoredKeyValue = StoredKeyValue()
    unfit: list[tuple[str, int, str, str]] = []
    broken_nodes: list[str] = []
    replacements: ReplacementMemory = ReplacementMemory()
    series: dict[str, list[float | None]] = {}
    accounting: StoredAccounting = StoredAccounting()
    spent: list[tuple[float, ...]] = []


class _Versioned(msgspec.Struct):
    version: int = 0


@dataclass(frozen=True)
class EncodedState:
    """An encoded state.

    Attributes:
        left_out: the names of the parts that were left out to make it small enough.
        round: the round of the latest world that it contains.
        host_version: the version of the host list that it contains.
    """

    data: bytes
    left_out: tuple[str, ...] = ()
    round: int = 0
    host_version: int = 0


def encode(state: StoredState) -> bytes:
    """Return the state as compressed JSON.

    The UIDs take most of its size, because they are random and do not compress. So each UID is
    written once, with its member, and everywhere else as a colon and the member's position; no UID
    contains a colon.
    """
    short = {member.pod_uid: f":{number}" for number, member in enumerate(state.members)}
    return zlib.compress(msgspec.json.encode(_with_uids(state, short)), 1)


def encode_within(state: StoredState, largest: int | None) -> EncodedState:
    """Encode the state in at most `largest` bytes, if necessary without the least important parts.

    There is no limit if `largest` is None.

    Raises:
        StateTooLarge: it does not fit even without these parts.
    """
    data = encode(state)
    left_out = []
    for name, without in _DISPENSABLE:
        if largest is None or len(data) <= largest:
            break
        state = without(state)
        left_out.append(name)
        data = encode(state)
    if largest is not None and len(data) > largest:
        raise StateTooLarge(
            f"the state takes {len(data)} bytes; {largest} is the most that is stored "
            f"(there are {len(state.members)} members and {len(state.ledgers)} data sets; "
            "larger shards make a smaller state)"
        )
    return EncodedState(data, tuple(left_out), state.round, state.host_version)


_DISPENSABLE: tuple[tuple[str, Callable[[StoredState], StoredState]], ...] = (
    ("samples", lambda state: replace(state, samples=[], series={}, spent=[])),
    ("events", lambda state: replace(state, events=[])),
    ("metrics", lambda state: replace(state, progress=replace(state.progress, metrics={}))),
)
"""The least important parts first: the history, and metrics that the next step reports contain."""


def decode(data: bytes) -> StoredState:
    """Decode a stored state. Raises `UnreadableState`."""
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, _LARGEST)
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise UnreadableState(
                f"the stored state has version {version}; this master reads version {VERSION}"
            )
        state = msgspec.json.decode(text, type=StoredState)
        return _with_uids(
            state, {f":{number}": member.pod_uid for number, member in enumerate(state.members)}
        )
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableState(f"the stored state is damaged: {error}") from error


def _with_uids(state: StoredState, names: Mapping[str, str]) -> StoredState:
    """Return the state with other UIDs for the members of the world and the holders of leases."""
    ledgers = [
        replace(
            ledger,
            holders=[
                replace(holder, uid=names.get(holder.uid, holder.uid)) for holder in ledger.holders
            ],
        )
        for ledger in state.ledgers
    ]
    return replace(state, world=[names.get(uid, uid) for uid in state.world], ledgers=ledgers)
