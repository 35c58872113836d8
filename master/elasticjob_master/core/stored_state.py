"""What outlives the master: everything a new one must know to go on as if nothing had happened."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from elasticjob_master.core.history import Event, Sample

VERSION = 2
_LARGEST = 256 * 1024 * 1024


class StateTooLarge(Exception):
    """What must be stored does not fit; the message says how much there is and how much fits."""


class UnreadableState(Exception):
    """The stored bytes are no state of this version; the message says what is wrong."""


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the stored structures; a field that is missing has its default."""


class StoredMember(_Part, frozen=True):
    """A member; times are not stored, they start anew."""

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
    last_round: int = 0
    crashed: bool = False
    draining: bool = False
    drain_seconds: float = 0.0
    exiting: bool = False
    succeeded: bool = False
    step: int = 0
    straggler: bool = False
    check: str = ""
    check_seconds: float = 0.0
    check_problem: str = ""


class StoredHolder(_Part, frozen=True):
    """What a member holds of a data set, as runs of positions: by its latest request, and by earlier ones."""

    uid: str
    request_id: str = ""
    latest: list[int] = []
    earlier: list[int] = []


class StoredLedger(_Part, frozen=True):
    """A data set and its account; `waiting` and `failed` are runs of positions."""

    name: str
    size: int
    shard_size: int
    epochs: int
    shuffle: bool = False
    seed: int = 0
    parts: list[int] = []
    parts_digest: str = ""
    streamed: bool = False
    ended: bool = False
    fresh: int = 0
    waiting: list[int] = []
    failed: list[int] = []
    returned: int = 0
    restored_round: int = 0
    restored_from: str = ""
    holders: list[StoredHolder] = []


class StoredProgress(_Part, frozen=True):
    """How far the training was."""

    round: int = 0
    step: int = 0
    total_steps: int = 0
    samples: float = 0.0
    metrics: dict[str, float] = {}
    reported_at: float | None = None


class StoredStall(_Part, frozen=True):
    """When the training last stepped, and what became of that."""

    stepped_at: float | None = None
    usual: float = 0.0
    start_up: float = 0.0
    since: float | None = None
    restarts: int = 0
    restarted_at: float = 0.0


class StoredKeyValue(_Part, frozen=True):
    """What the processes of the present round have told each other, and the barriers they have passed."""

    round: int = 0
    values: dict[str, bytes] = {}
    answers: dict[str, int] = {}
    barriers: dict[str, int] = {}


class StoredMemory(_Part, frozen=True):
    """The auto-scaler's memory, with the names it has there; `weights` are those of the rates."""

    rates: dict[int, float] = {}
    weights: dict[int, float] = {}
    setting: str = ""
    asked: int | None = None
    settled: int | None = None
    reference: float = 0.0
    strays: tuple[float, ...] = ()
    noise: float = 0.02
    repeats: int = 0
    heading: int = 0
    turned: bool = False
    moves: int = 0
    costs: tuple[float, ...] = ()
    had: int | None = None
    retry_at: float = 0.0
    pause: float = 0.0
    relieved: tuple[int, float] | None = None
    resources_at: float = 0.0
    judged: int = 0


class StoredState(msgspec.Struct, frozen=True):
    """All of it."""

    version: int = VERSION
    job_uid: str = ""
    master_starts: int = 0
    phase: str = "waiting"
    round: int = 0
    world: list[str] = []
    finished: bool = False
    broken: bool = False
    uneven: bool = False
    standing_by: list[tuple[str, int]] = []
    members: list[StoredMember] = []
    host_version: int = 0
    hosts: list[tuple[str, int, str]] = []
    progress: StoredProgress = StoredProgress()
    stall: StoredStall = StoredStall()
    ledgers: list[StoredLedger] = []
    memory: StoredMemory = StoredMemory()
    plans_emitted: int = 0
    samples: list[Sample] = []
    events: list[Event] = []
    keyvalue: StoredKeyValue = StoredKeyValue()
    unfit: list[tuple[str, int, str, str]] = []


class _Versioned(msgspec.Struct):
    version: int = 0


@dataclass(frozen=True)
class EncodedState:
    """A stored form, and what is not in it for want of room."""

    data: bytes
    left_out: tuple[str, ...] = ()


def encode(state: StoredState) -> bytes:
    """Return the state as compressed JSON.

    UIDs are what it consists of, for they are random. So each is in it once, with its member, and is named by the
    member's position everywhere else; a colon, which no UID has, tells one from the other.
    """
    short = {member.pod_uid: f":{number}" for number, member in enumerate(state.members)}
    return zlib.compress(msgspec.json.encode(_renamed(state, short)), 1)


def encode_within(state: StoredState, largest: int | None) -> EncodedState:
    """Return the stored form in at most `largest` bytes (None: any number), without what is least needed if need be.

    Raises:
        StateTooLarge: what cannot be left out takes more.
    """
    data, left_out = encode(state), []
    for name, lesser in _DISPENSABLE:
        if largest is None or len(data) <= largest:
            break
        state = lesser(state)
        left_out.append(name)
        data = encode(state)
    if largest is not None and len(data) > largest:
        raise StateTooLarge(
            f"the state takes {len(data)} bytes; {largest} is the most that is stored (there are {len(state.members)} "
            f"members and {len(state.ledgers)} data sets; larger shards make a smaller state)"
        )
    return EncodedState(data, tuple(left_out))


_DISPENSABLE: tuple[tuple[str, Callable[[StoredState], StoredState]], ...] = (
    ("samples", lambda state: replace(state, samples=[])),
    ("events", lambda state: replace(state, events=[])),
    ("metrics", lambda state: replace(state, progress=replace(state.progress, metrics={}))),
)
"""Least needed first: what was, and the last values of what is told again with the next report."""


def decode(data: bytes) -> StoredState:
    """Return a stored state. Raises `UnreadableState`."""
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, _LARGEST)
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise UnreadableState(f"the stored state has version {version}; this master reads version {VERSION}")
        state = msgspec.json.decode(text, type=StoredState)
        return _renamed(state, {f":{number}": member.pod_uid for number, member in enumerate(state.members)})
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableState(f"the stored state is damaged: {error}") from error


def _renamed(state: StoredState, names: Mapping[str, str]) -> StoredState:
    """Return the state with other names for the members of the world and the holders of leases."""
    ledgers = [
        replace(ledger, holders=[replace(holder, uid=names.get(holder.uid, holder.uid)) for holder in ledger.holders])
        for ledger in state.ledgers
    ]
    return replace(state, world=[names.get(uid, uid) for uid in state.world], ledgers=ledgers)
