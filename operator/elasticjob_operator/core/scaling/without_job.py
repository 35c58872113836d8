"""Ends plans and requests that name a job which does not exist."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api import names
from elasticjob_api.elasticjob import RunPolicy
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import DeletePlan, DeleteScaler, PatchStatus
from elasticjob_operator.core.scaling import request_status


def no_job(name: str, namespace: str) -> str:
    """Return why a plan or request is refused that names a job which does not exist."""
    return f"spec.jobName: there is no ElasticJob {name!r} in namespace {namespace!r}"


def end_without_job(
    name: str, namespace: str, requests: Sequence[ScalePlan | ScaleIn | ScaleOut], now: float
) -> tuple[list[PatchStatus | DeletePlan | DeleteScaler], float | None]:
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
    scalers: list[ScaleIn | ScaleOut] = []
    for item in present:
        if not isinstance(item, ScalePlan):
            scalers.append(item)
            if item.status.phase not in request_status.FINISHED_PHASES:
                refusals += request_status.finish(item, "ScaleFailed", message, now)
        elif item.status.phase not in FINISHED:
            status = replace(
                item.status, phase="Failed", message=message, completion_time=format_time(now)
            )
            refusals += patches.plan_status(item, status)
        elif names.LABEL_JOB_UID not in item.metadata.labels and not item.metadata.owner_references:
            ended.append(item)
    expired, due = request_status.delete_expired(scalers, now)
    return [
        *refusals,
        *expired,
        *request_status.delete_oldest(ended, keep=RunPolicy().plan_history_limit),
    ], due
