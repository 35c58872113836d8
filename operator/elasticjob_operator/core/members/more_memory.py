"""Computes how much memory a member gets after it was killed for its memory."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from elasticjob_api.elasticjob import DEFAULT_MAX_MEMORY_FACTOR, ReplicaSpec
from elasticjob_api.pod_requests import set_for_whole_pod
from elasticjob_api.quantity import format_memory, parse_quantity

from elasticjob_operator.core.model.plan import Quantities
from elasticjob_operator.core.model.pod import Pod


def is_lowered(
    spec: ReplicaSpec, pod: Pod, own: Mapping[str, int | str], by_plans: Mapping[str, int | str]
) -> bool:
    """Return whether plans have lowered a pod's memory, so that its restart is not counted.

    That is so if it has less than its template says, or if only plans have set it (`by_plans`). It
    is so once: the memory that the member then gets is its `own`, and later failures count.
    """
    template = _template_memory(spec)
    current = _pod_memory(pod)
    if template is None:
        return current is not None and "memory" in by_plans and "memory" not in own
    if current is None or current >= template:
        return False
    return "memory" not in own or parse_quantity(own["memory"]) < template


def increased_memory(spec: ReplicaSpec, pod: Pod) -> tuple[Quantities, str]:
    """Return twice the pod's memory, within the template's and `maxMemory`, and a phrase about it.

    The quantities are empty if more memory is not allowed or would not help.
    """
    if "memory" in set_for_whole_pod(spec.template):
        return {}, "with the same memory: template.spec.resources has that of the whole pod"
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


def _max_memory(spec: ReplicaSpec, template: Decimal) -> Decimal:
    if spec.max_memory is None:
        return template * DEFAULT_MAX_MEMORY_FACTOR
    return parse_quantity(spec.max_memory)


def _template_memory(spec: ReplicaSpec) -> Decimal | None:
    resources = spec.template["spec"]["containers"][0].get("resources") or {}
    return _memory(resources.get("requests") or {}, resources.get("limits") or {})


def _pod_memory(pod: Pod) -> Decimal | None:
    resources = pod.container.resources
    return _memory(resources.requests, resources.limits)


def _memory(requests: Mapping[str, int | str], limits: Mapping[str, int | str]) -> Decimal | None:
    amount = limits.get("memory") or requests.get("memory")
    return None if amount is None else parse_quantity(amount)
