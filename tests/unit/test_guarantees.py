"""docs/guarantees.md lists only promises that have tests."""

from __future__ import annotations

import pytest

from tools import guarantees


def test_every_guarantee_has_a_test_and_every_marker_a_guarantee() -> None:
    assert "## Faults" in guarantees.page()


def test_a_guarantee_without_a_test_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "_markers", lambda: iter(()))
    with pytest.raises(guarantees.GuaranteesError, match="has no test"):
        guarantees.page()
