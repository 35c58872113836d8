"""Quantities of the Kubernetes API, such as `1.5`, `250m`, `64Mi` or `2e9`, as exact numbers."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

_SUFFIXES = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_SUFFIXES |= {suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_SUFFIXES |= {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


def parse(quantity: str | int | float) -> Decimal:
    """Return the number a quantity stands for.

    Raises:
        ValueError: naming the text, when it is not a quantity.
    """
    text = str(quantity).strip()
    number = text.rstrip("numkKMGTPEi") or text
    suffix = text[len(number) :]
    try:
        return Decimal(number) * _SUFFIXES[suffix]
    except (KeyError, InvalidOperation):
        raise ValueError(f"not a quantity: {text!r} (expected for example 500m, 2 or 64Mi)") from None


def total(containers: Iterable[dict[str, Any]], kind: str, name: str) -> Decimal:
    """Return the sum of `resources.<kind>.<name>` over containers, those that do not say counting nothing."""
    amounts = ((container.get("resources") or {}).get(kind, {}).get(name, 0) for container in containers)
    return sum((parse(amount) for amount in amounts), Decimal(0))
