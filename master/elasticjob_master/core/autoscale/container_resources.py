"""The resources of a pod template.

Those of the whole pod, and those of the container that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from elasticjob_api.quantity import parse_quantity


def pod_requests(template: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod of this template requests, by resource.

    A limit without a request counts as a request. Only the containers' resources are read, which
    the scheduler adds up. Malformed parts are skipped; the API server refuses them when the pod is
    created.
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
    """What the training container of a member may use: requested cores, memory limit in bytes.

    None: not set.
    """

    cpu: float | None = None
    memory: int | None = None

    def with_plan_resources(self, resources: Mapping[str, Any]) -> ContainerResources:
        """Return the resources with the values that a plan has set, which are request and limit at once."""
        cpu = _quantity(resources.get("cpu"))
        memory = _quantity(resources.get("memory"))
        return ContainerResources(
            self.cpu if cpu is None else float(cpu), self.memory if memory is None else int(memory)
        )


def training_container_resources(template: Mapping[str, Any]) -> ContainerResources:
    """Return the resources of the first container, which trains.

    A lone request or limit stands for both.
    """
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    resources = _mapping(first.get("resources") if isinstance(first, Mapping) else None)
    asked = _mapping(resources.get("requests"))
    limits = _mapping(resources.get("limits"))
    # The scheduler counts requests; a container is killed when it exceeds its limit.
    cpu = asked.get("cpu", limits.get("cpu"))
    memory = limits.get("memory", asked.get("memory"))
    return ContainerResources().with_plan_resources({"cpu": cpu, "memory": memory})


def _quantity(value: Any) -> Decimal | None:
    try:
        return None if value is None else parse_quantity(value)
    except ValueError:
        return None
