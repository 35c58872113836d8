"""Series of values for programs: a DataFrame where pandas is installed, else a list of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Records = Any
"""A `pandas.DataFrame`, or a list of dictionaries where pandas is not installed."""


def as_frame(records: Iterable[Mapping[str, Any]]) -> Records:
    """Return records as what a program works with."""
    found = list(map(dict, records))
    try:
        import pandas
    except ModuleNotFoundError:
        return found
    return pandas.DataFrame(found)


def history_records(history: Any) -> Records:
    """Return the samples of a master's `History`; each metric is a field, `metric.NAME` where a sample has NAME."""
    return as_frame(map(_record, history.samples))


def _record(sample: Any) -> dict[str, Any]:
    fields = {field.name: getattr(sample, field.name) for field in sample.DESCRIPTOR.fields}
    metrics = dict(fields.pop("metrics", {}))  # masters of an earlier version have none
    return fields | {f"metric.{name}" if name in fields else name: value for name, value in metrics.items()}
