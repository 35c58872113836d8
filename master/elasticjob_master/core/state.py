"""What outlives the master: everything a new one must know to go on as if nothing had happened."""

from __future__ import annotations

import zlib

import msgspec

VERSION = 1
_LARGEST = 256 * 1024 * 1024


class Unreadable(Exception):
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


class StoredLedger(_Part, frozen=True):
    """A data set and its account."""

    name: str
    size: int
    shard_size: int
    epochs: int
    shuffle: bool = False
    seed: int = 0
    fresh: int = 0
    undone: list[int] = []
    early: list[int] = []
    returned: int = 0
    leases: dict[str, list[int]] = {}
    answers: dict[str, tuple[str, list[int]]] = {}


class StoredProgress(_Part, frozen=True):
    """How far the training was."""

    round: int = 0
    step: int = 0
    total_steps: int = 0
    samples: float = 0.0
    metrics: dict[str, float] = {}
    reported_at: float | None = None


class StoredMemory(_Part, frozen=True):
    """The auto-scaler's memory."""

    rates: dict[int, float] = {}
    settled: int | None = None
    asked: int | None = None


class State(msgspec.Struct, frozen=True):
    """All of it."""

    version: int = VERSION
    job_uid: str = ""
    master_starts: int = 0
    phase: str = "waiting"
    round: int = 0
    world: list[str] = []
    finished: bool = False
    members: list[StoredMember] = []
    host_version: int = 0
    hosts: list[tuple[str, int, str]] = []
    progress: StoredProgress = StoredProgress()
    ledgers: list[StoredLedger] = []
    memory: StoredMemory = StoredMemory()
    plans_emitted: int = 0


class _Versioned(msgspec.Struct):
    version: int = 0


def encode(state: State) -> bytes:
    """Return the state as compressed JSON."""
    return zlib.compress(msgspec.json.encode(state), 1)


def decode(data: bytes) -> State:
    """Return a stored state. Raises `Unreadable`."""
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, _LARGEST)
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise Unreadable(f"the stored state has version {version}; this master reads version {VERSION}")
        return msgspec.json.decode(text, type=State)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"the stored state is damaged: {error}") from error
