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
    """Return a pod's requests; a limit without a request counts, and init containers run first.

    What the pod itself requests counts instead of the sum of its containers.
    """
    total: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in pod_spec.get("initContainers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return with_pod_level(total, pod_spec)


def with_pod_level(
    containers: Mapping[str, Decimal], pod_spec: Mapping[str, Any]
) -> dict[str, Decimal]:
    """Return the requests of a pod by those of its containers: its own count, where it has some.

    As the API server does: a limit of the pod without a request is one, if no container has one.
    """
    own = pod_spec.get("resources") or {}
    limits = _quantities(own.get("limits"))
    first = {name: amount for name, amount in limits.items() if not containers.get(name)}
    return {**containers, **first, **_quantities(own.get("requests"))}


def set_for_whole_pod(template: Mapping[str, Any]) -> frozenset[str]:
    """Return the resources that a template sets in `spec.resources`, for all containers together.

    A plan sets those of the training container, so it cannot set these.
    """
    own = (template.get("spec") or {}).get("resources") or {}
    return frozenset({**(own.get("limits") or {}), **(own.get("requests") or {})})


def _container_requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(values: Mapping[str, Any] | None) -> dict[str, Decimal]:
    return {name: parse_quantity(value) for name, value in (values or {}).items()}
