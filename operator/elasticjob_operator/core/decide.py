"""Decides what to do now for one job, from everything observed of it.

The operator calls `decide` again after every change, and after the decision's own actions, until
there are none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from elasticjob_api import names
from elasticjob_api.job_status import ENDED
from msgspec.structs import replace

from elasticjob_operator.core import job_status
from elasticjob_operator.core.active_job import reconcile_active_job
from elasticjob_operator.core.invalid_status import decision_on_invalid_status
from elasticjob_operator.core.job_end import clean_up_job, finish_job, stop_job, why_stopped
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.changed_roles import store_changed_roles
from elasticjob_operator.core.members.effective_spec import (
    fill_in_sizes,
    with_roles_of_status,
    with_sizes,
)
from elasticjob_operator.core.members.failure_policy import restart_rules_error
from elasticjob_operator.core.members.lost_pods import (
    CHECK_SECONDS,
    confirm_lost_pods,
    delete_tampered_pods,
)
from elasticjob_operator.core.members.retained_pods import with_retained_apart
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Decision, shortest_wait
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.quota.waiting import why_no_pods
from elasticjob_operator.core.retry import retry_job
from elasticjob_operator.core.suspend import suspend_job

_ORPHAN = "orphan"
"""The finalizer of a deletion that leaves the job's pods to the user (`--cascade=orphan`)."""


def decide(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Return what to do now for one job.

    Args:
        observed: the job and everything that belongs to it.
        now: seconds since the epoch.
        defaults: images for jobs that name none.
    """
    # 1. May the operator act on this job, and can it rely on what it has stored?
    if _is_left_alone(observed):
        return Decision()
    if observed.share is not None and observed.share.is_undecided and not observed.pods:
        return Decision()  # the pool's decision calls this again
    if writes := store_changed_roles(observed):
        return Decision(tuple(writes))
    size_writes = fill_in_sizes(observed)
    observed = with_roles_of_status(with_sizes(observed))
    if invalid := decision_on_invalid_status(observed, now):
        return invalid
    # 2. Does it know for certain which pods exist?
    observed = with_retained_apart(observed)
    if pods := confirm_lost_pods(observed, now) or delete_tampered_pods(observed):
        return Decision(tuple(pods))
    # 3. What does the job need in this part of its life?
    decision = next(found for part in _PARTS_OF_LIFE if (found := part(observed, now, defaults)))
    return dataclasses.replace(
        decision,
        actions=(*decision.actions, *size_writes),
        requeue_after=shortest_wait(
            decision.requeue_after, CHECK_SECONDS if observed.kept else None
        ),
    )


def _is_left_alone(observed: Observed) -> bool:
    """Return whether another controller manages the job, or it is deleted without its pods."""
    job = observed.job
    manager = job.spec.run_policy.managed_by
    is_ours = manager is None or manager == names.MANAGED_BY
    is_deleted = job.metadata.deletion_timestamp is not None
    return not is_ours or (is_deleted and _ORPHAN in job.metadata.finalizers)


def _begin(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    """Validate the templates of a new job, and write its first status; then create its pods."""
    job = observed.job
    if job.status.phase is not None:
        return None
    status = job_status.initialized(observed, now)
    if error := validation_error(job) or restart_rules_error(job):
        return finish_job(observed, status, "Failed", error, now)
    waits = job.spec.run_policy.suspend or why_stopped(job) or why_no_pods(observed, now)
    if observed.pods or observed.last_refusal or waits:
        return Decision((*patches.job_status(job, status),))
    # Plans begin when the job's size is stored.
    begun = dataclasses.replace(
        observed, job=replace(job, status=status), plans=(), scale_ins=(), scale_outs=()
    )
    decision = reconcile_active_job(begun, now, defaults)
    first = patches.job_status(job, status)
    return dataclasses.replace(decision, actions=patches.with_earlier(first, decision.actions))


def _clean_up(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    has_ended = observed.job.status.phase in ENDED
    return clean_up_job(observed, now) if has_ended else None


def _stop(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    return stop_job(observed, now) if why_stopped(observed.job) else None


def _suspend(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    return suspend_job(observed, now) if observed.job.spec.run_policy.suspend else None


def _wait_for_quota(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    why = why_no_pods(observed, now)
    return suspend_job(observed, now, why=why, defaults=defaults) if why else None


def _retry(observed: Observed, now: float, defaults: Defaults) -> Decision | None:
    policy = observed.job.spec.run_policy.retry
    if policy is None or observed.job.status.retry_time is None:
        return None
    return retry_job(observed, policy, now)


_PARTS_OF_LIFE: tuple[Callable[[Observed, float, Defaults], Decision | None], ...] = (
    _begin,
    _clean_up,
    _stop,
    _suspend,
    _wait_for_quota,
    _retry,
    reconcile_active_job,
)
"""The parts of a job's life, in this order. The first one that applies to the job decides."""
