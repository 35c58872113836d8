"""Errors of the execution of a decision, and of the state that it is based on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import KubeError, Refused, TryLater
from elasticjob_kube.resources import Resource

from elasticjob_operator.core.manifests.infrastructure import is_of_earlier_job

COLLECTION_SECONDS = 60.0
"""The time after a job's creation in which remaining objects of an earlier job of its name are not
reported.
"""


class StorageRestored(Exception):
    """The cluster's storage was restored from a backup: everything known of it may be wrong."""


class StaleState(Exception):
    """The decision was based on a stale state; the store is up to date now, so decide again."""


class NotServed(Refused):
    """The cluster does not serve a kind that an option needs; its watch logs this for all jobs."""


def name_taken(
    job: ElasticJob, resource: Resource, existing: Mapping[str, Any], advice: str, now: float
) -> KubeError:
    """Return the error for a foreign object that has the name of an object that the job needs.

    If it belongs to an earlier job, the garbage collector is deleting it, and a later try succeeds.
    """
    what = f"{resource.kind} {existing['metadata']['name']}"
    if not is_of_earlier_job(existing, job):
        message = f"{what} exists and does not belong to this job; {advice}"
        return Refused(409, "Foreign", message)
    message = (
        f"{what} belongs to an earlier ElasticJob {job.metadata.name} "
        "until the garbage collector has deleted it"
    )
    if now - parse_time(job.metadata.creation_timestamp) < COLLECTION_SECONDS:
        return TryLater(409, "BeingCollected", message)
    return Refused(409, "BeingCollected", message)
