"""Finds statuses that cannot be valid, so that the operator does not act on them.

A status is the operator's memory, but other programs may write it, too. The schema bounds every
field by itself. This module checks how the fields fit the job's spec, its pods and each other.
While a status is invalid the operator leaves the job alone: it creates and deletes no pod, and sets
the condition Stalled. It resumes when the status is valid again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import parse_indices
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.resources import amount_error
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import time_or_none

from elasticjob_operator.core.conditions import (
    STALLED,
    condition_of,
    with_condition,
    without_conditions,
)
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, Decision, EmitEvent
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import ACTIVE_PHASES

_REASON = "StatusInvalid"
_MAX_QUANTITY = 2**63 - 1
"""The highest amount that Kubernetes can represent."""
_MAX_SHOWN = 60
"""Characters of an invalid value that the message quotes."""


def decision_on_invalid_status(observed: Observed, now: float) -> Decision | None:
    """Return the decision to leave a job with an invalid status alone; None if the status is valid.

    When it has become valid, the decision is to clear the condition.
    """
    job = observed.job
    stalled = condition_of(job.status, STALLED)
    was_invalid = stalled is not None and (stalled.status, stalled.reason) == ("True", _REASON)
    problem = _problem(observed)
    if not problem and not was_invalid:
        return None
    if not problem:
        status = without_conditions(job, job.status, (STALLED,), "StatusValid", "", now)
        return Decision((*patches.job_status(job, status),))
    message = f"the operator leaves the job alone: {problem}"
    status = with_condition(job, job.status, STALLED, True, _REASON, message, now)
    actions: list[Action] = [*patches.job_status(job, status)]
    if actions:
        actions.append(EmitEvent(_REASON, message, warning=True))
    return Decision(tuple(actions))


def _problem(observed: Observed) -> str:
    """Return the first field that cannot be valid, why, and the remedy; empty if all can."""
    job = observed.job
    if job.status.phase is None:
        return ""
    if problem := next(_job_problems(observed), ""):
        command = f"kubectl patch elasticjob {job.metadata.name} --subresource=status --type=merge"
        return (
            f"{problem}; correct the field, or delete the status, so that the operator writes a "
            f"new one: {command} -p '{{\"status\":null}}'"
        )
    for plan in observed.plans:
        if plan.status.phase in ACTIVE_PHASES and (problem := next(_plan_problems(job, plan), "")):
            name = plan.metadata.name
            return f"ScalePlan {name}: {problem}; correct the field, or delete the ScalePlan"
    return ""


def _job_problems(observed: Observed) -> Iterator[str]:
    job = observed.job
    for name in ("start_time", "completion_time"):
        yield from _time_problem(getattr(job.status, name), f"status.{_field(name)}")
    for role in job.spec.replica_specs:
        yield from _role_problems(observed, role)
    masters = [pod.incarnation for pod in observed.masters]
    yield from _counter_problem(
        job.status.master.incarnations, max(masters, default=-1) + 1, "status.master.incarnations"
    )


def _role_problems(observed: Observed, role: str) -> Iterator[str]:
    path = f"status.replicaStatuses.{role}"
    replica = observed.job.status.replica_statuses.get(role)
    if replica is None:
        yield f"{path} is missing"
        return
    for name in ("indices", "succeeded_indices", "started_indices"):
        yield from _indices_problem(getattr(replica, name), f"{path}.{_field(name)}")
    # Only the first problem is read, so from here on the indices can be parsed.
    if replica.desired and not replica.indices:
        yield f"{path}.indices is empty, but desired is {replica.desired}"
    pods = observed.pods_of(role)
    # A suspended role has no pods, but the names of its earlier pods must not be used again.
    by_index = (replica.incarnation_by_index, replica.uncounted_by_index, replica.restarts_by_index)
    used = [int(index) for counts in by_index for index in counts]
    highest = max([pods.highest_index, parse_indices(replica.started_indices).highest, *used])
    if replica.highest_index < highest:
        yield f"{path}.highestIndex: {replica.highest_index} is below {highest}, the index of a pod"
    newest = max([pods.incarnations, *replica.incarnation_by_index.values()])
    yield from _counter_problem(replica.incarnations, newest, f"{path}.incarnations")
    yield from _quantity_problems(replica.resources, f"{path}.resources")
    for index, resources in replica.resources_by_index.items():
        yield from _quantity_problems(resources, f"{path}.resourcesByIndex.{index}")


def _plan_problems(job: ElasticJob, plan: ScalePlan) -> Iterator[str]:
    status = plan.status
    roles = job.spec.replica_specs
    for name in ("targets", "before", "spec_replicas", "resources_by_index"):
        yield from _unknown_roles(getattr(status, name), roles, f"status.{_field(name)}")
    yield from _unknown_roles((move.role for move in status.migrations), roles, "status.migrations")
    for name in ("targets", "before"):
        for role, indices in getattr(status, name).items():
            yield from _indices_problem(indices, f"status.{name}.{role}")
    for role, by_index in status.resources_by_index.items():
        for index, resources in by_index.items():
            yield from _quantity_problems(resources, f"status.resourcesByIndex.{role}.{index}")
    for name in ("start_time", "execution_time", "resize_time"):
        yield from _time_problem(getattr(status, name), f"status.{_field(name)}")
    for move in status.migrations:
        yield from _time_problem(move.since, "status.migrations.since")
    # Each migration in progress allows one pod beyond maxReplicas.
    most = len(plan.spec.migrate_pods)
    most += sum(bool(entry.resource) for entry in plan.spec.replica_resource_specs.values())
    number = sum(move.phase in ("Pending", "Starting", "Draining") for move in status.migrations)
    if number > most:
        yield f"status.migrations: {number} are in progress, but the plan can have begun {most}"


def _unknown_roles(found: Iterable[str], roles: Iterable[str], path: str) -> Iterator[str]:
    for role in sorted({*found} - {*roles}):
        yield f"{path}: {role!r} is not a role of the job"


def _counter_problem(value: int, least: int, path: str) -> Iterator[str]:
    """Yield why a counter of used names cannot be valid: the next name must be a new one."""
    if value < least:
        yield f"{path}: {value} is below {least}, the number that the names of pods have reached"
    if value >= MAX_COUNTER:
        yield f"{path}: {value} is not below {MAX_COUNTER}"


def _indices_problem(text: str, path: str) -> Iterator[str]:
    try:
        parse_indices(text)
    except ValueError as error:
        yield f"{path}: {text[:_MAX_SHOWN]!r} is not a set of indices: {error}"


def _quantity_problems(resources: Mapping[Any, int | str], path: str) -> Iterator[str]:
    for name, value in resources.items():
        if error := amount_error(name, value):
            yield f"{path}.{name}: {error}"
        elif not 0 < parse_quantity(value) <= _MAX_QUANTITY:
            yield f"{path}.{name}: {value} is not above 0, or above what Kubernetes can represent"


def _time_problem(text: str | None, path: str) -> Iterator[str]:
    if text is not None and time_or_none(text) is None:
        yield f"{path}: {text!r} is not a time"


def _field(name: str) -> str:
    """Return the name that the API gives to a field."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
