"""A history as records of a program."""

from __future__ import annotations

import sys

import pandas
import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_client.aio_job import history_records

HISTORY = job_pb2.History(
    samples=[job_pb2.Sample(time=1.5, round=2, world_size=3, step=4, samples_per_second=5.0)]
)


def test_a_sample_is_a_record_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    (record,) = history_records(HISTORY)
    expected = {"time": 1.5, "round": 2, "world_size": 3, "step": 4, "samples_per_second": 5.0}
    assert record == expected


def test_where_pandas_is_installed_records_are_a_frame() -> None:
    later = job_pb2.Sample(
        time=2.5, round=2, world_size=3, step=8, samples_per_second=6.0, metrics={"loss": 0.5}
    )
    frame = history_records(job_pb2.History(samples=[*HISTORY.samples, later]))
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["step"]) == [4, 8]
    assert frame["time"][0] == pandas.Timestamp("1970-01-01T00:00:01.5Z")
    assert frame["samples_per_second"].mean() == 5.5
    assert list(frame["loss"].dropna()) == [0.5], (
        "a sample without the metric has a number that is none"
    )


def test_a_job_that_has_just_begun_has_an_empty_frame_with_its_columns() -> None:
    frame = history_records(job_pb2.History())
    assert frame["step"].empty
    assert list(frame.columns) == ["time", "round", "world_size", "step", "samples_per_second"]
