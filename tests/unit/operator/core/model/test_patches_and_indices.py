"""Tests the merge patches of the operator's writes, and the indices of new members."""

from __future__ import annotations

from itertools import islice
from typing import Any

from elasticjob_api.indices import IndexSet
from elasticjob_operator.core.model.patches import difference
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=4),
)


@given(
    st.dictionaries(st.text(max_size=2), JSON, max_size=4),
    st.dictionaries(st.text(max_size=2), JSON, max_size=4),
)
def test_a_difference_merged_into_the_old_is_the_new(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        result = {key: value for key, value in target.items() if key not in patch}
        for key, value in patch.items():
            if isinstance(value, dict):
                old = target.get(key)
                result[key] = merged(old if isinstance(old, dict) else {}, value)
            elif value is not None:
                result[key] = value
        return result

    assert merged(before, difference(before, after)) == after
    assert difference(after, after) == {}


@given(st.frozensets(st.integers(0, 30)), st.integers(0, 20))
def test_new_members_get_the_lowest_free_indices(used: frozenset[int], number: int) -> None:
    found = set(islice(IndexSet(used).free(), number))
    assert len(found) == number
    assert not found & used
    assert all(index in found | used for index in range(max(found, default=0)))
