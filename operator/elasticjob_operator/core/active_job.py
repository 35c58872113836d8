"""Decides for a job that has pods or is to have some: scaling, members, master and quota."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from elasticjob_api.elasticjob import ElasticJobStatus
from msgspec.structs import replace

from elasticjob_operator.core import job_status, member_counts
from elasticjob_operator.core.conditions import health_events
from elasticjob_operator.core.deadlines import check_deadlines
from elasticjob_operator.core.end_pods import delete_outdated
from elasticjob_operator.core.manifests.placement import AvoidedNodes, avoiding
from elasticjob_operator.core.manifests.pods import within_bounds
from elasticjob_operator.core.members.completion import has_succeeded, why_it_cannot_succeed
from elasticjob_operator.core.members.master import reconcile_master
from elasticjob_operator.core.members.pod_reports import unfit_nodes
from elasticjob_operator.core.members.reconcile import reconcile_members
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import excess
from elasticjob_operator.core.missing_pods import (
    invalid_template,
    waiting_roles,
    why_they_wait,
    with_refusal,
)
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
from elasticjob_operator.core.quota.waiting import (
    WAITS_FOR_ROOM,
    seconds_until_replaced,
    why_fewer_members,
    why_plan_waits,
)
from elasticjob_operator.core.quota.workloads import workloads_while_active
from elasticjob_operator.core.retry import end_job
from elasticjob_operator.core.scaling.plan_queue import advance_scaling, members_at_rest
from elasticjob_operator.core.scaling.scaling_result import ScalingResult
from elasticjob_operator.core.status_writes import decision_with_status


def reconcile_active_job(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Advance the running ScalePlan, or begin one; then compare members and master with their pods.

    Finish the job if it has succeeded or failed. Whether it has is decided by the members that it
    has without a plan that begins: a job that ends now begins no plan.
    """
    job = observed.job
    status = replace(job_status.without_suspension(job, job.status, now), retry_time=None)
    why_waits = partial(why_plan_waits, observed, status, defaults)
    scaling = advance_scaling(observed, status, now, why_waits=why_waits)
    outcome = _compare(observed, scaling, now, defaults)
    before_plan = outcome
    if scaling.first:
        before_plan = _compare(observed, members_at_rest(status), now, defaults)
    return _succeed(before_plan) or _fail(before_plan) or _advance(outcome)


@dataclass(frozen=True)
class _Outcome:
    """The comparison of the members that scaling wants, and of the master, with their pods.

    Attributes:
        observed: what was compared.
        now: seconds since the epoch.
        defaults: images for jobs that name none.
        scaling: which members the job has now.
        waiting: the roles that get no pods yet, each with the roles that it waits for.
        members: what is to be done about members.
        master: what is to be done about the master.
        status: the job's status after both, with the counts of pods.
        failure: why the job fails; None if it does not.
        next_deadline: the seconds until a deadline of the job; None if it has none.
    """

    observed: Observed
    now: float
    defaults: Defaults
    scaling: ScalingResult
    waiting: dict[str, list[str]]
    members: ReconcileResult
    master: ReconcileResult
    status: ElasticJobStatus
    failure: JobFailure | None
    next_deadline: float | None


def _compare(
    observed: Observed, scaling: ScalingResult, now: float, defaults: Defaults
) -> _Outcome:
    job = observed.job
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
    master = reconcile_master(observed, members.status, defaults=defaults, now=now)
    status = member_counts.with_counts(observed, master.status)
    due = [*master.creates, *members.creates]
    is_due = bool(due or master.confirm or members.confirm)
    status = with_refusal(observed, status, is_due=is_due, now=now)
    missed_deadline, next_deadline = check_deadlines(observed, status, now, due)
    invalid = invalid_template(observed, status, due, scaling.overrides)
    failure = members.failure or master.failure or invalid or missed_deadline
    if not failure and (why := why_it_cannot_succeed(job, status, scaling.counted)):
        failure = JobFailure(why)
    return _Outcome(
        observed, now, defaults, scaling, waiting, members, master, status, failure, next_deadline
    )


def _succeed(outcome: _Outcome) -> Decision | None:
    observed = outcome.observed
    status = outcome.members.status
    if not has_succeeded(observed.job, status, outcome.scaling.counted):
        return None
    return end_job(observed, member_counts.with_counts(observed, status), None, outcome.now)


