"""The key of a job, by which its objects are cached and queued."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan

Custom = ElasticJob | ScalePlan | ScaleIn | ScaleOut


@dataclass(frozen=True)
class JobKey:
    """Namespace and name of a job, the key of the work queue.

    The job need not exist: a plan may name any job.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(custom: Custom) -> JobKey:
    """Return the key of a job, or of the job that a plan or request names."""
    name = custom.metadata.name if isinstance(custom, ElasticJob) else custom.spec.job_name
    return JobKey(custom.metadata.namespace, name)
