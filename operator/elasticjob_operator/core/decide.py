"""Computes from everything observed of one job what to do now.

`decide` is called again after every change, and after its own actions, until it returns none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus, Retry
from msgspec.structs import replace

from elasticjob_operator.core import job_status, retry
from elasticjob_operator.core.deadlines import check_active_deadline, check_deadlines
from elasticjob_operator.core.health_conditions import health_events
from elasticjob_operator.core.job_end import clean_up_job, end_job, finish_job
from elasticjob_operator.core.manifests.placement import avoiding
from elasticjob_operator.core.manifests.startup_order import startup_order_error
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.changed_roles import status_with_roles, with_roles_of_status
from elasticjob_operator.core.members.completion import has_succeeded, why_it_cannot_succeed
from elasticjob_operator.core.members.failure_policy import restart_rules_error
from elasticjob_operator.core.members.lost_pods import (
    CHECK_SECONDS,
    confirm_lost_pods,
    delete_tampered_pods,
)
from elasticjob_operator.core.members.master import reconcile_master
from elasticjob_operator.core.members.reconcile import reconcile_members
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import excess, with_retained_apart
from elasticjob_operator.core.members.unset_sizes import fill_in, unset_roles, with_sizes
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
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.quota.flavors import with_flavors
from elasticjob_operator.core.quota.waiting import (
    seconds_until_replaced,
    why_no_pods,
    why_plan_waits,
)
from elasticjob_operator.core.quota.workloads import (
    delete_workloads,
    workloads_at_rest,
    workloads_while_active,
)
from elasticjob_operator.core.repair import repair_statuses
from elasticjob_operator.core.scaling.plan_queue import advance_scaling, end_plans_and_requests
from elasticjob_operator.core.scaling.scaling_result import ScalingResult
from elasticjob_operator.core.startup_order import waiting_roles
from elasticjob_operator.core.status_writes import decision_with_status
from elasticjob_operator.core.stop import stop_job
from elasticjob_operator.core.suspend import replace_outdated, suspend


def decide(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Return what to do now for one job.

    Args:
        observed: the job and everything that belongs to it.
        now: seconds since the epoch.
        defaults: images for jobs that name none.
    """
    job = observed.job
    if job.metadata.deletion_timestamp is not None or job.spec.run_policy.managed_by not in (
        None,
        names.MANAGED_BY,
    ):
        return Decision()
    if job.status.phase not in (None, *job_status.FINISHED_PHASES):
        first: Sequence[Action] = patches.job_status(job, status_with_roles(observed))
        if first:
            return Decision(tuple(first))
    unset = unset_roles(observed)
    observed = with_sizes(observed)
    written = fill_in(observed, unset) if job.status.phase not in job_status.FINISHED_PHASES else []
    observed = with_roles_of_status(observed)
    if first := repair_statuses(observed):
        return Decision(tuple(first))
    observed = with_retained_apart(observed)
    if first := confirm_lost_pods(observed, now) or delete_tampered_pods(observed):
        return Decision(tuple(first))
    decision = _decide(observed, now, defaults)
    wait = CHECK_SECONDS if observed.kept else None
    return dataclasses.replace(
        decision,
        actions=(*decision.actions, *written),
        requeue_after=shortest_wait(decision.requeue_after, wait),
    )


def _decide(observed: Observed, now: float, defaults: Defaults) -> Decision:
    job = observed.job
    if job.status.phase is None:
        return _initialize(observed, now, defaults)
    if job.status.phase in job_status.FINISHED_PHASES:
        return clean_up_job(observed, now)
    if job.spec.run_policy.stop:
        return stop_job(observed, now)
    if job.spec.run_policy.suspend:
        return _suspend(observed, now)
    if why := why_no_pods(observed, now):
        return _wait_for_quota(observed, why, now, defaults)
    policy = job.spec.run_policy.retry
    if policy is not None and job.status.retry_time is not None:
        return _retry(observed, policy, now)
    return _reconcile_active(observed, now, defaults)


