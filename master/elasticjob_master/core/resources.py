"""Kubernetes quantities, and what a pod template requests: the auto-scaler's bounds are sums of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i)|([numkMGTPE])|([eE][+-]?[0-9]{1,3}))?")
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_SCALE = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
}


def quantity(value: int | str) -> Decimal:
    """Return the number a quantity such as `500m`, `2` or `4Gi` stands for. Raises ValueError for anything else."""
    match = _FORM.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity such as 500m, 2 or 4Gi")
    number, binary, decimal, exponent = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * (_BINARY[binary] if binary else _SCALE[decimal] if decimal else 1)


def requests(template: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod of this template requests, by resource; a limit without a request is requested too.

    Only what a scheduler adds up is read: the containers' resources. Malformed parts count as nothing; the API
    server refuses them when the pod is created.
    """
    total: dict[str, Decimal] = {}
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for container in containers if isinstance(containers, list) else ():
        resources = container.get("resources") if isinstance(container, Mapping) else None
        if not isinstance(resources, Mapping):
            continue
        asked = {**_mapping(resources.get("limits")), **_mapping(resources.get("requests"))}
        for name, value in asked.items():
            try:
                total[name] = total.get(name, Decimal(0)) + quantity(value)
            except ValueError:
                continue
    return total


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
