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
    """Return the samples of a master's `History`."""
    fields = [field.name for field in history.DESCRIPTOR.fields_by_name["samples"].message_type.fields]
    return as_frame({name: getattr(sample, name) for name in fields} for sample in history.samples)
