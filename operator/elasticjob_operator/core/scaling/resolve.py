"""Resolves a ScalePlan to exact member indices, or refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.gpus import VISIBLE_DEVICES
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.pod_requests import set_for_whole_pod
from elasticjob_api.quantity import parse_quantity, same_quantity
from elasticjob_api.resources import MAX_RESOURCES, amount_error, name_error
from elasticjob_api.scaleplan import Migration, PodToMigrate, PodToRemove, ScalePlan

from elasticjob_operator.core.members.changed_roles import added_roles_error
from elasticjob_operator.core.members.effective_spec import present_roles
from elasticjob_operator.core.model.plan import (
    Indices,
    PlanRefused,
    Quantities,
    ResolvedPlan,
    current_indices,
)
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling import scripts
from elasticjob_operator.core.scaling.limits import check_resources, check_size
from elasticjob_operator.core.scaling.member_selection import (
    dispensable_members,
    with_size,
)

MAX_STORED_CHARACTERS = 400_000
"""Characters of resources of single members, which must fit into plan and job, of 1.5 MB each."""


def resolve(job: ElasticJob, pods: Pods, plan: ScalePlan) -> ResolvedPlan:
    """Resolve a plan for the job's present members.

    Raises:
        PlanRefused: a part of it is impossible, so that nothing of it is executed.
    """
    scripts.check(job, plan.spec)
    spec = plan.spec
    before = current_indices(job.status)
    # An existing pod keeps its index, so that its end is not counted for a new member of that
    # index.
    taken = {role: indices | pods.of(role).present for role, indices in before.items()}
    removed = _removed(job, pods, spec.remove_pods, before)
    created, by_index = _created(job, plan, before, removed, taken)
    targets = {role: indices - removed[role] | created[role] for role, indices in before.items()}
    resources: dict[str, Quantities] = {}
    for role, entry in spec.replica_resource_specs.items():
        field = f"spec.replicaResourceSpecs.{role}"
        is_removal = spec.source == "Spec" and entry.replicas == 0
        if is_removal and role not in before:
            continue  # the role has gone already
        if not is_removal:
            check_role(job, role, field)
        if entry.replicas is not None:
            if entry.replicas < (more := len(created[role])):
                raise PlanRefused(
                    f"{field}.replicas: {entry.replicas} is below the {more} members that "
                    "spec.createPods adds"
                )
            used = taken[role] | targets[role]
            targets[role] = with_size(
                targets[role],
                entry.replicas,
                used=used,
                keep=created[role],
                first=dispensable_members(job, role, pods.of(role)),
            )
        if wanted := _checked_quantities(job, role, entry.resource, f"{field}.resource"):
            resources[role] = wanted
    migrations = _migrated(job, pods, plan, targets, taken, by_index)
    _check_resources_agree(plan, migrations, resources)
    change = ResolvedPlan(before, targets, resources, by_index, migrations)
    _check_number_of_resources(job, change)
    _check_stored_resources(job, change)
    check_size(job, plan, change)
    _check_first_members(job, change)
    check_resources(job, plan, change)
    return change


def _check_first_members(job: ElasticJob, change: ResolvedPlan) -> None:
    """Refuse the first members of a role that was added to the job, if they could never run."""
    added = [
        role for role, indices in change.targets.items() if indices and not change.before[role]
    ]
    if added and (error := added_roles_error(job, added)):
        raise PlanRefused(error)


def member_of(job: ElasticJob, pods: Pods, name: str, field: str) -> MemberKey:
    """Return role and index of the member whose current pod has this name.

    Raises:
        PlanRefused: the member does not exist, or is being removed.
    """
    pod = pods.by_name.get(name, (None,))[-1]
    if pod is None or pod.role not in present_roles(job):
        raise PlanRefused(
            f"{field}: {name!r} is not a worker pod of ElasticJob {job.metadata.name!r}"
        )
    if pod.terminating or pod.index not in parse_indices(
        job.status.replica_statuses[pod.role].indices
    ):
        raise PlanRefused(f"{field}: {name!r} is leaving already")
    return pod.role, pod.index


def _removed(
    job: ElasticJob, pods: Pods, entries: Sequence[PodToRemove], before: Indices
) -> Indices:
    removed: dict[str, set[int]] = {role: set() for role in before}
    for position, (role, index) in enumerate(
        _named_members(job, pods, entries, before, "spec.removePods")
    ):
        if index in removed[role]:
            raise PlanRefused(
                f"spec.removePods[{position}]: member {index} of role {role} is named twice"
            )
        removed[role].add(index)
    return {role: IndexSet(indices) for role, indices in removed.items()}


def _named_members(
    job: ElasticJob,
    pods: Pods,
    entries: Sequence[PodToRemove],
    before: Indices,
    field: str,
) -> list[MemberKey]:
    """Return role and index of each entry's member."""
    members = []
    for position, entry in enumerate(entries):
        if entry.name is not None:
            members.append(member_of(job, pods, entry.name, f"{field}[{position}].name"))
            continue
        role = entry.role or ""
        index = -1 if entry.index is None else entry.index
        check_role(job, role, f"{field}[{position}].role")
        if index not in before[role]:
            raise PlanRefused(f"{field}[{position}].index: {index} is not a member of role {role}")
        members.append((role, index))
    return members


