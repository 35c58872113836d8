"""Copies the status of plans to their ScaleIns and ScaleOuts, and deletes ended ones when due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticjob_api import names
from elasticjob_api.elasticjob import RunPolicy
from elasticjob_api.scale_requests import RequestPhase, ScaleIn, ScaleOut, ScaleRequestStatus
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import (
    Action,
    DeleteScaling,
    PatchStatus,
    shortest_wait,
)
from elasticjob_operator.core.model.observed import Observed, controllers_of, key_of_request

ScaleRequest = ScaleIn | ScaleOut
MAX_ENDED = 1000
"""Ended requests of one job that are kept until their `ttlSecondsAfterFinished` has passed."""
FINISHED_PHASES: tuple[RequestPhase, ...] = ("ScaleSucceeded", "ScaleFailed")


def unfinished_requests(observed: Observed) -> list[ScaleRequest]:
    """Return the ScaleIns and ScaleOuts that have no final phase and are not being deleted."""
    return [request for request in observed.requests.values() if _is_unfinished(request)]


def _is_unfinished(request: ScaleRequest) -> bool:
    is_deleted = request.metadata.deletion_timestamp is not None
    return request.status.phase not in FINISHED_PHASES and not is_deleted


def plan_of(observed: Observed, request: ScaleRequest) -> ScalePlan | None:
    """Return the plan that was created for a ScaleIn or ScaleOut, if it exists."""
    return observed.plan_by_request.get(key_of_request(request))


def is_unrecorded(observed: Observed, plan: ScalePlan) -> bool:
    """Return whether this is the plan of a request whose status does not name it yet."""
    request = observed.request_of(plan)
    return request is not None and request.status.plan is None and _is_unfinished(request)


def copy_plan_status(observed: Observed, now: float) -> list[Action]:
    """Return the writes that copy each plan's status to its ScaleIn or ScaleOut."""
    actions: list[Action] = []
    for request in unfinished_requests(observed):
        plan = plan_of(observed, request)
        if plan is None:
            if request.status.plan is not None:
                actions += finish(
                    request, "ScaleFailed", f"ScalePlan {request.status.plan} was deleted", now
                )
        elif plan.status.phase in FINISHED:
            phase: RequestPhase = (
                "ScaleSucceeded" if plan.status.phase == "Succeeded" else "ScaleFailed"
            )
            pods = [*plan.status.created_pods, *plan.status.removed_pods]
            status = replace(
                request.status, plan=plan.metadata.name, pods=pods, script=plan.status.script
            )
            actions += finish(request, phase, plan.status.message, now, status=status)
        elif request.status.phase != "Scaling":
            status = replace(request.status, phase="Scaling", message="", plan=plan.metadata.name)
            actions += patches.scaling_status(request, status)
    return actions


def finish(
    request: ScaleRequest,
    phase: RequestPhase,
    message: str,
    now: float,
    *,
    status: ScaleRequestStatus | None = None,
) -> list[PatchStatus]:
    """Return the write that gives a ScaleIn or ScaleOut its final phase."""
    status = replace(
        status or request.status, phase=phase, message=message, completion_time=format_time(now)
    )
    return patches.scaling_status(request, status)


def delete_expired(
    requests: Iterable[ScaleRequest], now: float
) -> tuple[list[DeleteScaling], float | None]:
    """Return the deletions of expired requests, and the seconds until the next one is due.

    Those that ended first are also deleted if there are more than `MAX_ENDED`.
    """
    actions: list[DeleteScaling] = []
    due: float | None = None
    ended = [
        (parse_time(request.status.completion_time), request)
        for request in requests
        if request.status.phase in FINISHED_PHASES
        and request.metadata.deletion_timestamp is None
        and request.status.completion_time is not None
    ]
    ended.sort(key=lambda each: (each[0], each[1].metadata.uid))
    surplus = len(ended) - MAX_ENDED
    for position, (completed, request) in enumerate(ended):
        left = completed + request.spec.ttl_seconds_after_finished - now
        if left <= 0 or position < surplus:
            actions.append(patches.deletion(request))
        else:
            due = shortest_wait(due, left)
    return actions, due


def delete_oldest(finished: Iterable[ScalePlan], *, keep: int) -> list[DeleteScaling]:
    """Return the deletions of finished plans beyond the number to keep."""
    by_end = sorted(
        finished, key=lambda item: (item.status.completion_time or "", item.metadata.uid)
    )
    return [patches.deletion(item) for item in by_end[: max(len(by_end) - keep, 0)]]


def delete_orphaned_plans(observed: Observed) -> list[DeleteScaling]:
    """Return the deletions of unfinished plans whose request was deleted, which cancels them.

    The garbage collector would delete them later.
    """
    present = {request.metadata.uid for request in observed.requests.values()}
    return [
        patches.deletion(item)
        for item in observed.plans
        if item.status.phase not in FINISHED
        and any(uid not in present for _, _, uid in controllers_of(item))
    ]


def no_job(name: str, namespace: str) -> str:
    """Return why a plan or request is refused that names a job which does not exist."""
    return f"spec.jobName: there is no ElasticJob {name!r} in namespace {namespace!r}"


def end_without_job(
    name: str, namespace: str, requests: Sequence[ScalePlan | ScaleIn | ScaleOut], now: float
) -> tuple[list[PatchStatus | DeleteScaling], float | None]:
    """Return the actions that end these plans and requests, and delete ended ones, as for a job.

    A job's default number of plans is kept. Plans of an earlier job of this name do not count: the
    garbage collector deletes them, or their user has asked to keep them.

    Returns:
        The actions, and the seconds after which the next deletion is due.
    """
    present = [item for item in requests if item.metadata.deletion_timestamp is None]
    message = no_job(name, namespace)
    refusals: list[PatchStatus] = []
    ended: list[ScalePlan] = []
    scale_requests: list[ScaleRequest] = []
    for item in present:
        if not isinstance(item, ScalePlan):
            scale_requests.append(item)
            if item.status.phase not in FINISHED_PHASES:
                refusals += finish(item, "ScaleFailed", message, now)
        elif item.status.phase not in FINISHED:
            status = replace(
                item.status, phase="Failed", message=message, completion_time=format_time(now)
            )
            refusals += patches.scaling_status(item, status)
        elif names.LABEL_JOB_UID not in item.metadata.labels and not item.metadata.owner_references:
            ended.append(item)
    expired, due = delete_expired(scale_requests, now)
    return [
        *refusals,
        *expired,
        *delete_oldest(ended, keep=RunPolicy().plan_history_limit),
    ], due
