"""What a ScalePlan asks of a job: resolved to exact member indices, or refused with field, value and bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count, islice
from typing import Any

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.meta import Resources
from elasticjob_api.quantity import parse_quantity, requested
from elasticjob_api.scaleplan import PodToRemove, ScalePlan

from elasticjob_operator.core.observed import Pod
from elasticjob_operator.core.pods import with_resources

Indices = dict[str, frozenset[int]]
Wanted = dict[str, int | str]


class Refused(Exception):
    """The request cannot be met; the message names the field, the value and the bound."""


@dataclass(frozen=True)
class Change:
    """What a plan comes to.

    Attributes:
        before: indices per role now.
        targets: indices per role when it is done.
        resources: resources per role that every member shall get.
        resources_by_index: resources of single new members.
    """

    before: Indices
    targets: Indices
    resources: dict[str, Wanted]
    resources_by_index: dict[str, dict[int, Wanted]]


def current_indices(status: ElasticJobStatus) -> Indices:
    """Return the indices per role that the operator holds the job to."""
    return {role: parse_indices(replica.indices) for role, replica in status.replica_statuses.items()}


def resolve(job: ElasticJob, pods: Sequence[Pod], plan: ScalePlan) -> Change:
    """Work out what a plan means for the job as it is.

    Raises:
        Refused: it cannot be met, as a whole; nothing of it is done then.
    """
    spec, before = plan.spec, current_indices(job.status)
    if spec.migrate_pods:
        raise Refused(
            "spec.migratePods: replacing members is not supported by this version; use removePods and createPods"
        )
    removed = _removed(job, pods, spec.remove_pods, before)
    created, by_index = _created(job, plan, before, removed)
    targets = {role: indices - removed[role] | created[role] for role, indices in before.items()}
    resources: dict[str, Wanted] = {}
    for role, wish in spec.replica_resource_specs.items():
        field = f"spec.replicaResourceSpecs.{role}"
        _known_role(job, role, field)
        if wish.replicas is not None:
            used = before[role] | targets[role]
            targets[role] = _resize(targets[role], wish.replicas, used=used, keep=created[role])
        if wanted := _quantities(wish.resource, f"{field}.resource"):
            _resizable(job, wanted, f"{field}.resource")
            resources[role] = wanted
    change = Change(before, targets, resources, by_index)
    _within_bounds(job, plan, change)
    _within_limits(job, change)
    return change


def lowest_free(used: Iterable[int], number: int) -> frozenset[int]:
    """Return the lowest indices that are not used."""
    taken = frozenset(used)
    return frozenset(islice((index for index in count() if index not in taken), max(number, 0)))


def wanted_resources(status: ElasticJobStatus, role: str, index: int) -> Wanted:
    """Return the resources that finished plans have set for a member, in place of its template's."""
    replica = status.replica_statuses[role]
    return {**replica.resources, **replica.resources_by_index.get(str(index), {})}


def _resize(indices: frozenset[int], replicas: int, *, used: frozenset[int], keep: frozenset[int]) -> frozenset[int]:
    """Grow by the lowest free indices, shrink by the highest; members the same plan names stay."""
    surplus = len(indices) - replicas
    if surplus <= 0:
        return indices | lowest_free(used, -surplus)
    return indices - frozenset(sorted(indices - keep, reverse=True)[:surplus])


def _removed(job: ElasticJob, pods: Sequence[Pod], wishes: Sequence[PodToRemove], before: Indices) -> Indices:
    by_name = {pod.name: pod for pod in pods}
    removed: dict[str, set[int]] = {role: set() for role in before}
    for position, wish in enumerate(wishes):
        field = f"spec.removePods[{position}]"
        if wish.name is not None:
            role, index = member_of(job, by_name, wish.name, f"{field}.name")
        else:
            role, index = wish.role or "", -1 if wish.index is None else wish.index
            _known_role(job, role, f"{field}.role")
            if index not in before[role]:
                raise Refused(f"{field}.index: {index} is not a member of role {role}")
        if index in removed[role]:
            raise Refused(f"{field}: member {index} of role {role} is named twice")
        removed[role].add(index)
    return {role: frozenset(indices) for role, indices in removed.items()}


def member_of(job: ElasticJob, by_name: Mapping[str, Pod], name: str, field: str) -> tuple[str, int]:
    """Return role and index of the member whose present pod has this name.

    Raises:
        Refused: there is no such member, or it is leaving already.
    """
    pod = by_name.get(name)
    if pod is None or pod.role not in job.spec.replica_specs:
        raise Refused(f"{field}: {name!r} is not a worker pod of ElasticJob {job.metadata.name!r}")
    if pod.leaving or pod.index not in parse_indices(job.status.replica_statuses[pod.role].indices):
        raise Refused(f"{field}: {name!r} is leaving already")
    return pod.role, pod.index