def _created(
    job: ElasticJob, plan: ScalePlan, before: Indices, removed: Indices, taken: Indices
) -> tuple[Indices, dict[str, dict[int, Quantities]]]:
    created: dict[str, set[int]] = {role: set() for role in before}
    by_index: dict[str, dict[int, Quantities]] = {}
    used = dict(taken)
    for entry in plan.spec.create_pods:
        if entry.index is not None:
            used[entry.role] = used.get(entry.role, IndexSet()).with_index(entry.index)
    free = {role: indices.free() for role, indices in used.items()}
    for position, entry in enumerate(plan.spec.create_pods):
        field = f"spec.createPods[{position}]"
        check_role(job, entry.role, f"{field}.role")
        index = entry.index
        if index is None:
            index = next(free[entry.role])
        elif index in before[entry.role]:
            leaving = (
                ", and it cannot be removed and added in one plan"
                if index in removed[entry.role]
                else ""
            )
            raise PlanRefused(
                f"{field}.index: {index} is a member of role {entry.role} already{leaving}"
            )
        elif index in created[entry.role]:
            raise PlanRefused(f"{field}.index: {index} is named twice")
        created[entry.role].add(index)
        if wanted := _checked_quantities(job, entry.role, entry.resource, f"{field}.resource"):
            by_index.setdefault(entry.role, {})[index] = wanted
    return {role: IndexSet(indices) for role, indices in created.items()}, by_index


def _migrated(
    job: ElasticJob,
    pods: Pods,
    plan: ScalePlan,
    targets: Indices,
    taken: Indices,
    by_index: dict[str, dict[int, Quantities]],
) -> tuple[Migration, ...]:
    """Return the migrations, each to the lowest free index; add their resources to `by_index`."""
    entries: Sequence[PodToMigrate] = plan.spec.migrate_pods
    free = {role: (indices | targets[role]).free() for role, indices in taken.items()}
    moves: dict[MemberKey, Migration] = {}
    before = current_indices(job.status)
    for position, (role, index) in enumerate(
        _named_members(job, pods, entries, before, "spec.migratePods")
    ):
        field = f"spec.migratePods[{position}]"
        if (role, index) in moves:
            raise PlanRefused(f"{field}: member {index} of role {role} is named twice")
        if index not in targets[role]:
            raise PlanRefused(f"{field}: member {index} of role {role} is removed by the same plan")
        if index in parse_indices(job.status.replica_statuses[role].succeeded_indices):
            raise PlanRefused(f"{field}: member {index} of role {role} has finished its work")
        replacement = next(free[role])
        kept = job.status.replica_statuses[role].resources_by_index.get(str(index), {})
        if wanted := {
            **kept,
            **_checked_quantities(job, role, entries[position].resource, f"{field}.resource"),
        }:
            by_index.setdefault(role, {})[replacement] = wanted
        moves[role, index] = Migration(
            role=role, index=index, replacement=replacement, phase="Pending"
        )
    return tuple(moves.values())


