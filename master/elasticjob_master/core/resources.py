"""What a pod template requests: the auto-scaler's bounds are sums of these."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api.quantity import parse_quantity


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
                total[name] = total.get(name, Decimal(0)) + parse_quantity(value)
            except ValueError:
                continue
    return total


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
