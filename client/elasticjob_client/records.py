"""Converts a master's history and report to Python objects."""

from __future__ import annotations

from typing import Any

Records = Any
"""A `pandas.DataFrame`, or a list of dictionaries if pandas is not installed."""


def history_records(history: Any) -> Records:
    """Return the samples of a master's `History`.

    Each metric is a field. A metric with the name of another field is `metric.NAME`.
    """
    records = list(map(_record, history.samples))
    try:
        import pandas
    except ModuleNotFoundError:
        return records
    # The frame of a new job, which has no samples, has the same columns.
    fields = [
        field.name for field in history.DESCRIPTOR.fields_by_name["samples"].message_type.fields
    ]
    return pandas.DataFrame(
        records, columns=None if records else [name for name in fields if name != "metrics"]
    )


def _record(sample: Any) -> dict[str, Any]:
    fields = {field.name: getattr(sample, field.name) for field in sample.DESCRIPTOR.fields}
    metrics = dict(fields.pop("metrics", {}))  # stored by a master of an earlier version
    return fields | {
        f"metric.{name}" if name in fields else name: value for name, value in metrics.items()
    }


def report_record(message: Any) -> dict[str, Any]:
    """Return a master's `Report` as dictionaries, lists and numbers, by the names of its fields."""
    record: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            record[field.name] = dict(value)
        elif field.message_type is None:
            record[field.name] = value
        elif field.is_repeated:
            record[field.name] = [report_record(each) for each in value]
        else:
            record[field.name] = report_record(value)
    return record
