"""What a pod requests of a node's resources, by its template or spec. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api.elasticjob import ElasticJob, ReplicaStatus
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

RequestsByPlan = Callable[[Mapping[str, int | str]], dict[str, Decimal]]

NOTHING_PLANNED: Mapping[str, int | str] = {}
_INVALID = (KeyError, TypeError, AttributeError, ValueError, ArithmeticError)
"""What reading a template raises that the API server would refuse as a pod."""


def role_requests(job: ElasticJob, role: str) -> dict[str, Decimal]:
    """Return the requests of one member of a role; plans may have changed them."""
    status = job.status.replica_statuses.get(role, ReplicaStatus())
    return template_requests(job.spec.replica_specs[role].template, status.resources)


def template_requests(
    template: Mapping[str, Any], planned: Mapping[str, int | str] = NOTHING_PLANNED
) -> dict[str, Decimal]:
    """Return the requests of a pod of this template; empty if the template is invalid.

    Args:
        template: the pod template.
        planned: what plans have set for the training container, which is the first.
    """
    return template_requests_by_plan(template)(planned)


def template_requests_by_plan(template: Mapping[str, Any]) -> RequestsByPlan:
    """Return `template_requests` by what plans set; each container is read once for all plans."""
    try:
        by_plan = requests_by_plan(template["spec"])
    except _INVALID:
        return lambda planned: {}

    def with_plan(planned: Mapping[str, int | str]) -> dict[str, Decimal]:
        try:
            return by_plan(planned)
        except _INVALID:
            return {}

    return with_plan


def pod_requests(pod_spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what the scheduler and a ResourceQuota count for a pod.

    A limit without a request counts. Sidecars, which are init containers that are always restarted,
    run beside all that start after them; other init containers run one after another. What the pod
    itself requests counts instead of its containers.
    """
    return requests_by_plan(pod_spec)(NOTHING_PLANNED)


def requests_by_plan(pod_spec: Mapping[str, Any]) -> RequestsByPlan:
    """Return the requests of a pod by what plans set; each container is read once for all plans."""
    beside: dict[str, Decimal] = {}
    starting: dict[str, Decimal] = {}
    for container in pod_spec.get("initContainers") or ():
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            beside = _sum(beside, requests)
            requests = {}
        starting = _most(starting, _sum(beside, requests))
    first, *others = pod_spec.get("containers") or ({},)
    of_first = _container_requests(first)
    for container in others:
        beside = _sum(beside, _container_requests(container))

    def with_plan(planned: Mapping[str, int | str]) -> dict[str, Decimal]:
        running = _sum(beside, {**of_first, **_quantities(planned)})
        return _with_pod_level(_most(starting, running), pod_spec)

    return with_plan


def _with_pod_level(
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


def _sum(left: Mapping[str, Decimal], right: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {**left, **{name: left.get(name, Decimal(0)) + right[name] for name in right}}


def _most(left: Mapping[str, Decimal], right: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {**left, **{name: max(left.get(name, Decimal(0)), right[name]) for name in right}}


def _container_requests(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(values: Mapping[str, Any] | None) -> dict[str, Decimal]:
    return {name: parse_quantity(value) for name, value in (values or {}).items()}
