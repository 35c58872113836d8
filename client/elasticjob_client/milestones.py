"""What can be waited for in a job's life: a phase, a condition, or a step of its training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

from elasticjob_api.elasticjob import ElasticJob, Phase
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, JobEnded
from elasticjob_client.jobs import ENDED, read
from elasticjob_client.waiting import wait_until

_PHASES: tuple[Phase, ...] = get_args(Phase)
_STEP = re.compile(r"step=([0-9]{1,16})")
Milestone = Callable[[ElasticJob], bool]


def parse_phase(text: str, *, others: str = "") -> Phase:
    """Return the phase that a text names, in whatever case.

    Raises `ClientError`; `others`: what it could be beside.
    """
    for phase in _PHASES:
        if phase.casefold() == text.casefold():
            return phase
    known = ", ".join(each.lower() for each in _PHASES)
    raise ClientError(f"{text[:40]!r} is no phase of a job: give {known}{others}")


def parse_milestone(text: str) -> Milestone:
    """Return whether a job has reached what a text names.

    A phase such as running, `ended`, or step=N.

    Raises:
        ClientError: it names nothing of these.
    """
    if match := _STEP.fullmatch(text):
        step = int(match[1])
        return lambda job: job.status.progress is not None and job.status.progress.step >= step
    if text.casefold() == "ended":
        return lambda job: job.status.phase in ENDED
    phase = parse_phase(text, others=", ended, or step=N")
    return lambda job: (job.status.phase or "Pending") == phase


async def wait_for(
    cluster: Cluster, name: str, milestone: str, *, seconds: float | None = None
) -> ElasticJob:
    """Wait until a job has reached a milestone; return the job as it is then.

    Raises:
        NoSuchObject: there is no such job, or no longer.
        JobEnded: it has ended without it.
        NotInTime: so many seconds are over; None: there is no bound.
        ClientError: there is no such milestone, or the API server does not show the job.
    """
    reached = parse_milestone(milestone)

    def done(found: Json) -> ElasticJob | None:
        job = read(found, ElasticJob)
        if reached(job):
            return job
        if job.status.phase in ENDED:
            message = f": {' '.join(job.status.message.split())}" if job.status.message else ""
            raise JobEnded(
                f"job {cluster.namespace}/{name} has ended, as {job.status.phase}{message}"
            )
        return None

    return await wait_until(cluster, ELASTIC_JOBS, name, done, seconds=seconds)
