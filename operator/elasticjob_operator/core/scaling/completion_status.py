"""Computes the end of a plan: phase and message, the size in the spec, and members' resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanStatus
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import Action, WriteBackReplicas
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices, Quantities
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling import drain, migration, progress_messages, resize
from elasticjob_operator.core.scaling.plan_membership import PlanMembership


def ends_early(status: ScalePlanStatus) -> bool:
    """Return whether a step failed, so that the plan begins no other step and ends."""
    return bool(status.message or migration.failed(status))


def rollback_targets(members: PlanMembership, not_ready: Sequence[MemberKey]) -> Indices:
    """Return the targets with a removed member in place of each new one that is not ready."""
    targets: Indices = {}
    for role, indices in members.targets.items():
        unready = IndexSet(index for name, index in not_ready if name == role)
        restored = IndexSet(islice(members.removed[role], len(unready)))
        targets[role] = (indices - unready) | restored
    return targets


def partial_result(
    observed: Observed,
    plan: ScalePlan,
    members: PlanMembership,
    resizes: resize.ResizeProgress,
    left_out: Sequence[Pod],
) -> tuple[PlanPhase, str]:
    """Return the final phase and message of a plan that was not completed."""
    status = plan.status
    failed = migration.failed(status)
    total = len(plan.spec.migrate_pods) or len(failed) + len(migration.done(status))
    problems = [
        status.message,
        progress_messages.not_reached_message(
            [f"{move.role} {move.index}" for move in failed],
            total,
            "members are not replaced",
            (move.message for move in failed),
        ),
        progress_messages.not_reached_message(
            [f"{pod.role} {pod.index}" for pod in left_out],
            sum(len(members.counted[role]) for role in resize.resources_by_role(plan)),
            "members keep the resources they had",
        ),
    ]
    unready = set(progress_messages.not_ready(observed, members.added))
    some_ready = any(
        (role, index) not in unready for role, indices in members.added.items() for index in indices
    )
    reached = some_ready or any(members.removed.values()) or migration.done(status) or resizes.done
    return "PartiallySucceeded" if reached else "Failed", "; ".join(filter(None, problems))


def write_back_replicas(
    observed: Observed, plan: ScalePlan, members: PlanMembership
) -> list[Action]:
    """Return the writes of the new size to the spec, unless a user has edited it meanwhile.

    A size outside of the spec's bounds is not written, because the API server refuses it. The next
    plan then gives the job the size of its spec.
    """
    writes: list[Action] = []
    for role, indices in members.targets.items():
        spec = observed.job.spec.replica_specs[role]
        expected = plan.status.spec_replicas.get(role)
        if expected is None or not spec.size == expected != len(indices):
            continue
        if spec.min_replicas <= len(indices) and (
            spec.max_replicas is None or len(indices) <= spec.max_replicas
        ):
            writes.append(WriteBackReplicas(role, len(indices)))
    return writes


def with_role_resources(status: ElasticJobStatus, plan: ScalePlan, pods: Pods) -> ElasticJobStatus:
    """Return the job's status with the resources that all members of a role have now.

    A member that got more memory during the plan, because it ran out of it, keeps that. An Auto
    plan never takes such memory away.
    """
    replicas = dict(status.replica_statuses)
    for role, wanted in resize.resources_by_role(plan).items():
        has = {
            (
                str(pod.index),
                parse_quantity(pod.container.resources.requests.get("memory", 0)),
            )
            for pod in pods.of(role)
            if pod.spec.containers
        }
        by_index: dict[str, Quantities] = {}
        for index, own in replicas[role].resources_by_index.items():
            kept = {name: value for name, value in own.items() if name not in wanted}
            if "memory" in own and "memory" in wanted:
                memory = parse_quantity(own["memory"])
                by_plan = parse_quantity(wanted["memory"])
                if (index, memory) in has or (plan.spec.source == "Auto" and memory > by_plan):
                    kept["memory"] = own["memory"]
            if kept:
                by_index[index] = kept
        resources = {**replicas[role].resources, **wanted}
        replicas[role] = replace(replicas[role], resources=resources, resources_by_index=by_index)
    return replace(status, replica_statuses=replicas)


def with_resources_by_index(
    status: ElasticJobStatus, changed: Mapping[str, Mapping[str, Quantities]]
) -> ElasticJobStatus:
    """Return the job's status with resources that only some members have, by role and index."""
    replicas = dict(status.replica_statuses)
    for role, changed_by_index in changed.items():
        by_index = dict(replicas[role].resources_by_index)
        for index, quantities in changed_by_index.items():
            by_index[index] = {**by_index.get(index, {}), **quantities}
        replicas[role] = replace(replicas[role], resources_by_index=by_index)
    return replace(status, replica_statuses=replicas)


def final_status(
    status: ScalePlanStatus, phase: PlanPhase, message: str, now: float, *, pods: Pods
) -> ScalePlanStatus:
    """Return the plan's final status, with the pods that the plan has created or resized."""
    new = {
        role: parse_indices(text) - parse_indices(status.before.get(role, ""))
        for role, text in status.targets.items()
    }
    for move in migration.done(status):
        new[move.role] = new.get(move.role, IndexSet()).with_index(move.replacement)
    return replace(
        status,
        phase=phase,
        message=message,
        waiting_for="",
        draining_pods=[],
        created_pods=drain.limited(pod.name for pod in pods.of_members(new)),
        resized_pods=[name for name in status.resized_pods if name in pods.by_name],
        completion_time=format_time(now),
    )


def success_message(plan: ScalePlan, members: PlanMembership, now: float) -> str:
    """Return what the plan has changed, and how long that took."""
    replaced = len(migration.done(plan.status))
    change = description(members.before, members.targets, resize.resources_by_role(plan), replaced)
    seconds = now - parse_time(plan.status.start_time or format_time(now))
    return f"{change} in {seconds:.0f} s"


def description(before: Indices, targets: Indices, resources: Iterable[str], replaced: int) -> str:
    """Return the change in one line, such as `worker 2 to 4, 1 members replaced`."""
    sizes = [
        f"{role} {len(before[role])} to {len(indices)}"
        for role, indices in targets.items()
        if indices != before[role]
    ]
    changes = [f"{role} resources" for role in resources]
    changes += [f"{replaced} members replaced"] if replaced else []
    return ", ".join(sizes + changes) or "no change"
