"""Times of the API (RFC 3339 in UTC) as seconds since 1970 and back: arithmetic only, the core knows no clock."""

from __future__ import annotations

from calendar import timegm

_DAY = 86_400


def format_time(seconds: float) -> str:
    """Return the API's text for a time, cut to whole seconds."""
    days, rest = divmod(int(seconds), _DAY)
    # Civil date of a day number, counted in 400-year cycles of years that begin in March.
    cycle, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day_of_month = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * cycle + (month <= 2)
    return f"{year:04}-{month:02}-{day_of_month:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def parse_time(text: str) -> float:
    """Return the seconds of a time as the API server writes it, with or without a fraction.

    Raises:
        ValueError: the text is not such a time.
    """
    date, _, clock = text.removesuffix("Z").partition("T")
    year, month, day = (int(part) for part in date.split("-"))
    hour, minute, second = clock.split(":")
    return timegm((year, month, day, int(hour), int(minute), 0)) + float(second)
