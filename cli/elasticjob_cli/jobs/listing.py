"""What `elasticjob list` prints of a cluster; `elasticjob plans` and `events`.

They query no master, so they import neither gRPC nor protobuf, whose import is slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, Progress
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import list_jobs, on_one_line
from elasticjob_client.related import (
    Event,
    event_objects_of,
    events_of,
    plans_of,
    requests_without_plan,
)
from elasticjob_client.waiting import parse_phase
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, SCALE_PLANS

from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import TABLES, Format, ObjectFormat, Output, PageFormat
from elasticjob_cli.common.formatting import UNKNOWN, format_age, table_of
from elasticjob_cli.common.options import Job, reported, run, run_on_job
from elasticjob_cli.common.printing import print_objects, print_table, readable
from elasticjob_cli.common.tables import Table


def print_jobs(
    access: Access, *, phase: str | None, selector: str, all_namespaces: bool, output: Output
) -> None:
    """Print the jobs of a cluster, as `elasticjob list` does."""
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
    table = jobs_table(jobs, time.time(), all_namespaces=all_namespaces, wide=wide)
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
    plans = readable(list(map(request_as_plan, found)), ScalePlan)
    table = plans_table(plans, time.time(), wide=wide)
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
    print_table(events_table(found, time.time()), none="no events")


def jobs_table(
    jobs: Iterable[ElasticJob], now: float, *, all_namespaces: bool, wide: bool
) -> Table:
    """Return a line per job."""
    jobs = list(jobs)
    columns: dict[str, Callable[[ElasticJob], str]] = {}
    if all_namespaces:
        columns["NAMESPACE"] = lambda job: job.metadata.namespace
    columns |= {
        "NAME": lambda job: job.metadata.name,
        "PHASE": lambda job: job.status.phase or "Pending",
        "WORKERS": lambda job: job.status.workers or UNKNOWN,
        "STEP": lambda job: (job.status.progress or Progress()).steps or UNKNOWN,
        "RATE": lambda job: (job.status.progress or Progress()).rate or UNKNOWN,
        "ETA": lambda job: (job.status.progress or Progress()).eta or UNKNOWN,
        "RESTARTS": lambda job: str(job.status.restarts),
        "AGE": lambda job: format_age(job.metadata.creation_timestamp, now),
    }
    if wide:
        if any(job.created_by for job in jobs):
            columns["CREATED-BY"] = lambda job: on_one_line(job.created_by) or UNKNOWN
        columns["PLAN"] = lambda job: job.status.current_plan or UNKNOWN
        columns["MESSAGE"] = lambda job: on_one_line(job.status.message)
    return table_of(jobs, columns, cut=("MESSAGE",))


def plans_table(plans: Iterable[ScalePlan], now: float, *, wide: bool) -> Table:
    """Return a line per plan: its source, change and state."""

    def message(plan: ScalePlan) -> str:
        waits_for = plan.status.waiting_for
        return plan.status.message or (f"waits for {waits_for}" if waits_for else "")

    columns: dict[str, Callable[[ScalePlan], str]] = {
        "NAME": lambda plan: plan.metadata.name,
        "SOURCE": lambda plan: plan.spec.source,
        "CHANGE": lambda plan: plan.status.change or UNKNOWN,
        "PHASE": lambda plan: plan.status.phase or "Pending",
        "AGE": lambda plan: format_age(plan.metadata.creation_timestamp, now),
        "MESSAGE": message,
    }
    if wide:
        columns["REASON"] = lambda plan: plan.spec.reason
    return table_of(plans, columns, wrapped=("CHANGE", "MESSAGE", "REASON"))


def request_as_plan(found: Json) -> Json:
    """Return a ScaleIn or ScaleOut without a plan as the plan that it asks for."""
    kind = found.get("kind")
    if kind not in ("ScaleIn", "ScaleOut"):
        return found
    spec = found["spec"]
    count = spec.get("count") or len(spec.get("podNames") or ())
    change = f"{spec.get('role', names.ROLE_WORKER)} {'-' if kind == 'ScaleIn' else '+'}{count}"
    status = found.get("status") or {}
    phase = {"ScaleFailed": "Failed", "ScaleSucceeded": "Succeeded"}.get(status.get("phase", ""))
    shown = {"change": change, "phase": phase, "message": status.get("message", "")}
    plan = {"jobName": spec["jobName"], "source": kind}
    return {"metadata": found["metadata"], "spec": plan, "status": shown}


def events_table(events: Iterable[Event], now: float) -> Table:
    """Return a line per event, in the given order."""

    def note(event: Event) -> str:
        times = event.deprecated_count
        return f"{event.note} (x{times})" if times > 1 else event.note

    columns: dict[str, Callable[[Event], str]] = {
        "AGE": lambda event: format_age(event.time, now),
        "TYPE": lambda event: event.type,
        "REASON": lambda event: event.reason,
        "OBJECT": lambda event: f"{event.regarding.kind.lower()}/{event.regarding.name}",
        "MESSAGE": note,
    }
    return table_of(
        events,
        columns,
        wrapped=("MESSAGE",),
        style=lambda event: "yellow" if event.type == "Warning" else "",
    )