def _initialize(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Validate the templates of a new job, write its first status, and create its master."""
    job = observed.job
    status = job_status.initialized(job, now)
    if error := validation_error(job) or restart_rules_error(job) or startup_order_error(job):
        return finish_job(observed, status, "Failed", error, now)
    waits = job.spec.run_policy.suspend or job.spec.run_policy.stop or why_no_pods(observed, now)
    if observed.masters or observed.last_refusal or waits:
        return Decision((*patches.job_status(job, status),))
    # Of many jobs that are created together, each gets its master before any gets what its members
    # need.
    master = reconcile_master(observed, status, defaults=defaults, now=now)
    return Decision(
        (EnsureInfrastructure("First"), *patches.job_status(job, master.status), *master.creates)
    )


def _reconcile_active(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Continue the running ScalePlan, repair members and master, and finish the job when that is due."""
    job = observed.job
    status = replace(job_status.without_suspension(job, job.status, now), retry_time=None)
    scaling = advance_scaling(
        observed, status, now, why_waits=partial(why_plan_waits, observed, status, defaults)
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
    if has_succeeded(job, members.status, scaling.counted):
        return end_job(observed, job_status.with_counts(observed, members.status), None, now)
    master = reconcile_master(observed, members.status, defaults=defaults, now=now)
    status = job_status.with_counts(observed, master.status)
    missed_deadline, next_deadline = check_deadlines(observed, status, now)
    failure = members.failure or master.failure or missed_deadline
    if not failure and (why := why_it_cannot_succeed(job, status, scaling.counted)):
        failure = JobFailure(why)
    if failure:
        return end_job(observed, status, failure, now)
    status = job_status.with_phase(observed, status, now, waiting=waiting)

    # A plan must be able to end although pods cannot be created: what it writes is written before
    # all pod actions.
    plan_writes = [
        action for action in scaling.actions if isinstance(action, PatchStatus | WriteBackReplicas)
    ]
    other_scaling = [
        action
        for action in scaling.actions
        if not isinstance(action, PatchStatus | WriteBackReplicas)
    ]
    actions: list[Action] = [*replace_outdated(observed, now), *master.deletes, *members.deletes]
    actions += [DeletePod(pod.name, pod.metadata.uid) for pod in excess(observed)]
    actions += [_with_flavors(observed, create) for create in master.creates]
    actions += [_with_flavors(observed, _placed(create, scaling)) for create in members.creates]
    if confirm := (*master.confirm, *members.confirm):
        actions.append(ConfirmGone(confirm, now))
    actions += [*other_scaling, *master.events, *members.events]
    actions += workloads_while_active(observed, status, scaling, now, defaults)
    prerequisites = _prerequisites(observed, scaling, plan_writes, members, master, status.message)
    if not prerequisites:
        actions[:0] = plan_writes
        actions += [] if observed.infrastructure_ensured else [EnsureInfrastructure()]
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


def _placed(create: CreatePod, scaling: ScalingResult) -> CreatePod:
    """Return the creation of a member's pod, which avoids nodes if the running plan says so."""
    nodes = scaling.avoided_nodes.get(create.member)
    return dataclasses.replace(create, body=avoiding(create.body, nodes)) if nodes else create


def _prerequisites(
    observed: Observed,
    scaling: ScalingResult,
    plan_writes: Sequence[Action],
    members: ReconcileResult,
    master: ReconcileResult,
    message: str,
) -> list[Action]:
    """Return what must be done before the status is written that uses up names for new pods.

    Empty where nothing must. That is the infrastructure without which these pods could not start.
    It may be refused: so what scaling has decided is written before it, and, if the last attempt
    was refused, the status message that says so.
    """
    job = observed.job
    if master.creates:
        ensure = EnsureInfrastructure("All")
    elif members.creates and not observed.infrastructure_ensured:
        ensure = EnsureInfrastructure(
            "Rest" if job_status.has_no_members_yet(job.status) else "All"
        )
    else:
        return []
    status = scaling.status if plan_writes else job.status
    if observed.last_refusal:
        status = replace(status, message=message)
    return [*patches.job_status(job, status), *plan_writes, ensure]


def _phase_events(before: ElasticJobStatus, after: ElasticJobStatus) -> list[EmitEvent]:
    """Return the events of what an active job has become by the new status.

    Resumed, running, healthy or not.
    """
    events = []
    if job_status.is_suspended(before):
        waited = job_status.waited_for_quota(before)
        events.append(
            EmitEvent("JobResumed", "it has quota" if waited else "spec.runPolicy.suspend is false")
        )
    if after.phase == "Running" and before.phase not in ("Running", "Scaling"):
        events.append(EmitEvent("JobRunning", f"{after.workers} workers are ready"))
    return [*events, *health_events(before, after)]


def _with_flavors(observed: Observed, create: CreatePod) -> CreatePod:
    """Return the creation of a pod, on the nodes for which the job has quota."""
    return dataclasses.replace(create, body=with_flavors(create.body, observed.quota))


def _wait_for_quota(observed: Observed, why: str, now: float, defaults: Defaults) -> Decision:
    """Suspend the job, with a Workload that waits for quota."""
    name = observed.job.metadata.name
    ended = f"spec.jobName: ElasticJob {name!r} {why}"
    return _suspend(
        observed,
        now,
        reason=job_status.WAITING_FOR_QUOTA,
        cause=why,
        ended=ended,
        defaults=defaults,
    )


def _suspend(
    observed: Observed,
    now: float,
    *,
    reason: str = "Suspended",
    cause: str = job_status.SUSPENDED_BY_USER,
    ended: str = "",
    defaults: Defaults | None = None,
) -> Decision:
    """Delete the pods, and end whatever would scale the job, after the size it will be resumed with is stored.

    With `defaults` it goes on waiting for quota; else it gives its quota back.
    """
    job = observed.job
    result = suspend(observed, now)
    status = job_status.with_counts(observed, result.status)
    if has_succeeded(job, status, current_indices(status)):
        return end_job(observed, status, None, now)
    actions = [
        *result.deletes,
        *end_plans_and_requests(
            observed, ended or f"spec.jobName: ElasticJob {job.metadata.name!r} is suspended", now
        ),
    ]
    if defaults is not None:
        actions += workloads_at_rest(observed, status, now, defaults)
    elif observed.quota is not None and not observed.pods:
        actions += delete_workloads(observed.quota)
    status = job_status.with_suspension(observed, status, now, reason=reason, cause=cause)
    is_new = status.phase == "Suspended" != job.status.phase
    events = [EmitEvent("JobSuspended", status.message)] if is_new else []
    return decision_with_status(
        observed, status, actions, now, events=events, requeue_after=result.requeue_after
    )


def _retry(observed: Observed, policy: Retry, now: float) -> Decision:
    """Delete the pods of the last attempt.

    When they are gone and the delay is over, begin the next one.
    """
    job = observed.job
    status = job_status.without_suspension(observed.job, observed.job.status, now)
    failure, deadline_left = check_active_deadline(job, status, now)
    if failure:
        return end_job(observed, status, failure, now)
    ended = retry.end_attempt(observed, now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} begins anew, as an attempt has ended"
    actions = [*ended.deletes, *end_plans_and_requests(observed, reason, now)]
    left = retry.seconds_left(status, policy, now)
    if not observed.pods and not left:
        event = EmitEvent("JobRetried", f"retry {status.retries} begins")
        return Decision((*actions, *patches.job_status(job, retry.begun_anew(status)), event))
    status = job_status.with_retry(
        job, job_status.with_counts(observed, status), status.message, now
    )
    return decision_with_status(
        observed,
        status,
        actions,
        now,
        requeue_after=shortest_wait(left or None, deadline_left, ended.requeue_after),
    )