def _created(
    job: ElasticJob, plan: ScalePlan, before: Indices, removed: Indices
) -> tuple[Indices, dict[str, dict[int, Wanted]]]:
    created: dict[str, set[int]] = {role: set() for role in before}
    by_index: dict[str, dict[int, Wanted]] = {}
    named = {(wish.role, wish.index) for wish in plan.spec.create_pods if wish.index is not None}
    for position, wish in enumerate(plan.spec.create_pods):
        field = f"spec.createPods[{position}]"
        _known_role(job, wish.role, f"{field}.role")
        index = wish.index
        if index is None:
            taken = (
                before[wish.role] | created[wish.role] | {n for role, n in named if role == wish.role and n is not None}
            )
            (index,) = lowest_free(taken, 1)
        elif index in before[wish.role]:
            leaving = ", and it cannot be removed and added in one plan" if index in removed[wish.role] else ""
            raise Refused(f"{field}.index: {index} is a member of role {wish.role} already{leaving}")
        elif index in created[wish.role]:
            raise Refused(f"{field}.index: {index} is named twice")
        created[wish.role].add(index)
        if wanted := _quantities(wish.resource, f"{field}.resource"):
            by_index.setdefault(wish.role, {})[index] = wanted
    return {role: frozenset(indices) for role, indices in created.items()}, by_index


def _known_role(job: ElasticJob, role: str, field: str) -> None:
    if role not in job.spec.replica_specs:
        raise Refused(f"{field}: {role!r} is not a role of the job; it has {', '.join(sorted(job.spec.replica_specs))}")


def _quantities(resources: Resources, field: str) -> Wanted:
    values = {"cpu": resources.cpu, "memory": resources.memory, "nvidia.com/gpu": resources.gpu}
    wanted = {name: value for name, value in values.items() if value is not None}
    for name, value in wanted.items():
        try:
            number = parse_quantity(value)
        except ValueError as error:
            raise Refused(f"{field}.{name}: {error}") from None
        if number <= 0:
            raise Refused(f"{field}.{name}: {value} must be above 0")
    return wanted


def _resizable(job: ElasticJob, wanted: Wanted, field: str) -> None:
    if "nvidia.com/gpu" in wanted:
        raise Refused(f"{field}.nvidia.com/gpu: cannot be changed in running pods; give it in createPods")
    if job.spec.autoscaling.resize == "Replace":
        raise Refused(f"{field}: spec.autoscaling.resize of the job is Replace, which this version does not support")


def _within_bounds(job: ElasticJob, plan: ScalePlan, change: Change) -> None:
    for role, indices in change.targets.items():
        spec, size = job.spec.replica_specs[role], len(indices)
        if indices == change.before[role]:
            continue
        wish = plan.spec.replica_resource_specs.get(role)
        field = f"spec.replicaResourceSpecs.{role}.replicas: " if wish and wish.replicas is not None else ""
        check_bounds(spec.min_replicas, spec.max_replicas, size, role=role, prefix=field)


def check_bounds(least: int, most: int | None, size: int, *, role: str, prefix: str) -> None:
    """Refuse a size outside of a role's bounds.

    Raises:
        Refused: it is outside.
    """
    if size < least:
        raise Refused(f"{prefix}{size} members of role {role} would be below minReplicas {least}")
    if most is not None and size > most:
        raise Refused(f"{prefix}{size} members of role {role} would be above maxReplicas {most}")


def _within_limits(job: ElasticJob, change: Change) -> None:
    limits = job.spec.autoscaling.resource_limits
    for name, field, limit in (
        ("cpu", "cpu", limits.cpu),
        ("memory", "memory", limits.memory),
        ("nvidia.com/gpu", "gpu", limits.gpu),
    ):
        if limit is None:
            continue
        before, after = _total(job, change.before, name, None), _total(job, change.targets, name, change)
        # A job that is over the limit already may still shrink.
        if after > parse_quantity(limit) and after > before:
            raise Refused(
                f"spec.autoscaling.resourceLimits.{field}: all members together would request "
                f"{name} {after.normalize():f}, above the job's limit {limit}"
            )


def _total(job: ElasticJob, indices: Indices, name: str, change: Change | None) -> Decimal:
    total = Decimal(0)
    for role, members in indices.items():
        first, *others = job.spec.replica_specs[role].template["spec"]["containers"]
        rest = requested(others, name)
        for index in members:
            wanted: dict[str, Any] = wanted_resources(job.status, role, index)
            if change is not None:
                wanted = {
                    **wanted,
                    **change.resources.get(role, {}),
                    **change.resources_by_index.get(role, {}).get(index, {}),
                }
            total += rest + requested([{"resources": with_resources(first.get("resources") or {}, wanted)}], name)
    return total
