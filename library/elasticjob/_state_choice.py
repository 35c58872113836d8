"""Chooses the newest checkpoint that the members of a world hold together in memory. Pure.

Each rank of the world that has saved a checkpoint has written one part of it. A checkpoint can be
restored if the present members hold all its parts, and one of them knows that all ranks had saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_MEMBERS = 128
"""Members of a world; their inventories are small values in the master."""
MAX_CHECKPOINTS = 3
"""Checkpoints in an inventory, the newest ones."""


@dataclass(frozen=True)
class Held:
    """What one member holds of a checkpoint.

    Attributes:
        parts: the number of all parts.
        whole: the parts that this member holds.
        complete: all ranks had saved it.
    """

    parts: int
    whole: frozenset[int]
    complete: bool


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
        sources: the position of a member that holds it, for each part.
        fetch: some members have to fetch parts.
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


def encode(inventory: Inventory) -> bytes:
    """Return an inventory as a small value; the parts are the bits of a number."""
    newest_names = sorted(inventory.checkpoints)[-MAX_CHECKPOINTS:]
    held = {name: inventory.checkpoints[name] for name in newest_names}
    checkpoints = {
        name: [each.parts, f"{sum(1 << part for part in each.whole):x}", each.complete]
        for name, each in held.items()
    }
    return json.dumps({"address": inventory.address, "checkpoints": checkpoints}).encode()


def decode(value: bytes) -> Inventory:
    """Return the inventory in a value."""
    content = json.loads(value)
    checkpoints = {}
    for name, (parts, bits, complete) in content["checkpoints"].items():
        whole = frozenset(part for part in range(parts) if int(bits, 16) >> part & 1)
        checkpoints[name] = Held(parts, whole, complete)
    return Inventory(content["address"], checkpoints)


def _choice(name: str, inventories: Sequence[Inventory]) -> Choice | None:
    everyone = [inventory.checkpoints.get(name) for inventory in inventories]
    present = [held for held in everyone if held is not None]
    parts = present[0].parts
    if any(held.parts != parts for held in present) or not any(held.complete for held in present):
        return None
    sources = []
    for part in range(parts):
        holders = [n for n, held in enumerate(everyone) if held is not None and part in held.whole]
        if len(holders) < len(inventories):  # the others must be able to fetch it
            holders = [holder for holder in holders if inventories[holder].address]
        if not holders:
            return None
        sources.append(holders[0])
    fetch = any(held is None or len(held.whole) < parts for held in everyone)
    return Choice(name, tuple(sources), fetch)
