"""In-place resize of a pod's CPU and memory (KEP-1287). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_localcluster.node.container_status import ContainerStatus, Running
from elasticjob_localcluster.node.pod_model import Pod

Conditions = dict[str, tuple[str, str]]


def resize(
    pod: Pod,
    statuses: list[ContainerStatus],
    *,
    allocatable: Mapping[str, str],
    allocated_to_others: Mapping[str, Decimal],
    usage: Callable[[str], int],
) -> tuple[list[ContainerStatus], Conditions]:
    """Return the containers with their new resources, and the conditions of a pending resize.

    The spec has the desired resources, and the statuses, in its order, the enforced ones. `usage`
    returns the bytes of memory that a container, by name, uses now.
    """
    desired = {container["name"]: container.get("resources") or {} for container in pod.containers}
    if all(status.resources == desired[status.name] for status in statuses):
        return statuses, {}
    for name in ("cpu", "memory"):
        requested = total(pod.containers, "requests", name)
        capacity = parse_quantity(allocatable[name])
        if requested > capacity:
            message = (
                f"Node didn't have enough capacity: {name}, "
                f"requested: {requested}, capacity: {capacity}"
            )
            return statuses, {"PodResizePending": ("Infeasible", message)}
        used = allocated_to_others.get(name, Decimal(0))
        if requested + used > capacity:
            message = (
                f"Node didn't have enough resource: {name}, "
                f"requested: {requested}, used: {used}, capacity: {capacity}"
            )
            return statuses, {"PodResizePending": ("Deferred", message)}
    policies = {
        container["name"]: container.get("resizePolicy") or [] for container in pod.containers
    }
    refused: list[str] = []
    changed = []
    for status in statuses:
        limit = memory_limit(replace(status, resources=desired[status.name]))
        in_place = isinstance(status.state, Running) and not needs_restart(
            policies[status.name], status, desired
        )
        if (
            in_place
            and status.resources != desired[status.name]
            and limit is not None
            and (used_now := usage(status.name)) > limit
        ):
            refused.append(
                f"{status.name}: memory limit ({limit}) below current usage ({used_now})"
            )
            changed.append(status)
        else:
            changed.append(replace(status, resources=desired[status.name]))
    return changed, {"PodResizeInProgress": ("Error", "; ".join(refused))} if refused else {}


def needs_restart(
    policies: list[Json], status: ContainerStatus, desired: Mapping[str, Json]
) -> bool:
    """Return whether a container must be restarted to get its desired resources."""
    kinds = ("requests", "limits")
    new = desired[status.name]
    changed = {
        name
        for name in ("cpu", "memory")
        if any(
            (status.resources.get(kind) or {}).get(name) != (new.get(kind) or {}).get(name)
            for kind in kinds
        )
    }
    return any(
        policy["resourceName"] in changed and policy["restartPolicy"] == "RestartContainer"
        for policy in policies
    )


def memory_limit(status: ContainerStatus) -> int | None:
    """Return the enforced memory limit of a container in bytes."""
    limit = (status.resources.get("limits") or {}).get("memory")
    return None if limit is None else int(parse_quantity(limit))


def total(containers: Iterable[Json], kind: str, name: str) -> Decimal:
    """Return the sum of `resources.<kind>.<name>`; a container without the field counts as 0."""
    amounts = (
        (container.get("resources") or {}).get(kind, {}).get(name, 0) for container in containers
    )
    return sum((parse_quantity(amount) for amount in amounts), Decimal(0))
