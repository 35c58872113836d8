"""In-place resize of a pod's CPU and memory (KEP-1287). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

from elasticjob_api.quantity import parse_quantity

from elasticjob_localcluster.node.pod_model import Json, Pod
from elasticjob_localcluster.node.pod_status import Record, Running

Conditions = dict[str, tuple[str, str]]


def resize(
    pod: Pod,
    records: list[Record],
    *,
    allocatable: Mapping[str, str],
    elsewhere: Mapping[str, Decimal],
    usage: Callable[[str], int],
) -> tuple[list[Record], Conditions]:
    """Return the containers with the resources they may have now, and the conditions that tell what is outstanding.

    Args:
        pod: whose spec says what is wanted.
        records: its containers with what is enforced, in the order of the spec.
        allocatable: what the node has.
        elsewhere: what the node's other pods have been given.
        usage: the bytes of memory that a container, by name, uses now.
    """
    wanted = {container["name"]: container.get("resources") or {} for container in pod.containers}
    if all(record.resources == wanted[record.name] for record in records):
        return records, {}
    for name in ("cpu", "memory"):
        asked, has = total(pod.containers, "requests", name), parse_quantity(allocatable[name])
        if asked > has:
            message = f"Node didn't have enough capacity: {name}, requested: {asked}, capacity: {has}"
            return records, {"PodResizePending": ("Infeasible", message)}
        used = elsewhere.get(name, Decimal(0))
        if asked + used > has:
            message = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {has}"
            return records, {"PodResizePending": ("Deferred", message)}
    policies = {container["name"]: container.get("resizePolicy") or [] for container in pod.containers}
    refused: list[str] = []
    changed = []
    for record in records:
        limit = memory_limit(replace(record, resources=wanted[record.name]))
        in_place = isinstance(record.state, Running) and not needs_restart(policies[record.name], record, wanted)
        if (
            in_place
            and record.resources != wanted[record.name]
            and limit is not None
            and (used_now := usage(record.name)) > limit
        ):
            refused.append(f"{record.name}: memory limit ({limit}) below current usage ({used_now})")
            changed.append(record)
        else:
            changed.append(replace(record, resources=wanted[record.name]))
    return changed, {"PodResizeInProgress": ("Error", "; ".join(refused))} if refused else {}


def needs_restart(policies: list[Json], record: Record, wanted: Mapping[str, Json]) -> bool:
    """Say whether a container must be started anew to get the resources wanted for it."""
    kinds = ("requests", "limits")
    new = wanted[record.name]
    changed = {
        name
        for name in ("cpu", "memory")
        if any((record.resources.get(kind) or {}).get(name) != (new.get(kind) or {}).get(name) for kind in kinds)
    }
    return any(
        policy["resourceName"] in changed and policy["restartPolicy"] == "RestartContainer" for policy in policies
    )


def memory_limit(record: Record) -> int | None:
    """Return the enforced memory limit of a container in bytes."""
    limit = (record.resources.get("limits") or {}).get("memory")
    return None if limit is None else int(parse_quantity(limit))


def total(containers: Iterable[Json], kind: str, name: str) -> Decimal:
    """Return the sum of `resources.<kind>.<name>` over containers, those that do not say counting nothing."""
    amounts = ((container.get("resources") or {}).get(kind, {}).get(name, 0) for container in containers)
    return sum((parse_quantity(amount) for amount in amounts), Decimal(0))
