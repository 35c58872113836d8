"""The values with which a world connects: those of one round, within their bounds."""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent
from elasticjob_master.core.sync import gloo_values
from elasticjob_master.core.sync.gloo_values import GlooValues


def test_a_later_round_begins_without_values_and_an_earlier_one_is_over() -> None:
    values = GlooValues()
    values.put(1, "global/0", b"a")
    assert values.get(1, "global/0") == b"a"
    assert values.get(2, "global/0") is None
    with pytest.raises(NotCurrent, match="round is 1; it is over, the present one is 2"):
        values.put(1, "global/0", b"b")
    with pytest.raises(NotCurrent):
        values.get(1, "global/0")
    with pytest.raises(NotCurrent):
        values.delete(1, "global/0")


def test_values_are_bounded_and_deleted_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_values, "MOST_BYTES", 20)
    monkeypatch.setattr(gloo_values, "MOST_KEYS", 2)
    values = GlooValues()
    values.put(1, "a", b"x" * 9)
    values.put(1, "b", b"x" * 9)
    values.put(1, "b", b"y" * 9)
    for key, value in (("c", b""), ("a", b"x" * 10)):
        with pytest.raises(LimitReached, match="20 bytes in 2 keys"):
            values.put(1, key, value)
    values.delete(1, "a")
    values.put(1, "c", b"x" * 9)
    with pytest.raises(BadRequest, match="key has 513 characters"):
        values.put(1, "k" * 513, b"")
    with pytest.raises(BadRequest, match="value has 524289 bytes"):
        values.put(1, "k", b"v" * (512 * 1024 + 1))
