"""The metrics of single jobs, from their status: of a bounded number, until each is deleted.

They need no connection to the jobs' masters, which only pods of the job can reach by default.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import time_or_none
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from elasticjob_operator.core.conditions import condition_of
from elasticjob_operator.job_keys import key_of
from elasticjob_operator.store import Store

MAX_JOBS = 200
"""The number of jobs with series: those that have not ended, the oldest first, and then those that
ended last.
"""
_LABELS = ("job_namespace", "job_name")


def job_metrics(stores: Iterable[Store]) -> Iterator[Metric]:
    """Yield the metrics of the first jobs, and how many jobs have none."""
    found = [(job, store) for store in stores for job in store.jobs()]
    first = heapq.nsmallest(MAX_JOBS, found, key=lambda each: _order(each[0]))
    jobs = [job for job, _ in first]
    phase = GaugeMetricFamily(
        "elasticjob_job_phase", "1 for the job's phase.", labels=_with("phase")
    )
    members = GaugeMetricFamily(
        "elasticjob_job_members",
        "Members of all roles: wanted, with a pod that has not ended, and Ready.",
        labels=_with("state"),
    )
    restarts = CounterMetricFamily(
        "elasticjob_job_restarts", "Restarts of members.", labels=_with("counted")
    )
    plans = GaugeMetricFamily(
        "elasticjob_job_plans", "ScalePlans that exist.", labels=_with("phase")
    )
    master = GaugeMetricFamily(
        "elasticjob_job_master_ready", "Whether a training job's master is ready.", labels=_LABELS
    )
    for job, store in first:
        name = _names(job)
        if job.status.phase in ("Running", "Scaling"):
            ready = condition_of(job.status, "MasterReady")
            master.add_metric(name, ready is not None and ready.status == "True")
        phase.add_metric([*name, job.status.phase or "New"], 1)
        for state in ("desired", "active", "ready"):
            number = sum(getattr(role, state) for role in job.status.replica_statuses.values())
            members.add_metric([*name, state], number)
        restarts.add_metric([*name, "true"], job.status.restarts)
        restarts.add_metric([*name, "false"], job.status.uncounted_restarts)
        for plan_phase, number in _plans_by_phase(job, store).items():
            plans.add_metric([*name, plan_phase], number)
    yield from (phase, members, restarts, plans, master)
    yield from _progress(jobs)
    yield GaugeMetricFamily(
        "elasticjob_operator_jobs_without_metrics",
        "Jobs without series of their own.",
        value=len(found) - len(first),
    )


def _order(job: ElasticJob) -> tuple[bool, float, str, str, str]:
    metadata = job.metadata
    ended = job.status.phase in ENDED
    since_end = -(time_or_none(job.status.completion_time) or 0.0) if ended else 0.0
    return (ended, since_end, str(metadata.creation_timestamp), metadata.namespace, metadata.name)


def _plans_by_phase(job: ElasticJob, store: Store) -> Counter[str]:
    return Counter(
        each.status.phase or "New"
        for each in store.requests(key_of(job))
        if isinstance(each, ScalePlan)
    )


def _with(label: str) -> list[str]:
    return [*_LABELS, label]


def _progress(jobs: Iterable[ElasticJob]) -> Iterator[Metric]:
    """Yield the progress as the masters have written it; a job without any has no series."""
    step = GaugeMetricFamily("elasticjob_job_step", "The last finished step.", labels=_LABELS)
    total = GaugeMetricFamily("elasticjob_job_total_steps", "All steps.", labels=_LABELS)
    rate = GaugeMetricFamily(
        "elasticjob_job_samples_per_second", "Throughput of all members.", labels=_LABELS
    )
    stalled = GaugeMetricFamily(
        "elasticjob_job_stalled", "1 while the training is stalled.", labels=_LABELS
    )
    for job in jobs:
        progress = job.status.progress
        if progress is None:
            continue
        step.add_metric(_names(job), progress.step)
        if progress.total_steps is not None:
            total.add_metric(_names(job), progress.total_steps)
        if progress.samples_per_second is not None:
            rate.add_metric(_names(job), progress.samples_per_second)
        stalled.add_metric(_names(job), progress.stalled_since is not None)
    yield from (step, total, rate, stalled)


def _names(job: ElasticJob) -> list[str]:
    return [job.metadata.namespace, job.metadata.name]
