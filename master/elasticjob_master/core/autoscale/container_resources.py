"""What a pod template requests: the auto-scaler's bounds are sums of these, its rules look at one container's share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from elasticjob_api.quantity import parse_quantity


def pod_requests(template: Mapping[str, Any]) -> dict[str, Decimal]:
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


@dataclass(frozen=True)
class ContainerResources:
    """What the training container of one member may use: cores it requests, bytes at which it is killed; None: open."""

    cpu: float | None = None
    memory: int | None = None

    def with_plan_resources(self, resources: Mapping[str, Any]) -> ContainerResources:
        """Return the share with what a plan has set, which are request and limit at once."""
        cpu, memory = _quantity(resources.get("cpu")), _quantity(resources.get("memory"))
        return ContainerResources(
            self.cpu if cpu is None else float(cpu), self.memory if memory is None else int(memory)
        )


def training_container_resources(template: Mapping[str, Any]) -> ContainerResources:
    """Return the share of the first container, which is the one that trains; a request without a limit counts too."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    resources = _mapping(first.get("resources") if isinstance(first, Mapping) else None)
    asked, limits = _mapping(resources.get("requests")), _mapping(resources.get("limits"))
    # The scheduler counts requests; what a member is killed for is the limit.
    cpu, memory = asked.get("cpu", limits.get("cpu")), limits.get("memory", asked.get("memory"))
    return ContainerResources().with_plan_resources({"cpu": cpu, "memory": memory})


def _quantity(value: Any) -> Decimal | None:
    try:
        return None if value is None else parse_quantity(value)
    except ValueError:
        return None
