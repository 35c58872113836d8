"""Kubernetes quantities (500m, 2, 4Gi) as exact numbers, and what a container of a pod requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1024) ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}


def parse_quantity(value: int | float | str) -> Decimal:
    """Return the number a quantity stands for.

    Raises:
        ValueError: it is not a quantity.
    """
    text = str(value).strip()
    for suffix in sorted(_FACTORS, key=len, reverse=True):
        number = text.removesuffix(suffix) if suffix else text
        if suffix and number == text:
            continue
        try:
            parsed = Decimal(number)
        except InvalidOperation:
            continue
        if parsed.is_finite():
            return parsed * _FACTORS[suffix]
    raise ValueError(f"{value!r} is not a quantity such as 500m, 2 or 4Gi")


def format_memory(size: Decimal) -> str:
    """Return a whole number of bytes, in Mi where it is one."""
    size = size.to_integral_value()
    return f"{size // 1024**2}Mi" if size % 1024**2 == 0 else str(size)


def same_quantity(left: int | str | None, right: int | str | None) -> bool:
    """Whether two quantities are one number, however they are written."""
    if left is None or right is None:
        return left is right
    return parse_quantity(left) == parse_quantity(right)


def requested(containers: Iterable[Mapping[str, Any]], resource: str) -> Decimal:
    """Return what containers request together; a limit without a request is a request too, as in Kubernetes."""
    total = Decimal(0)
    for container in containers:
        resources = container.get("resources") or {}
        value = (resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource, 0))
        total += parse_quantity(value)
    return total
