"""`elasticjob describe`: a page about one job."""

from __future__ import annotations

import time
from asyncio import gather, timeout
from contextlib import suppress

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import get_object, read
from elasticjob_client.members import Ranks, ranks_of
from elasticjob_client.related import event_objects_of, events_of, of_kind, plans_of, pods_of
from elasticjob_client.report import stored_answers
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, PODS, SCALE_PLANS
from rich.console import RenderableType

from elasticjob_cli.jobs.description import describe as page
from elasticjob_cli.jobs.options import Job, for_cluster, run_on_job
from elasticjob_cli.jobs.printing import (
    Format,
    Output,
    PageFormat,
    console,
    print_objects,
    readable,
)

_RANKS_SECONDS = 3.0
"""The command waits this long for the ranks, which are only a column of the page."""


@for_cluster
def describe(job: Job, access: Access, output: PageFormat = Format.TABLE) -> None:
    """Show a job on a page: roles, pods, plans, failures, events.

    The page shows why a pod does not run, and the unfinished plans. `elasticjob plans` lists all.
    With -o json or yaml: the job, its pods, plans and events as a List of the API.
    """
    if output is not Format.TABLE:
        print_objects(ELASTIC_JOBS, run_on_job(access, job, _objects), Output(output))
        return

    async def work(cluster: Cluster, found: ElasticJob) -> RenderableType:
        pods, plans, events, stored, ranks = await gather(
            pods_of(cluster, found),
            plans_of(cluster, found),
            events_of(cluster, found),
            _stored(cluster, found),
            _ranks(cluster, found),
        )
        return page(found, pods, readable(plans, ScalePlan), events, time.time(), stored, ranks)

    console().print(run_on_job(access, job, work))


async def _objects(cluster: Cluster, job: ElasticJob) -> list[Json]:
    """Return the objects that the page is about, with all of their fields."""
    found = await get_object(cluster, job.metadata.name)
    of_job = read(found, ElasticJob)
    related = await gather(
        pods_of(cluster, of_job), plans_of(cluster, of_job), event_objects_of(cluster, of_job)
    )
    kinds = zip((PODS, SCALE_PLANS, EVENTS), related, strict=True)
    return [found, *(of_kind(kind, each) for kind, objects in kinds for each in objects)]


async def _ranks(cluster: Cluster, job: ElasticJob) -> Ranks:
    """Return the ranks of the present world; none if the master does not answer in time."""
    with suppress(TimeoutError):
        async with timeout(_RANKS_SECONDS):
            return await ranks_of(cluster, job)
    return {}


async def _stored(cluster: Cluster, job: ElasticJob) -> StoredAnswers | None:
    """Return the answers that the job's master has stored, if any."""
    with suppress(ClientError):
        return await stored_answers(cluster, job)
    return None
