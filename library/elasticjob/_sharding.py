"""Plans where the parts of a divided state are kept, and how other ranks divide them. Pure.

A part is what one rank has of the state: a piece of each tensor. A piece is a box of its tensor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A box of a tensor.

    Attributes:
        tensor: the number of the tensor, the same in all ranks.
        shape: the shape of the whole tensor.
        dtype: the type of its elements.
        offsets: where the box begins in the tensor.
        sizes: its lengths.
        start: its first byte in the part.
    """

    tensor: int
    shape: Numbers
    dtype: str
    offsets: Numbers
    sizes: Numbers
    start: int = 0


@dataclass(frozen=True)
class Read:
    """A box that two pieces have in common.

    Attributes:
        part: the part of the piece from which it is read.
        source: that piece.
        offsets: where the box begins in its tensor.
        sizes: its lengths.
    """

    part: int
    source: Piece
    offsets: Numbers
    sizes: Numbers


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    node: str
    pod: str


def by_tensor(parts: Mapping[int, Iterable[Piece]]) -> dict[int, list[tuple[int, Piece]]]:
    """Return the pieces of each tensor with their parts; of equal boxes (replicas) the first."""
    found: dict[int, dict[tuple[Numbers, Numbers], tuple[int, Piece]]] = {}
    for part, pieces in parts.items():
        for piece in pieces:
            boxes = found.setdefault(piece.tensor, {})
            boxes.setdefault((piece.offsets, piece.sizes), (part, piece))
    return {tensor: list(boxes.values()) for tensor, boxes in found.items()}


def reads(wanted: Piece, held: Sequence[tuple[int, Piece]]) -> list[Read]:
    """Return what to read for a piece, each of its elements once.

    The boxes that are held differ from each other, so they have no element in common.

    Raises ValueError if they are of another tensor, or do not have all elements.
    """
    found = []
    for part, piece in held:
        if (piece.shape, piece.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"tensor {wanted.tensor} has shape {wanted.shape} and type {wanted.dtype}, and in "
                f"the state it has {piece.shape} and {piece.dtype}: build the same model in each "
                "world"
            )
        box = _common(wanted, piece)
        if box is not None:
            found.append(Read(part, piece, *box))
    elements = sum(math.prod(read.sizes) for read in found)
    if elements != math.prod(wanted.sizes):
        raise ValueError(
            f"tensor {wanted.tensor}: the state has {elements} of the {math.prod(wanted.sizes)} "
            "elements that this rank needs"
        )
    return found


def _common(one: Piece, other: Piece) -> tuple[Numbers, Numbers] | None:
    starts = tuple(map(max, one.offsets, other.offsets))
    ends = tuple(min(a, b) for a, b in zip(_ends(one), _ends(other), strict=True))
    sizes = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return (starts, sizes) if all(size > 0 for size in sizes) else None


def _ends(piece: Piece) -> Numbers:
    return tuple(map(sum, zip(piece.offsets, piece.sizes, strict=True)))


def peers(places: Sequence[Place], leaving: Collection[int] = ()) -> dict[int, int]:
    """Return the rank that gets a copy of each rank's part.

    Each rank that stays gets one copy from those that stay, of another node or pod where possible.
    The parts of those that leave are divided among them. None of them is alone with its part.
    """
    stay = [rank for rank in range(len(places)) if rank not in leaving]
    found: dict[int, int] = {}
    if len(stay) > 1:
        ring = sorted(stay, key=lambda rank: (places[rank].node, places[rank].pod, rank))
        nodes = Counter(places[rank].node for rank in stay)
        pods = Counter((places[rank].node, places[rank].pod) for rank in stay)
        shifts = {1, len(ring) // 2, len(ring) - 1, max(pods.values()), max(nodes.values())}
        shifts -= {len(ring)}
        shift = min(sorted(shifts), key=lambda shift: _together(places, ring, shift))
        found = dict(zip(ring, ring[shift:] + ring[:shift], strict=True))
    if stay:
        gone = sorted(set(leaving))
        found.update((rank, stay[number % len(stay)]) for number, rank in enumerate(gone))
    return found


def _together(places: Sequence[Place], ring: list[int], shift: int) -> tuple[int, int, int]:
    """Return how many ranks have their copy in the same pod, on the same node, in the next rank.

    The collectives of Gloo send to the next rank, which may have to start again if a process is
    killed while it sends.
    """
    pairs = list(zip(ring, ring[shift:] + ring[:shift], strict=True))
    return (
        sum(places[one] == places[other] for one, other in pairs),
        sum(places[one].node == places[other].node for one, other in pairs),
        sum((one + 1) % len(places) == other for one, other in pairs),
    )
