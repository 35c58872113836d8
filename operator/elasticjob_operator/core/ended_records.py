"""Describes the end of a pod or a job in a record for the log, which outlives the object."""

from __future__ import annotations

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_api.pod_identity import member_of_name

from elasticjob_operator.core.members.pod_reports import failure_of, last_words
from elasticjob_operator.core.model.identity import controlling_job, restored
from elasticjob_operator.core.model.pod import Pod

_MAX_MESSAGE = 1024
_DELETED = "Deleted"


def pod_record(before: Pod | None, after: Pod | None, now: float) -> Json | None:
    """Return the record of a pod if this change ended its training, or deleted it before that.

    `after` is None for a deleted pod.
    """
    pod = after or before
    job = controlling_job(pod) if pod is not None else None
    member = member_of_name(job.name, pod.name) if pod is not None and job is not None else None
    if (
        pod is None
        or job is None
        or member is None
        or (before is not None and before.training_ended)
    ):
        return None
    if after is not None and not after.training_ended:
        return None
    pod = restored(pod, job, member)
    end: Json = msgspec.to_builtins(failure_of(pod, "Ignore", now))
    del end["action"]  # it is decided later
    if after is None:
        end["reason"] = _DELETED
    if words := last_words(pod):
        end["message"] = words[-_MAX_MESSAGE:]
    whose = {
        "namespace": job.namespace,
        "job": job.name,
        "jobUid": job.uid,
        "uid": pod.metadata.uid,
    }
    return {"kind": "Pod", **whose, **end}


def job_record(before: ElasticJob | None, after: ElasticJob | None) -> Json | None:
    """Return the record of a job if this change ended it or an attempt, or deleted it."""
    job = after or before
    if job is None or (after is not None and not _ended(after)):
        return None
    if before is not None and _ended(before) and (after is None or _end(before) == _end(after)):
        return None
    status = job.status
    metadata = job.metadata
    phase = str(status.phase) if status.phase else "New"
    reasons = [each.reason for each in status.conditions if each.type == phase]
    members = {
        role: {"desired": each.desired, "succeeded": each.succeeded, "failed": each.failed}
        for role, each in status.replica_statuses.items()
    }
    found: Json = {
        "kind": "Job",
        "namespace": metadata.namespace,
        "job": metadata.name,
        "uid": metadata.uid,
        "phase": phase,
        "reason": _DELETED if after is None else reasons[0] if reasons else phase,
        "message": status.message[:_MAX_MESSAGE],
        "createdAt": metadata.creation_timestamp,
        "startedAt": status.start_time,
        "finishedAt": status.completion_time,
        "restarts": status.restarts,
        "uncountedRestarts": status.uncounted_restarts,
        "retries": status.retries,
        "members": members,
    }
    if status.progress is not None:
        found |= {"step": status.progress.step, "totalSteps": status.progress.total_steps}
    return {key: value for key, value in found.items() if value is not None and value != ""}


def _ended(job: ElasticJob) -> bool:
    return job.status.phase in (*ENDED, "Retrying")


def _end(job: ElasticJob) -> tuple[str | None, int]:
    return job.status.phase, job.status.retries