def _fail(outcome: _Outcome) -> Decision | None:
    if not outcome.failure:
        return None
    return end_job(outcome.observed, outcome.status, outcome.failure, outcome.now)


def _advance(outcome: _Outcome) -> Decision:
    """Write what scaling has decided, then the status, then change the pods.

    A plan must be able to end although pods cannot be created. So its writes come before all
    actions on pods, except that those about a plan that begins can wait for its pods.
    """
    observed = outcome.observed
    scaling = outcome.scaling
    now = outcome.now
    status = job_status.with_phase(
        observed,
        outcome.status,
        now,
        waiting=outcome.waiting,
        why_pods_wait=why_they_wait(observed, outcome.status),
        why_fewer=why_fewer_members(observed, outcome.status),
    )
    infrastructure = _infrastructure(observed, outcome.members, outcome.master)
    plan_writes = [action for action in scaling.actions if _is_plan_write(action)]
    prerequisites = [*scaling.first]
    if infrastructure.before_pods:
        prerequisites += _before_infrastructure(observed, scaling, plan_writes, status)
        prerequisites += infrastructure.before_pods
        plan_writes = []
    pods = _pod_actions(outcome, infrastructure.before_members)
    return decision_with_status(
        observed,
        status,
        [
            *([*pods, *plan_writes] if scaling.first else [*plan_writes, *pods]),
            *(action for action in scaling.actions if not _is_plan_write(action)),
            *outcome.master.events,
            *outcome.members.events,
            *workloads_while_active(observed, status, scaling, now, outcome.defaults),
            *infrastructure.after_pods,
        ],
        now,
        prerequisites=prerequisites,
        events=_phase_events(observed.job.status, status),
        requeue_after=shortest_wait(
            scaling.requeue_after,
            outcome.members.requeue_after,
            outcome.master.requeue_after,
            outcome.next_deadline,
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
    if (
        master.creates
        and not status.master.incarnations
        and member_counts.has_no_members_yet(status)
    ):
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
    observed: Observed,
    scaling: ScalingResult,
    plan_writes: Sequence[Action],
    decided: ElasticJobStatus,
) -> list[Action]:
    """Return what is written before the infrastructure, which the API server may refuse.

    These are the decisions of scaling, and a status message about the last refusal.
    """
    job = observed.job
    status = scaling.status if plan_writes or scaling.first else job.status
    if observed.last_refusal:
        status = replace(status, message=decided.message, conditions=decided.conditions)
    return [*patches.job_status(job, status), *plan_writes]


def _pod_actions(outcome: _Outcome, before_members: Sequence[Action]) -> list[Action]:
    """Return the deletions of pods, then the creations, then the names to look up."""
    observed = outcome.observed
    members = outcome.members
    master = outcome.master
    actions: list[Action] = [
        *delete_outdated(observed, outcome.now),
        *master.deletes,
        *members.deletes,
        *(DeletePod(pod.name, pod.metadata.uid) for pod in excess(observed)),
    ]
    # If many jobs are new, every master is created before the members of any job.
    actions += _admissible(observed, master.creates)
    actions += before_members
    unfit = unfit_nodes(members.status)
    creates = [_placed(create, outcome.scaling, unfit) for create in members.creates]
    actions += _admissible(observed, creates)
    if confirm := (*master.confirm, *members.confirm):
        actions.append(ConfirmGone(confirm, outcome.now))
    return actions


def _admissible(observed: Observed, creates: Sequence[CreatePod]) -> list[CreatePod]:
    """Return the creations of pods that Kueue and the namespace's LimitRanges admit.

    The pods run on the nodes for which the job has quota.
    """
    bodies = (within_bounds(observed.job, each.body, observed.bounds) for each in creates)
    return [
        dataclasses.replace(create, body=with_flavors(body, observed.quota))
        for create, body in zip(creates, bodies, strict=True)
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
            is_of_pool = WAITS_FOR_ROOM in before.message
            note = "its pool has room" if is_of_pool else "it has quota"
        events.append(EmitEvent("JobResumed", note))
    if after.phase == "Running" and before.phase not in ("Running", "Scaling"):
        events.append(EmitEvent("JobRunning", f"{after.workers} workers are ready"))
    return [*events, *health_events(before, after)]
