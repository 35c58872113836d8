"""A history as records of a program."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_client.records import as_frame, history_records

HISTORY = job_pb2.History(samples=[job_pb2.Sample(time=1.5, round=2, world_size=3, step=4, samples_per_second=5.0)])


def test_a_sample_is_a_record_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    (record,) = history_records(HISTORY)
    expected = {"time": 1.5, "round": 2, "world_size": 3, "step": 4, "samples_per_second": 5.0}
    assert record == expected


def test_where_pandas_is_installed_records_are_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
            self.records = records

    pandas = ModuleType("pandas")
    pandas.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = as_frame([{"a": 1}])
    assert isinstance(frame, Frame)
    assert frame.records == [{"a": 1}]
