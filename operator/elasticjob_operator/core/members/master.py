"""Reconciles the master's pod: creates it, and replaces it under a new name when it has ended."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.limits import LEAST_MASTER_FORCE_DELETE_SECONDS
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.members.failure_policy import classify, is_counted
from elasticjob_operator.core.members.lost_pods import is_gone, is_uncreated
from elasticjob_operator.core.members.pod_reports import with_failure
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import may_be_retained
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.model.pod import Pod

_MASTER = (names.ROLE_MASTER, -1)
_CLOCK_DIFFERENCE_SECONDS = 5
"""Most difference between the clocks of two API servers, which write the times of creation."""


def reconcile_master(
    observed: Observed, status: ElasticJobStatus, *, defaults: Defaults, now: float
) -> ReconcileResult:
    """Count the end of a master's pod, delete the pod, and create the next one.

    A new master starts only when the old pod is deleted, because they share one stored state. On a
    lost node, which reports no end, the old pod is force-deleted after a while. If that master
    still runs, its next write of the state fails, and it ends. Until then it starts no world that
    it has not stored, and its last messages arrive before the pod is force-deleted.
    """
    result = ReconcileResult(status)
    job = observed.job
    masters = observed.masters
    live = [pod for pod in masters if not pod.finished]
    for pod in masters:
        counted = result.status.master
        # Until its end is counted, a pod has the counters of the status as annotations.
        if pod.training_ended and (pod.restarts, pod.uncounted_restarts) == (
            counted.restarts,
            counted.uncounted_restarts,
        ):
            _count_termination(result, job, pod, now)
    for pod in live:
        if not pod.terminating and _is_older_than_its_account(pod, observed.account_created):
            result.delete(pod)
            note = (
                f"{pod.name}: its service account was created again; only a new pod gets a token "
                "of it"
            )
            result.record_event("MasterInterrupted", [note])
    wait = backoff.seconds_left(result.status.master.back_off, now)
    for pod in masters:
        if pod.terminating:
            seconds = max(
                job.spec.master.pod_force_delete_seconds, LEAST_MASTER_FORCE_DELETE_SECONDS
            )
            result.force_delete_if_stuck(pod, seconds, now)
        elif (pod.training_ended and not wait and not may_be_retained(job, pod)) or (
            not pod.finished and pod is not live[-1]
        ):
            result.delete(pod)
    if wait and all(pod.training_ended for pod in live):
        result.requeue(wait)
    elif not live and not result.failure:
        master = result.status.master
        last = names.master_pod(job.metadata.name, master.incarnations - 1)
        is_new = not master.incarnations or is_uncreated(observed, _MASTER, last)
        if not is_new and not is_gone(observed, _MASTER, last, masters):
            result.confirm.append(last)
            return result
        incarnation = max(master.incarnations - is_uncreated(observed, _MASTER, last), 0)
        body = master_pod(
            job,
            incarnation,
            restarts=master.restarts,
            uncounted_restarts=master.uncounted_restarts,
            defaults=defaults,
        )
        result.creates.append(CreatePod(body))
        result.status = replace(result.status, master=replace(master, incarnations=incarnation + 1))
    return result


def _is_older_than_its_account(pod: Pod, account_created: str) -> bool:
    """Return whether the service account of a pod was deleted and created again after the pod.

    The token of such a master is refused, so it can store nothing. It would end by itself, but its
    state would be lost if its ConfigMap were deleted meanwhile.
    """
    created = pod.metadata.creation_timestamp
    if not (created and account_created):
        return False
    return parse_time(account_created) - parse_time(created) > _CLOCK_DIFFERENCE_SECONDS


def _count_termination(result: ReconcileResult, job: ElasticJob, pod: Pod, now: float) -> None:
    """Count the end of a master's pod; while the job runs no end is a success."""
    failure = classify(pod)
    master = result.status.master
    counted = is_counted(job, pod)
    result.status = with_failure(result.status, pod, failure.action if counted else "Ignore", now)
    if failure.action == "FailJob":
        result.failure = JobFailure(f"the master cannot run: {failure.reason}", "Permanent")
        return
    back_off, consequence = backoff.after_termination(
        master.back_off, pod, now, from_outside=not counted
    )
    notes = [f"{pod.name}: {failure.reason}; {consequence}"]
    if not counted:
        master = replace(
            master, uncounted_restarts=master.uncounted_restarts + 1, back_off=back_off
        )
        result.record_event("MasterInterrupted", notes)
    else:
        master = replace(master, restarts=master.restarts + 1, back_off=back_off)
        result.status = replace(result.status, last_failure=f"{pod.name}: {failure.summary}")
        result.record_event("MasterFailed", notes, warning=True)
        limit = job.spec.master.restart_limit
        if master.restarts > limit:
            result.failure = JobFailure(
                f"the master failed and spec.master.restartLimit {limit} is used up: "
                f"{failure.reason}"
            )
    result.status = replace(result.status, master=master)
