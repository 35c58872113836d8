"""What a pod requests of a node's resources, by its template or spec. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity


def template_requests(template: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the requests of a pod of this template; empty if the template is invalid."""
    try:
        return pod_requests(template["spec"])
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
        return {}


def pod_requests(pod_spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return a pod's requests; a limit without a request counts, and init containers run first."""
    total: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in pod_spec.get("initContainers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return total


def _container_requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_quantity(value) for name, value in requests.items()}
