"""The spans of a job's trace that the operator knows: the job, its plans and its pods.

Each is made from the change that ends it. So an operator that starts later, and lists objects that
have ended before, makes none of them again. What has ended while no operator watched has no span.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import parse_indices
from elasticjob_api.job_status import ENDED
from elasticjob_api.pod_identity import member_of_name
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import time_or_none
from elasticjob_api.traces import Context, Span, Value, context_of_job, parse_context

from elasticjob_operator.core.model.pod import Pod


def job_context(job: ElasticJob) -> Context:
    """Return the span of a job."""
    given = job.metadata.annotations.get(names.ANNOTATION_TRACEPARENT, "")
    return context_of_job(job.metadata.uid, given)


def job_span(before: ElasticJob, after: ElasticJob | None, now: float) -> Span | None:
    """Return the span of a job, from its creation on, if this change has ended or deleted it."""
    job = after or before
    if before.status.phase in ENDED or (after is not None and after.status.phase not in ENDED):
        return None
    given = parse_context(job.metadata.annotations.get(names.ANNOTATION_TRACEPARENT, ""))
    return Span(
        "job",
        job_context(job),
        given.span_id if given else "",
        _time(job.metadata.creation_timestamp, now),
        _time(job.status.completion_time, now),
        {
            **_of_job(job),
            "elasticjob.phase": (after and after.status.phase) or "Deleted",
            "elasticjob.message": job.status.message,
            "elasticjob.restarts": job.status.restarts,
        },
        failed=job.status.phase == "Failed",
    )


def plan_span(job: ElasticJob, before: ScalePlan, after: ScalePlan, now: float) -> Span | None:
    """Return the span of a plan, from its creation on, if this change has ended it."""
    status = after.status
    if before.status.phase in FINISHED or status.phase not in FINISHED:
        return None
    sizes: dict[str, Value] = {
        f"elasticjob.members.{when}.{role}": _size(indices)
        for when, roles in (("before", status.before), ("after", status.targets))
        for role, indices in roles.items()
    }
    parent = job_context(job)
    return Span(
        "plan",
        parent.child("plan", after.metadata.uid),
        parent.span_id,
        _time(after.metadata.creation_timestamp, now),
        _time(status.completion_time, now),
        {
            **_of_job(job),
            "elasticjob.plan": after.metadata.name,
            "elasticjob.source": after.spec.source,
            "elasticjob.reason": after.spec.reason,
            "elasticjob.change": status.change,
            "elasticjob.phase": str(status.phase),
            "elasticjob.message": status.message,
            **sizes,
        },
        failed=status.phase == "Failed",
    )


def pod_span(
    job: ElasticJob, before: Pod, after: Pod, plans: tuple[ScalePlan, ...], now: float
) -> Span | None:
    """Return the span of a pod, from its creation on, if its containers run by this change."""
    member = member_of_name(job.metadata.name, after.name)
    if before.status.phase != "Pending" or after.status.phase == "Pending" or member is None:
        return None
    created = _time(after.metadata.creation_timestamp, now)
    whole = job_context(job)
    under_way = [plan for plan in plans if _began(plan, created) and member.index >= 0]
    plan = under_way[0] if under_way else None
    return Span(
        "pod",
        whole.child("pod", after.metadata.uid),
        whole.child("plan", plan.metadata.uid).span_id if plan else whole.span_id,
        created,
        now,
        {
            **_of_job(job),
            "k8s.pod.name": after.name,
            "k8s.pod.uid": after.metadata.uid,
            "k8s.node.name": after.spec.node_name,
            "elasticjob.role": member.role,
            **({"elasticjob.index": member.index} if member.index >= 0 else {}),
            **({"elasticjob.plan": plan.metadata.name} if plan else {}),
        },
        failed=after.status.phase == "Failed",
    )


def _began(plan: ScalePlan, created: float) -> bool:
    """Return whether a plan was under way at this time, or is now."""
    start = time_or_none(plan.status.start_time)
    end = time_or_none(plan.status.completion_time)
    return start is not None and start <= created and (end is None or created <= end)


def _of_job(job: ElasticJob) -> dict[str, Value]:
    return {
        "k8s.namespace.name": job.metadata.namespace,
        "elasticjob.job": job.metadata.name,
        "elasticjob.job.uid": job.metadata.uid,
    }


def _size(indices: str) -> int:
    """Return the number of indices of a status, in which users can write any text."""
    try:
        return len(parse_indices(indices))
    except ValueError:
        return 0


def _time(text: str | None, now: float) -> float:
    """Return a time in a status; not one to come, and now if there is none."""
    found = time_or_none(text)
    return now if found is None else min(found, now)
