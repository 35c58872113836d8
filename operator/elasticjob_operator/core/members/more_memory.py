"""How much memory a member gets after it was killed for what it used."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from elasticjob_api.elasticjob import DEFAULT_MAX_MEMORY_FACTOR, ReplicaSpec
from elasticjob_api.quantity import format_memory, parse_quantity

from elasticjob_operator.core.model.observed import Pod
from elasticjob_operator.core.model.plan import Quantities


def is_lowered(
    spec: ReplicaSpec, pod: Pod, own: Mapping[str, int | str], by_plans: Mapping[str, int | str]
) -> bool:
    """Whether a pod has less memory than its template says, so that running out of it is not the member's fault.

    So it is, too, where the template says nothing and only a plan has (`by_plans`: what they have
    set for the role). Only once: what the member then gets is its `own`, and whatever takes that
    away from its pods, it counts.
    """
    template = _template_memory(spec)
    current = _pod_memory(pod)
    if template is None:
        return current is not None and "memory" in by_plans and "memory" not in own
    if current is None or current >= template:
        return False
    return "memory" not in own or parse_quantity(own["memory"]) < template


def increased_memory(spec: ReplicaSpec, pod: Pod) -> tuple[Quantities, str]:
    """Return twice the memory that the pod had, or less by `maxMemory`, at least the template's.

    And a phrase about it.
    The quantities are empty where more memory is not allowed or would not help.
    """
    current = _pod_memory(pod)
    template = _template_memory(spec)
    if current is None:
        return {}, "with the same memory: it had no bound, so it was the node that ran out of it"
    maximum = _max_memory(spec, template or current)
    bound = f"maxMemory {format_memory(maximum)}"
    more = max(min(current * 2, maximum), template or Decimal(0))
    if current >= more:
        return {}, f"with the same memory: {format_memory(current)} is all that {bound} allows"
    if more == template:
        bound = "its template's"
    return {
        "memory": format_memory(more)
    }, f"with {format_memory(more)} of memory instead of {format_memory(current)} ({bound})"


def most_memory(spec: ReplicaSpec) -> Decimal:
    """Return the most memory that restarts can have given a member; 0 if its template has none."""
    template = _template_memory(spec) or Decimal(0)
    return max(template, _max_memory(spec, template))


def _max_memory(spec: ReplicaSpec, template: Decimal) -> Decimal:
    return (
        template * DEFAULT_MAX_MEMORY_FACTOR
        if spec.max_memory is None
        else parse_quantity(spec.max_memory)
    )


def _template_memory(spec: ReplicaSpec) -> Decimal | None:
    resources = spec.template["spec"]["containers"][0].get("resources") or {}
    return _memory(resources.get("requests") or {}, resources.get("limits") or {})


def _pod_memory(pod: Pod) -> Decimal | None:
    containers = pod.spec.containers
    return (
        _memory(containers[0].resources.requests, containers[0].resources.limits)
        if containers
        else None
    )


def _memory(requests: Mapping[str, int | str], limits: Mapping[str, int | str]) -> Decimal | None:
    amount = limits.get("memory") or requests.get("memory")
    return None if amount is None else parse_quantity(amount)
