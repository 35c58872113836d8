"""Checks of the arguments of a program.

A mistake is named with its value in the call that has it, and without a job, too: it should not
wait for the first save, or for the first run in a cluster.
"""

from __future__ import annotations

import math
from operator import index


def check_number(name: str, value: float, *, finite: bool = True) -> None:
    """Refuse what is no number, 0 or more. Raises `ValueError`."""
    try:
        is_valid = value >= 0 and (value < math.inf or not finite)
    except TypeError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"{name}={value!r:.80} must be a number, 0 or more")


def check_counts(*, least: int = 1, **numbers: int) -> None:
    """Refuse what is no whole number, `least` or more. Raises `ValueError`."""
    for name, value in numbers.items():
        try:
            is_valid = index(value) >= least
        except TypeError:
            is_valid = False
        if not is_valid:
            raise ValueError(f"{name}={value!r:.80} must be a whole number, {least} or more")


def check_text(name: str, value: object) -> None:
    """Refuse what is no text. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r:.80} must be a text, such as 'train'")


def check_function(name: str, value: object, purpose: str) -> None:
    """Refuse what cannot be called. Raises `ValueError`."""
    if not callable(value):
        raise ValueError(f"{name}={value!r:.80} must be a function that {purpose}")


def check_bytes(name: str, value: object) -> None:
    """Refuse what has no bytes. Raises `ValueError`."""
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"{name}={value!r:.80} must be bytes, such as b'1'") from error
