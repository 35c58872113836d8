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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from elasticjob_operator.store import Store, key_of

MAX_JOBS = 200
"""The number of jobs with series of their own: those that have not ended, and the oldest, first."""
_LABELS = ("job_namespace", "job_name")


def job_metrics(stores: Iterable[Store]) -> Iterator[Metric]:
    """Yield the metrics of the first jobs, and how many jobs have none."""
    found = [(job, store) for store in stores for job in store.jobs()]
    first = heapq.nsmallest(MAX_JOBS, found, key=lambda each: _order(each[0]))
    jobs = [job for job, _ in first]
    yield _by_phase(jobs)
    yield _members(jobs)
    yield _restarts(jobs)
    yield _plans(first)
    yield from _progress(jobs)
    yield GaugeMetricFamily(
        "elasticjob_operator_jobs_without_metrics",
        "Jobs without series of their own.",
        value=len(found) - len(first),
    )


def _order(job: ElasticJob) -> tuple[bool, str, str, str]:
    metadata = job.metadata
    ended = job.status.phase in ENDED
    return (ended, str(metadata.creation_timestamp), metadata.namespace, metadata.name)


def _by_phase(jobs: Iterable[ElasticJob]) -> Metric:
    family = GaugeMetricFamily(
        "elasticjob_job_phase", "1 for the job's phase.", labels=[*_LABELS, "phase"]
    )
    for job in jobs:
        family.add_metric([*_names(job), job.status.phase or "New"], 1)
    return family


def _members(jobs: Iterable[ElasticJob]) -> Metric:
    family = GaugeMetricFamily(
        "elasticjob_job_members",
        "Members of all roles: wanted, with a pod that has not ended, and Ready.",
        labels=[*_LABELS, "state"],
    )
    for job in jobs:
        roles = job.status.replica_statuses.values()
        for state in ("desired", "active", "ready"):
            number = sum(getattr(role, state) for role in roles)
            family.add_metric([*_names(job), state], number)
    return family


def _restarts(jobs: Iterable[ElasticJob]) -> Metric:
    family = CounterMetricFamily(
        "elasticjob_job_restarts", "Restarts of members.", labels=[*_LABELS, "counted"]
    )
    for job in jobs:
        family.add_metric([*_names(job), "true"], job.status.restarts)
        family.add_metric([*_names(job), "false"], job.status.uncounted_restarts)
    return family


def _plans(jobs: Iterable[tuple[ElasticJob, Store]]) -> Metric:
    family = GaugeMetricFamily(
        "elasticjob_job_plans", "ScalePlans that exist.", labels=[*_LABELS, "phase"]
    )
    for job, store in jobs:
        requests = store.requests(key_of(job))
        phases = Counter(
            each.status.phase or "New" for each in requests if isinstance(each, ScalePlan)
        )
        for phase, number in phases.items():
            family.add_metric([*_names(job), phase], number)
    return family


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
