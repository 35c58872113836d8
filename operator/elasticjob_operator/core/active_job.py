"""Decides for a job that has pods or is to have some: scaling, members, master and quota."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from elasticjob_api.elasticjob import ElasticJobStatus
from msgspec.structs import replace

from elasticjob_operator.core import job_status
from elasticjob_operator.core.deadlines import check_deadlines
from elasticjob_operator.core.end_pods import delete_outdated
from elasticjob_operator.core.health_conditions import health_events
from elasticjob_operator.core.job_end import end_job
from elasticjob_operator.core.manifests.placement import AvoidedNodes, avoiding
from elasticjob_operator.core.members.completion import has_succeeded, why_it_cannot_succeed
from elasticjob_operator.core.members.failure_history import unfit_nodes
from elasticjob_operator.core.members.master import reconcile_master
from elasticjob_operator.core.members.reconcile import reconcile_members
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import excess
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import (
    Action,
    ConfirmGone,
    CreatePod,
    Decision,
    DeletePod,
    EmitEvent,
    EnsureInfrastructure,
    PatchStatus,
    WriteBackReplicas,
    shortest_wait,
)
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.quota.flavors import with_flavors
from elasticjob_operator.core.quota.waiting import seconds_until_replaced, why_plan_waits
from elasticjob_operator.core.quota.workloads import workloads_while_active
from elasticjob_operator.core.scaling.execution import ScalingResult
from elasticjob_operator.core.scaling.plan_queue import advance_scaling
from elasticjob_operator.core.status_writes import decision_with_status
from elasticjob_operator.core.waiting_pods import why_they_wait
from elasticjob_operator.core.waiting_roles import waiting_roles


def reconcile_active_job(
    observed: Observed, now: float, defaults: Defaults, *, may_begin_plan: bool = True
) -> Decision:
    """Advance the running ScalePlan, or begin one; then compare members and master with their pods.

    Finish the job if it has succeeded or failed. A job that ends now begins no plan.
    """
    job = observed.job
    status = replace(job_status.without_suspension(job, job.status, now), retry_time=None)
    scaling = advance_scaling(
        observed,
        status,
        now,
        why_waits=partial(why_plan_waits, observed, status, defaults),
        may_begin=may_begin_plan,
    )
    waiting = waiting_roles(observed, scaling.status)
    members = reconcile_members(
        observed,
        scaling.status,
        staying=scaling.staying,
        surplus={
            role: len(indices - scaling.counted[role]) for role, indices in scaling.staying.items()
        },
        overrides=scaling.overrides,
        waiting=waiting,
        defaults=defaults,
        now=now,
    )
    succeeded = has_succeeded(job, members.status, scaling.counted)
    master = reconcile_master(observed, members.status, defaults=defaults, now=now)
    status = job_status.with_counts(observed, master.status)
    missed_deadline, next_deadline = check_deadlines(observed, status, now)
    failure = members.failure or master.failure or missed_deadline
    if not failure and (why := why_it_cannot_succeed(job, status, scaling.counted)):
        failure = JobFailure(why)
    if (succeeded or failure) and scaling.first:
        return reconcile_active_job(observed, now, defaults, may_begin_plan=False)
    if succeeded:
        return end_job(observed, job_status.with_counts(observed, members.status), None, now)
    if failure:
        return end_job(observed, status, failure, now)
    why_pods_wait = why_they_wait(observed, status)
    status = job_status.with_phase(
        observed, status, now, waiting=waiting, why_pods_wait=why_pods_wait
    )

    infrastructure = _infrastructure(observed, members, master)
    plan_writes = [action for action in scaling.actions if _is_plan_write(action)]
    others = [action for action in scaling.actions if not _is_plan_write(action)]
    prerequisites = [*scaling.first]
    if infrastructure.before_pods:
        prerequisites += _before_infrastructure(observed, scaling, plan_writes, status.message)
        prerequisites += infrastructure.before_pods
        plan_writes = []
    pods = _pod_actions(observed, scaling, members, master, infrastructure.before_members, now)
    # A plan must be able to end although pods cannot be created: so its writes come before all pod
    # actions. What is to be written about a plan that begins can wait for its pods.
    actions: list[Action] = [*pods, *plan_writes] if scaling.first else [*plan_writes, *pods]
    actions += [*others, *master.events, *members.events]
    actions += workloads_while_active(observed, status, scaling, now, defaults)
    actions += infrastructure.after_pods
    return decision_with_status(
        observed,
        status,
        actions,
        now,
        prerequisites=prerequisites,
        events=_phase_events(job.status, status),
        requeue_after=shortest_wait(
            scaling.requeue_after,
            members.requeue_after,
            master.requeue_after,
            next_deadline,
            seconds_until_replaced(observed, now),
        ),
    )


def _is_plan_write(action: Action) -> bool:
    return isinstance(action, PatchStatus | WriteBackReplicas)


@dataclass(frozen=True)
class _Infrastructure:
    """What is ensured before the status that uses up the names of new pods, and after it."""

    before_pods: Sequence[EnsureInfrastructure] = ()
    before_members: Sequence[EnsureInfrastructure] = ()
    after_pods: Sequence[EnsureInfrastructure] = ()


def _infrastructure(
    observed: Observed, members: ReconcileResult, master: ReconcileResult
) -> _Infrastructure:
    """Return how the job's infrastructure is ensured."""
    status = observed.job.status
    if master.creates and not status.master.incarnations and job_status.has_no_members_yet(status):
        return _Infrastructure(
            [EnsureInfrastructure("First")],
            [EnsureInfrastructure("Members")],
            [EnsureInfrastructure("Rest")],
        )
    if master.creates or (members.creates and not observed.infrastructure_ensured):
        return _Infrastructure(before_pods=[EnsureInfrastructure("All")])
    if observed.infrastructure_ensured:
        return _Infrastructure()
    return _Infrastructure(after_pods=[EnsureInfrastructure("All")])


