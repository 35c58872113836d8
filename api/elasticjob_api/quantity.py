"""Kubernetes quantities (500m, 2, 4Gi, 2e9) as exact numbers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i)|([numkMGTPE])|([eE][+-]?[0-9]{1,3}))?"
)
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
}


def parse_quantity(value: int | float | str) -> Decimal:
    """Return the number that a quantity stands for.

    Raises:
        ValueError: it is not a quantity, or below 0.
    """
    match = _FORM.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a quantity such as 500m, 2 or 4Gi")
    number, binary, decimal, exponent = match.groups()
    if exponent:
        return Decimal(number + exponent)
    if binary:
        return Decimal(number) * _BINARY[binary]
    if decimal:
        return Decimal(number) * _DECIMAL[decimal]
    return Decimal(number)


def format_memory(size: Decimal) -> str:
    """Return a size in whole bytes, rounded up as in Kubernetes, or in Mi if that is exact."""
    size = size.to_integral_value(ROUND_CEILING)
    return f"{size // 1024**2}Mi" if size % 1024**2 == 0 else str(size)


def same_quantity(left: int | str | None, right: int | str | None) -> bool:
    """Return whether two quantities are the same number."""
    if left is None or right is None:
        return left is right
    return parse_quantity(left) == parse_quantity(right)
