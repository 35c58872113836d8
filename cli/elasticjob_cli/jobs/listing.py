"""`elasticjob list`, `plans` and `events`.

They query no master, so they import neither gRPC nor protobuf, whose import is slow.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.jobs import list_jobs
from elasticjob_client.related import (
    event_objects_of,
    events_of,
    plans_of,
    requests_without_plan,
)
from elasticjob_client.waiting import parse_phase
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, SCALE_PLANS

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs import tables
from elasticjob_cli.jobs.options import Job, for_cluster, reported, run, run_on_job
from elasticjob_cli.jobs.printing import (
    TABLES,
    Format,
    Output,
    PageFormat,
    print_data,
    print_objects,
    print_table,
    readable,
)

ObjectFormat = Annotated[Output, typer.Option("--output", "-o", help="Format.")]


@for_cluster
def list_(
    access: Access,
    phase: Annotated[
        str | None, typer.Option(help="Only jobs in this phase, such as running.")
    ] = None,
    selector: Annotated[
        str,
        typer.Option("--selector", "-l", help="Only jobs with these labels, such as team=a."),
    ] = "",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Runs of `elasticjob run` on this machine.")
    ] = False,
    output: ObjectFormat = Output.TABLE,
) -> None:
    """List jobs with their phase, workers, step and rate."""
    if local:
        from elasticjob_cli.run.local import runs_data, runs_table

        if output not in TABLES:
            _print_runs(runs_data(), output)
            return
        print_table(runs_table(time.time()), none="nothing runs here; `elasticjob run` begins it")
        return

    with reported():
        chosen = None if phase is None else parse_phase(phase)

    async def work(cluster: Cluster) -> list[Json]:
        return await list_jobs(
            cluster, all_namespaces=all_namespaces, phase=chosen, selector=selector
        )

    found = run(access, work)
    if output not in TABLES:
        print_objects(ELASTIC_JOBS, found, output)
        return
    jobs = readable(found, ElasticJob)
    wide = output is Output.WIDE
    table = tables.jobs_table(jobs, time.time(), all_namespaces=all_namespaces, wide=wide)
    none = "no jobs" if all_namespaces else "no jobs; -A lists those of all namespaces"
    print_table(table, none=none)


@for_cluster
def plans(job: Job, access: Access, output: ObjectFormat = Output.TABLE) -> None:
    """List a job's ScalePlans: source, change and outcome.

    ScaleIns and ScaleOuts without a plan, such as refused ones, are listed too.
    """

    async def work(cluster: Cluster, of_job: ElasticJob) -> list[Json]:
        found = [*await plans_of(cluster, of_job), *await requests_without_plan(cluster, of_job)]
        return sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    found = run_on_job(access, job, work)
    if output not in TABLES:
        print_objects(SCALE_PLANS, found, output)
        return
    wide = output is Output.WIDE
    plans = readable(list(map(tables.request_as_plan, found)), ScalePlan)
    table = tables.plans_table(plans, time.time(), wide=wide)
    print_table(table, none="no plans yet")


@for_cluster
def events(job: Job, access: Access, output: PageFormat = Format.TABLE) -> None:
    """List the events of a job and its pods.

    The oldest come first. Most clusters keep events for an hour.
    """
    if output is not Format.TABLE:
        print_objects(EVENTS, run_on_job(access, job, event_objects_of), Output(output))
        return
    found = run_on_job(access, job, events_of)
    print_table(tables.events_table(found, time.time()), none="no events")


def _print_runs(found: list[Json], output: Output) -> None:
    if output is Output.NAME:
        for each in found:
            echo(each["name"])
        return
    print_data(found, json_=output is Output.JSON)
