"""The compact form of index sets in the status."""

from __future__ import annotations

import pytest
from elasticjob_api.indices import format_indices, parse_indices
from hypothesis import given
from hypothesis import strategies as st

SETS = st.frozensets(st.integers(0, 60)) | st.frozensets(st.integers(0, 100_000), max_size=30)


@given(SETS)
def test_what_is_written_is_read_back(indices: frozenset[int]) -> None:
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
def test_what_is_no_set_of_indices_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="indices"):
        parse_indices(text)
