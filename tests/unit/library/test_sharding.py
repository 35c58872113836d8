"""Tests which boxes the ranks of a new world read, and who keeps copies of whose part."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from elasticjob._sharding import Numbers, Piece, Place, by_tensor, peers, reads
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def cuts(draw: st.DrawFn, shape: Numbers) -> list[Piece]:
    """Return a division of a tensor into boxes: each dimension is cut at any places, or at none."""
    sides = []
    for length in shape:
        places = draw(
            st.sets(st.integers(1, length - 1), max_size=4) if length > 1 else st.just(set())
        )
        sides.append(list(itertools.pairwise([0, *sorted(places), length])))
    return [
        Piece(7, shape, "int8", tuple(a for a, _ in box), tuple(b - a for a, b in box))
        for box in itertools.product(*sides)
    ]


@st.composite
def two_divisions(draw: st.DrawFn) -> tuple[dict[int, list[Piece]], list[Piece]]:
    """Return what each part of a world has of a tensor, also replicas, and another division."""
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    pieces = draw(cuts(shape))
    parts: dict[int, list[Piece]] = {}
    for piece in pieces:
        for part in draw(st.sets(st.integers(0, 5), min_size=1, max_size=3)):
            parts.setdefault(part, []).append(piece)
    return parts, draw(cuts(shape))


def elements(offsets: Numbers, sizes: Numbers) -> set[Numbers]:
    ranges = (range(start, start + size) for start, size in zip(offsets, sizes, strict=True))
    return set(itertools.product(*ranges))


@pytest.mark.guarantee("pytorch-sharded")
@given(two_divisions())
def test_any_division_into_any_other_reads_each_element_once_from_a_part_that_has_it(
    divisions: tuple[dict[int, list[Piece]], list[Piece]],
) -> None:
    parts, wanted = divisions
    held = by_tensor(parts)[7]
    for piece in wanted:
        found: Counter[Numbers] = Counter()
        for read in reads(piece, held):
            assert read.source in parts[read.part]
            box = elements(read.offsets, read.sizes)
            assert box <= elements(read.source.offsets, read.source.sizes)
            found.update(box)
        assert found == Counter(elements(piece.offsets, piece.sizes))


def test_a_part_that_is_missing_or_of_another_model_is_an_error() -> None:
    first = Piece(0, (4,), "int8", (0,), (2,))
    whole = Piece(0, (4,), "int8", (0,), (4,))
    with pytest.raises(ValueError, match="the state has 2 of the 4 elements"):
        reads(whole, [(0, first)])
    with pytest.raises(ValueError, match="build the same model in each world"):
        reads(Piece(0, (5,), "int8", (0,), (5,)), [(0, whole)])
    with pytest.raises(ValueError, match="build the same model in each world"):
        reads(Piece(0, (4,), "bool", (0,), (4,)), [(0, whole)])


places = st.lists(
    st.builds(Place, st.sampled_from("abc"), st.sampled_from("123")), min_size=1, max_size=12
)


@pytest.mark.guarantee("pytorch-sharded")
@given(places, st.data())
def test_each_part_is_copied_to_another_rank_that_stays_and_no_rank_gets_more_than_its_share(
    places: list[Place], data: st.DataObject
) -> None:
    leaving = data.draw(st.sets(st.integers(0, len(places) - 1)))
    found = peers(places, leaving)
    stay = set(range(len(places))) - leaving
    alone = {*stay} if len(stay) == 1 else set()
    assert found.keys() == (set(range(len(places))) - alone if stay else set())
    assert set(found.values()) <= stay
    assert all(rank != peer for rank, peer in found.items())
    of_staying = Counter(peer for rank, peer in found.items() if rank in stay)
    of_leaving = Counter(peer for rank, peer in found.items() if rank in leaving)
    assert set(of_staying.values()) <= {1}
    assert max(of_leaving.values(), default=0) <= -(-len(leaving) // max(1, len(stay)))


@pytest.mark.parametrize(
    "places",
    [
        [Place(node, f"{node}{pod}") for node in "abcd" for pod in "12"],
        [Place("a", "1"), Place("b", "2"), Place("a", "3"), Place("b", "4")],
        [Place(node, node) for node in "aabbbcc"],
    ],
)
def test_a_copy_is_on_another_node(places: list[Place]) -> None:
    assert all(places[a].node != places[b].node for a, b in peers(places).items())


def test_on_one_node_a_copy_is_in_another_pod() -> None:
    places = [Place("a", pod) for pod in "1122"]
    assert all(places[a].pod != places[b].pod for a, b in peers(places).items())
