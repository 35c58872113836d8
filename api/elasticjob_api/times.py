"""Converts times of the Kubernetes API (RFC 3339 in UTC) to seconds since 1970 and back."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Return the API's text for a time, truncated to whole seconds."""
    return _text(int(seconds), "seconds")


def format_micro_time(seconds: float) -> str:
    """Return the text of a MicroTime, which Leases and Events have."""
    return _text(seconds, "microseconds")


def parse_time(text: str) -> float:
    """Return the seconds of a time as the API server writes it, with or without a fraction.

    Raises:
        ValueError: the text is not such a time.
    """
    return datetime.fromisoformat(text).timestamp()


def time_or_none(text: str | None) -> float | None:
    """Return a time in seconds; None for an invalid text, which a status may contain."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _text(seconds: float, precision: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
