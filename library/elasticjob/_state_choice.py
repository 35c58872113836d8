"""Chooses the newest checkpoint that the members of a world hold together in memory. Pure.

Each rank of the world that has saved a checkpoint has written one part of it. A checkpoint can be
restored if the present members hold all its parts, and one of them knows that all ranks had saved.
Parts without files need no transfer: that of most ranks, if only rank 0 writes the model.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_CHECKPOINTS = 3
"""Checkpoints in an inventory, the newest ones."""
MOST_BYTES = 136 * 1024
"""The inventories of all members together: with their keys and the choice they fit into the
master's values.
"""
EMPTY = -1
"""In place of the member that holds a part: it has no files."""
CHILDREN = 8
"""Members that get a part from the same one: as many as an agent serves at a time."""
_USUAL = (
    b'{"address": "10.0.0.1:40000", "checkpoints": {"checkpoint-0000-0000000001-000000000100-000001'
    b'": [64, "ffffffffffffffff", true, "fffffffffffffffe"]}}'
)
"""What inventories have in common. It need not be sent with each."""


@dataclass(frozen=True)
class Held:
    """What one member holds of a checkpoint.

    Attributes:
        parts: the number of all parts.
        whole: the parts that this member holds.
        complete: all ranks had saved it.
        empty: those parts of `whole` that have no files.
    """

    parts: int
    whole: frozenset[int]
    complete: bool
    empty: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Inventory:
    """What one member holds in memory.

    Attributes:
        address: the address at which its agent gives parts to other members; None if it gives none.
        checkpoints: what it holds, by the name of the checkpoint.
    """

    address: str | None
    checkpoints: Mapping[str, Held]


@dataclass(frozen=True)
class Choice:
    """The checkpoint at which a world begins.

    Attributes:
        name: the name of the checkpoint.
        sources: the position of a member that holds it, for each part; or `EMPTY`.
        fetch: some members do not have all parts.
    """

    name: str
    sources: tuple[int, ...]
    fetch: bool


def newest(inventories: Sequence[Inventory], *, after: str) -> Choice | None:
    """Return the newest checkpoint that the members can have all together.

    The inventories are by position. Those that are not newer than the storage's (`after`) do not
    count.
    """
    found = {name for inventory in inventories for name in inventory.checkpoints if name > after}
    choices = (_choice(name, inventories) for name in sorted(found, reverse=True))
    return next(filter(None, choices), None)


def source(position: int, holder: int, addresses: Sequence[str | None]) -> int:
    """Return the position of the member from which one at a position gets a part that it lacks.

    The members are a tree with a member that holds the part at its root, so that the part spreads
    in few steps, and none gives it to many. One whose agent has no address gives nothing.
    """
    distance = (position - holder) % len(addresses)
    while distance > 0:
        distance = (distance - 1) // CHILDREN
        above = (holder + distance) % len(addresses)
        if addresses[above] is not None:
            return above
    return holder


def encode(inventory: Inventory, *, members: int) -> bytes:
    """Return an inventory as a value that is small enough for a world of so many members.

    The parts are the bits of a number. Old checkpoints are left out if it would be too large.
    """
    held = sorted(inventory.checkpoints.items())[-MAX_CHECKPOINTS:]
    while True:
        checkpoints = {
            name: [each.parts, _bits(each.whole), each.complete, _bits(each.empty)]
            for name, each in held
        }
        content = json.dumps({"address": inventory.address, "checkpoints": checkpoints})
        packer = zlib.compressobj(zdict=_USUAL)
        value = packer.compress(content.encode()) + packer.flush()
        if not held or len(value) <= MOST_BYTES // members:
            return value
        del held[0]


def decode(value: bytes) -> Inventory:
    """Return the inventory in a value."""
    content = json.loads(zlib.decompressobj(zdict=_USUAL).decompress(value))
    checkpoints = {
        name: Held(parts, _parts(whole), complete, _parts(empty))
        for name, (parts, whole, complete, empty) in content["checkpoints"].items()
    }
    return Inventory(content["address"], checkpoints)


def _bits(parts: frozenset[int]) -> str:
    return f"{sum(1 << part for part in parts):x}"


def _parts(bits: str) -> frozenset[int]:
    digits = reversed(f"{int(bits, 16):b}")
    return frozenset(part for part, digit in enumerate(digits) if digit == "1")


def _choice(name: str, inventories: Sequence[Inventory]) -> Choice | None:
    everyone = [inventory.checkpoints.get(name) for inventory in inventories]
    present = [held for held in everyone if held is not None]
    parts = present[0].parts
    if any(held.parts != parts for held in present) or not any(held.complete for held in present):
        return None
    empty = frozenset[int]().union(*(held.empty for held in present))
    sources = []
    for part in range(parts):
        if part in empty:
            sources.append(EMPTY)
            continue
        holders = [n for n, held in enumerate(everyone) if held is not None and part in held.whole]
        if len(holders) < len(inventories):  # the others must be able to fetch it
            holders = [holder for holder in holders if inventories[holder].address]
        if not holders:
            return None
        sources.append(holders[0])
    fetch = any(held is None or len(held.whole) < parts for held in everyone)
    return Choice(name, tuple(sources), fetch)
