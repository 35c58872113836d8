"""The compact form of index sets in the status."""

from __future__ import annotations

import tracemalloc

import pytest
from elasticjob_api.indices import MAX_TEXT, IndexSet, format_indices, parse_indices, read_indices
from elasticjob_api.limits import MAX_INDEX, MAX_INDICES
from hypothesis import given
from hypothesis import strategies as st

SETS = st.frozensets(st.integers(0, 60)) | st.frozensets(st.integers(0, 100_000), max_size=30)


@given(SETS)
def test_a_written_set_is_read_back(indices: frozenset[int]) -> None:
    assert parse_indices(format_indices(indices)) == indices


@given(SETS)
def test_equal_sets_have_one_text(indices: frozenset[int]) -> None:
    assert format_indices(sorted(indices, reverse=True)) == format_indices(list(indices) * 2)


def test_a_large_job_without_holes_has_a_short_text() -> None:
    assert format_indices(range(10_000)) == "0-9999"
    assert format_indices({0, 2, 3, 4}) == "0,2-4"
    assert format_indices(()) == ""


@given(st.text(alphabet="0123456789-, x²", max_size=12))
def test_any_text_is_read_or_refused_with_the_text_in_the_message(text: str) -> None:
    try:
        read = parse_indices(text)
    except ValueError as error:
        refusal = str(error)
    else:
        assert parse_indices(format_indices(read)) == read
        return
    assert repr(text) in refusal


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1,,2", "1 ,2", "1-2-3", ",", "4-2", "²"])
def test_an_invalid_set_of_indices_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="indices"):
        parse_indices(text)


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5000000-8000000", "8000000 is above the highest index, 100000"),
        ("0-99999", "100000 indices are more than 20000"),
        ("0-19999,5", "20001 indices are more than 20000"),
        (",".join(["0-9"] * 20_000), "indices are more than 20000"),
        ("0," * MAX_INDICES * 10, "characters are more than"),
        ("9" * 5000, "is neither a number nor a range"),
        ("0-" + "9" * 12, "is neither a number nor a range"),
    ],
)
def test_a_set_beyond_the_bounds_is_not_expanded_and_the_bound_is_named(
    text: str, why: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=why) as refused:
            parse_indices(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert len(str(refused.value)) < 300
    assert read_indices(text) == frozenset()


def test_the_greatest_number_of_members_is_read() -> None:
    scattered = range(0, MAX_INDEX, MAX_INDEX // MAX_INDICES)
    assert parse_indices(format_indices(scattered)) == frozenset(scattered)
    assert len(format_indices(scattered)) <= MAX_TEXT


@given(SETS, SETS)
def test_sets_of_indices_are_compared_as_other_sets_are(
    one: frozenset[int], other: frozenset[int]
) -> None:
    left = IndexSet(one)
    right = IndexSet(other)
    assert list(left) == sorted(one)
    assert left & right == one & other
    assert left | right == one | other
    assert left - right == one - other
    assert left ^ right == one ^ other
    assert (len(left), bool(left), left.highest) == (len(one), bool(one), max(one, default=-1))
    assert (left <= right, left == right, hash(left)) == (one <= other, one == other, hash(one))
    assert [index for members in left.ranges() for index in members] == sorted(one)


@given(SETS, st.integers(-2, 62) | st.integers(MAX_INDEX - 1, 10**30))
def test_an_index_that_no_member_can_have_is_in_no_set(indices: frozenset[int], index: int) -> None:
    changed = IndexSet(indices).with_index(index)
    if 0 <= index <= MAX_INDEX:
        assert changed == indices | {index}
    else:
        assert changed == indices
        with pytest.raises(ValueError, match="is not from 0 to 100000"):
            IndexSet([index])
    assert changed.with_index(index, present=False) == indices - {index}
    assert index not in changed.with_index(index, present=False)
