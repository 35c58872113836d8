"""The job's one master pod: created, and replaced under a new name when it ends."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from msgspec.structs import replace

from elasticjob_operator.core.manifests import pods
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.members.failure_policy import classify
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Defaults, Observed, Pod

_KILLED = (137, 143)


def reconcile_master(
    observed: Observed, status: ElasticJobStatus, *, defaults: Defaults, now: float
) -> ReconcileResult:
    """Return what the master needs.

    A second one is not started before the first is gone, for they share one state; only one on a lost node, which is
    not seen to end, is given up after a while. Should it still run, its next write of the state fails, and it ends.
    """
    result, job = ReconcileResult(status), observed.job
    masters = observed.masters
    live = [pod for pod in masters if not pod.finished]
    for pod in masters:
        known = result.status.master
        if pod.finished and known.restarts <= pod.restarts and known.uncounted_restarts <= pod.uncounted_restarts:
            _count_termination(result, job, pod, now)
    wait = backoff.seconds_left(result.status.master.back_off, now)
    for pod in masters:
        if pod.terminating:
            result.force_delete(pod, job.spec.master.pod_force_delete_seconds, now)
        elif (pod.finished and not wait) or (not pod.finished and pod is not live[-1]):
            result.delete(pod)
    if not live and wait:
        result.requeue(wait)
    elif not live and not result.failure:
        master = result.status.master
        body = pods.master_pod(
            job,
            master.incarnations,
            restarts=master.restarts,
            uncounted=master.uncounted_restarts,
            defaults=defaults,
        )
        result.creates.append(CreatePod(body))
        result.status = replace(result.status, master=replace(master, incarnations=master.incarnations + 1))
    return result


def _count_termination(result: ReconcileResult, job: ElasticJob, pod: Pod, now: float) -> None:
    """Take the end of a master into the status, counted or not; a master never ends well while its job goes on."""
    failure, master = classify(pod), result.status.master
    if failure.action == "FailJob":
        result.failure = f"the master cannot run: {failure.reason}"
        return
    waiting = backoff.after_termination(master.back_off, pod, now)
    told = [f"{pod.name}: {failure.reason}; {backoff.describe(waiting)}"]
    if not _counted(pod, failure.action):
        master = replace(master, uncounted_restarts=pod.uncounted_restarts + 1, back_off=waiting)
        result.record_event("MasterInterrupted", told)
    else:
        master = replace(master, restarts=pod.restarts + 1, back_off=waiting)
        result.record_event("MasterFailed", told, warning=True)
        limit = job.spec.master.restart_limit
        if master.restarts > limit:
            result.failure = f"the master failed and spec.master.restartLimit {limit} is used up: {failure.reason}"
    result.status = replace(result.status, master=master)


def _counted(pod: Pod, action: str) -> bool:
    ended = pod.terminated
    if ended is not None and ended.exit_code in _KILLED and ended.reason != "OOMKilled":
        return False
    return pod.status.phase == "Succeeded" or action != "Ignore"