def _before_infrastructure(
    observed: Observed, scaling: ScalingResult, plan_writes: Sequence[Action], message: str
) -> list[Action]:
    """Return what is written before the infrastructure, which the API server may refuse.

    These are the decisions of scaling, and a status message about the last refusal.
    """
    job = observed.job
    status = scaling.status if plan_writes or scaling.first else job.status
    if observed.last_refusal:
        status = replace(status, message=message)
    return [*patches.job_status(job, status), *plan_writes]


def _pod_actions(
    observed: Observed,
    scaling: ScalingResult,
    members: ReconcileResult,
    master: ReconcileResult,
    before_members: Sequence[Action],
    now: float,
) -> list[Action]:
    """Return the deletions of pods, then the creations, then the names to look up."""
    actions: list[Action] = [*delete_outdated(observed, now), *master.deletes, *members.deletes]
    actions += [DeletePod(pod.name, pod.metadata.uid) for pod in excess(observed)]
    # If many jobs are new, every master is created before the members of any job.
    actions += _flavored(observed, master.creates)
    actions += before_members
    unfit = unfit_nodes(members.status)
    actions += _flavored(observed, [_placed(create, scaling, unfit) for create in members.creates])
    if confirm := (*master.confirm, *members.confirm):
        actions.append(ConfirmGone(confirm, now))
    return actions


def _flavored(observed: Observed, creates: Sequence[CreatePod]) -> list[CreatePod]:
    """Return the creations of pods that run on the nodes for which the job has quota."""
    return [
        dataclasses.replace(create, body=with_flavors(create.body, observed.quota))
        for create in creates
    ]


def _placed(create: CreatePod, scaling: ScalingResult, unfit: Sequence[str]) -> CreatePod:
    """Return the creation of a member's pod, which avoids unfit nodes and those of the plan."""
    by_plan = scaling.avoided_nodes.get(create.member, AvoidedNodes())
    preferred = tuple(dict.fromkeys((*by_plan.preferred, *unfit)))
    if not preferred and not by_plan.required:
        return create
    nodes = AvoidedNodes(preferred, by_plan.required)
    return dataclasses.replace(create, body=avoiding(create.body, nodes))


def _phase_events(before: ElasticJobStatus, after: ElasticJobStatus) -> list[EmitEvent]:
    """Return an event if the job is resumed, begins to run, or changes its health."""
    events = []
    if job_status.is_suspended(before):
        note = "spec.runPolicy.suspend is false"
        if job_status.waited_for_quota(before):
            note = "it has quota"
        events.append(EmitEvent("JobResumed", note))
    if after.phase == "Running" and before.phase not in ("Running", "Scaling"):
        events.append(EmitEvent("JobRunning", f"{after.workers} workers are ready"))
    return [*events, *health_events(before, after)]
