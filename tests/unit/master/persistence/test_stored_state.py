"""The encoding of the stored state."""

from __future__ import annotations

import pytest
from elasticjob_master.persistence import stored_state
from elasticjob_master.persistence.stored_state import StoredHolder, StoredLedger
from hypothesis import given
from hypothesis import strategies as st


def test_a_stored_state_comes_back_as_it_was() -> None:
    holder = StoredHolder("u", "a request", latest=[1, 1])
    ledger = StoredLedger("d", 10, 2, 3, fresh=4, waiting=[2, 1], holders=[holder])
    kept = stored_state.StoredState(
        job_uid="x",
        round=3,
        world=["u"],
        ledgers=[ledger],
        memory={"rates": {"2": 1.5}, "asked": 2},
    )
    assert stored_state.decode(stored_state.encode(kept)) == kept


@pytest.mark.guarantee("master-state-too-large")
@given(st.binary(max_size=200))
def test_damaged_bytes_raise_the_expected_error_and_no_other(data: bytes) -> None:
    with pytest.raises(stored_state.UnreadableState):
        stored_state.decode(data)
