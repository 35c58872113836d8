"""Reads from a pod template the resources of the container that trains.

The API server refuses malformed parts when the pod is created, so they are skipped here. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api.quantity import parse_quantity

from elasticjob_master.core.autoscale.job_scaling import ContainerResources


def with_plan_resources(
    known: ContainerResources, resources: Mapping[str, Any]
) -> ContainerResources:
    """Return the resources with a plan's values, each of which is request and limit at once."""
    cpu = _quantity(resources.get("cpu"))
    memory = _quantity(resources.get("memory"))
    return ContainerResources(
        known.cpu if cpu is None else float(cpu), known.memory if memory is None else int(memory)
    )


def training_container_resources(template: Mapping[str, Any]) -> ContainerResources:
    """Return the resources of the first container, which trains.

    The scheduler counts requests, but a container is killed when it exceeds its memory limit. If
    only one of the two is set, it stands for both.
    """
    requests, limits = _requests_and_limits(template)
    cpu = requests.get("cpu", limits.get("cpu"))
    memory = limits.get("memory", requests.get("memory"))
    return with_plan_resources(ContainerResources(), {"cpu": cpu, "memory": memory})


def memory_limit(template: Mapping[str, Any]) -> int | None:
    """Return the memory limit of the first container in bytes; None without one."""
    _, limits = _requests_and_limits(template)
    limit = _quantity(limits.get("memory"))
    return None if limit is None else int(limit)


def training_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first container; an empty one if the template has none."""
    containers = _mapping(template.get("spec")).get("containers")
    return _mapping(containers[0] if containers and isinstance(containers, list) else None)


def _requests_and_limits(
    template: Mapping[str, Any],
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    resources = _mapping(training_container(template).get("resources"))
    return _mapping(resources.get("requests")), _mapping(resources.get("limits"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _quantity(value: Any) -> Decimal | None:
    try:
        return None if value is None else parse_quantity(value)
    except ValueError:
        return None
