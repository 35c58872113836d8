"""Errors of the execution of a decision."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import KubeError, Refused, TryLater
from elasticjob_kube.resources import Resource

from elasticjob_operator.core.manifests.infrastructure import is_of_earlier_job

COLLECTION_SECONDS = 60.0
"""How long after a job's creation nobody is told that objects of an earlier job of its name are
still there.
"""


class StaleState(Exception):
    """The decision was made on a stale state; the store has been updated, so decide again."""


class NotServed(Refused):
    """The cluster does not serve a kind that an option of the operator needs.

    Its watch says so, once for all jobs.
    """


def name_taken(
    job: ElasticJob, resource: Resource, existing: Mapping[str, Any], advice: str
) -> KubeError:
    """Return the error for an object that is not the job's and has the name of one that it needs.

    Where it is that of an earlier job, which the garbage collector is deleting, it only has to be
    tried again.
    """
    what = f"{resource.kind} {existing['metadata']['name']}"
    if not is_of_earlier_job(existing, job):
        return Refused(409, "Foreign", f"{what} exists and is not this job's; {advice}")
    message = f"{what} is that of an earlier ElasticJob {job.metadata.name} until the garbage collector has deleted it"
    if time.time() - parse_time(job.metadata.creation_timestamp) < COLLECTION_SECONDS:
        return TryLater(409, "BeingCollected", message)
    return Refused(409, "BeingCollected", message)
