"""Sends the spans of jobs, plans and pods, as the watches report what ends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.ownership import may_be_of_job
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.trace_export import TraceExport

from elasticjob_operator.core.model.identity import controlling_job, identity_of
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.traces import job_span, plan_span, pod_span
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store


@dataclass
class Traces:
    """The spans of the objects of a store; `now` returns the time."""

    export: TraceExport
    store: Store
    now: Callable[[], float]

    def pod_changed(self, key: JobKey | None, before: Pod | None, after: Pod | None) -> None:
        """Send the span of a job's pod if its containers run by this change."""
        if not self.export.is_on or key is None or before is None or after is None:
            return
        if before.status.phase == after.status.phase:
            return
        job = self.store.job(key)
        if job is not None and controlling_job(after) == identity_of(job):
            self.export.send(
                pod_span(job, before, after, self.store.observed(job).plans, self.now())
            )

    def custom_changed(self, before: object, after: object) -> None:
        """Send the span of a job or a plan if this change has ended it."""
        if not self.export.is_on:
            return
        if isinstance(before, ElasticJob) and (after is None or isinstance(after, ElasticJob)):
            self.export.send(job_span(before, after, self.now()))
        elif isinstance(before, ScalePlan) and isinstance(after, ScalePlan):
            metadata = after.metadata
            job = self.store.job(JobKey(metadata.namespace, after.spec.job_name))
            if job and may_be_of_job(metadata, after.spec.job_name, job.metadata.uid):
                self.export.send(plan_span(job, before, after, self.now()))