def _check_resources_agree(
    plan: ScalePlan, migrations: Sequence[Migration], resources: Mapping[str, Quantities]
) -> None:
    """Refuse a plan that sets a resource of one member to two different values."""
    single = [
        (f"spec.createPods[{n}]", entry.role, entry.resource)
        for n, entry in enumerate(plan.spec.create_pods)
    ]
    single += [
        (f"spec.migratePods[{n}]", move.role, entry.resource)
        for n, (entry, move) in enumerate(zip(plan.spec.migrate_pods, migrations, strict=True))
    ]
    for field, role, resource in single:
        for name, value in resource.items():
            every = resources.get(role, {}).get(name, value)
            if not same_quantity(every, value):
                raise PlanRefused(
                    f"{field}.resource.{name}: {value}, but "
                    f"spec.replicaResourceSpecs.{role}.resource.{name} is {every} for every "
                    "member; give one of them"
                )


def check_role(job: ElasticJob, role: str, field: str) -> None:
    """Refuse a role that the job does not have.

    Raises:
        PlanRefused: the job does not have it.
    """
    if role not in (roles := present_roles(job)):
        raise PlanRefused(
            f"{field}: {role!r} is not a role of the job; it has {', '.join(sorted(roles))}"
        )


def _checked_quantities(job: ElasticJob, role: str, wanted: Quantities, field: str) -> Quantities:
    spec = job.spec.replica_specs[role]
    processes = spec.slots_per_replica or 1
    of_pod = set_for_whole_pod(spec.template)
    for name, value in wanted.items():
        if name in of_pod:
            raise PlanRefused(
                f"{field}.{name}: a plan sets the training container's, but "
                f"spec.replicaSpecs.{role}.template.spec.resources has that of the whole pod; "
                "create a job that sets the resources of the containers instead"
            )
        if error := name_error(name):
            raise PlanRefused(f"{field}: {error}")
        if error := amount_error(name, value):
            raise PlanRefused(f"{field}.{name}: {error}")
        number = parse_quantity(value)
        if number <= 0:
            raise PlanRefused(f"{field}.{name}: {value} must be above 0")
        if name in VISIBLE_DEVICES and number % processes:
            raise PlanRefused(
                f"{field}.{name}: {value} cannot be divided by slotsPerReplica, which is "
                f"{processes}"
            )
    return wanted


def _check_number_of_resources(job: ElasticJob, change: ResolvedPlan) -> None:
    """Refuse a plan after which a role would have more resources from plans than allowed."""
    for role in change.resources.keys() | change.resources_by_index.keys():
        status = job.status.replica_statuses[role]
        by_index = (
            *status.resources_by_index.values(),
            *change.resources_by_index.get(role, {}).values(),
        )
        found = {*status.resources, *change.resources.get(role, {})}.union(*by_index)
        if len(found) > MAX_RESOURCES:
            raise PlanRefused(
                f"spec: plans would have set {len(found)} resources of role {role} "
                f"({', '.join(sorted(found))}), above the {MAX_RESOURCES} that a role may have "
                "from plans"
            )


def _check_stored_resources(job: ElasticJob, change: ResolvedPlan) -> None:
    """Refuse a plan after which the resources of single members would be too large to store."""
    if not change.resources_by_index:
        return
    stored = [status.resources_by_index.values() for status in job.status.replica_statuses.values()]
    added = [by_index.values() for by_index in change.resources_by_index.values()]
    every = (quantities for values in (*stored, *added) for quantities in values)
    characters = sum(
        len(name) + len(str(value)) for quantities in every for name, value in quantities.items()
    )
    if characters > MAX_STORED_CHARACTERS:
        raise PlanRefused(
            f"spec: the resources of single members would take {characters} characters to store, "
            f"above {MAX_STORED_CHARACTERS}; give those of all members in spec.replicaResourceSpecs"
        )
