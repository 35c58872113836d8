"""Checks of the arguments that a Python program gives, which may have any type.

Each error is a `WrongArgument` that names the argument, its value, and what to give. A name that
does not exist gets a suggestion, on the command line as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from elasticjob_client.errors import WrongArgument


def similar(name: str, known: Iterable[str]) -> str:
    """Return the known name that a user may mean by one that does not exist; empty if none is."""
    return next(iter(get_close_matches(name, list(known), n=1)), "")


def check_text(name: str, value: object, example: str) -> None:
    """Refuse what is no text. Raises `WrongArgument`."""
    if not isinstance(value, str):
        raise WrongArgument(f"{name}: {value!r:.40} is not a text; give one such as {example!r}")


def check_sequence(name: str, value: object, example: object) -> None:
    """Refuse what is no sequence, or is a text, which is one of letters. Raises `WrongArgument`."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise WrongArgument(
            f"{name}: {value!r:.40} is not a sequence; give one such as {example!r}"
        )


def check_whole(name: str, value: object, most: int) -> None:
    """Refuse what is neither a whole number from 0 to `most` nor None. Raises `WrongArgument`."""
    if value is not None and not (type(value) is int and 0 <= value <= most):
        raise WrongArgument(f"{name}: {value!r:.40} is not a whole number from 0 to {most}")


def check_seconds(name: str, value: object) -> None:
    """Refuse what is neither a number of seconds nor None. Raises `WrongArgument`."""
    if value is not None and type(value) not in (int, float):
        raise WrongArgument(
            f"{name}: {value!r:.40} is not a number of seconds; give one such as 60"
        )
