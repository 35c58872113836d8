"""`elasticjob describe`: a page about one job."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from asyncio import gather, timeout
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import MappingProxyType

from elasticjob_api.elasticjob import ElasticJob, Failure, Progress, ReplicaSpec
from elasticjob_api.job_sizes import gang_size
from elasticjob_api.last_words import exit_text
from elasticjob_api.meta import Condition, Json
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import format_time
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_client.access import Access
from elasticjob_client.answers import stored_answers
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.jobs import get_object, read
from elasticjob_client.members import JobPod, Ranks, ranks_of, with_reason
from elasticjob_client.related import (
    Event,
    event_objects_of,
    events_of,
    of_kind,
    plans_of,
    pods_of,
)
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, PODS, SCALE_PLANS
from msgspec.structs import replace

from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import Format, Output, PageFormat
from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_age,
    format_duration,
    key_value_table,
    plain_text,
    table_of,
    titled,
)
from elasticjob_cli.common.local_runs import RunInfo, local_run
from elasticjob_cli.common.options import Job, reported, run_on_job
from elasticjob_cli.common.printing import print_objects, readable
from elasticjob_cli.common.tables import Page, Shown, Table, show
from elasticjob_cli.jobs.listing import events_table
from elasticjob_cli.query.report import restarts, summary

_EVENTS = 20
_RANKS_SECONDS = 3.0
"""The command waits this long for the ranks, which are only a column of the page."""
_TRACEBACK = re.compile(r'Traceback \(most recent call last\):|File "')
"""The beginning of a traceback, which may have been cut."""


@for_cluster
def describe(job: Job, access: Access, output: PageFormat = Format.TABLE) -> None:
    """Show a job on a page: roles, pods, plans, failures, events.

    The page shows why a pod does not run, and the unfinished plans. `elasticjob plans` lists all.
    With -o json or yaml: the job, its pods, plans and events as a List of the API.
    """
    with reported():
        local = local_run(job, access)
        if local is not None:
            if output is not Format.TABLE:
                raise WrongArgument("a run on this machine has no API objects; give no -o")
            show(asyncio.run(_run_page(local, time.time())))
            return
    if output is not Format.TABLE:
        print_objects(ELASTIC_JOBS, run_on_job(access, job, _objects), Output(output))
        return

    async def work(cluster: Cluster, found: ElasticJob) -> Shown:
        pods, plans, events, stored, ranks = await gather(
            pods_of(cluster, found),
            plans_of(cluster, found),
            events_of(cluster, found),
            _stored(cluster, found),
            _ranks(cluster, found),
        )
        return page(found, pods, readable(plans, ScalePlan), events, time.time(), stored, ranks)

    show(run_on_job(access, job, work))


async def _run_page(info: RunInfo, now: float) -> Shown:
    """Return the page of a run on this machine."""
    from elasticjob_cli.query.topics import render_status
    from elasticjob_cli.run.local import open_run_master

    async with open_run_master(info) as master:
        answers = await master.snapshot()
    lines = [
        ("Run", info.name),
        ("Command", shlex.join(info.command)),
        ("Framework", info.framework),
        ("Age", format_age(format_time(info.started), now)),
        ("Process", str(info.pid)),
    ]
    return Page(key_value_table(lines), plain_text(), render_status(answers))


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
    """Return the report that the job's master has stored, if any, and its time."""
    with suppress(ClientError):
        return await stored_answers(cluster, job, only=("report",))
    return None


def page(
    job: ElasticJob,
    pods: Sequence[Json],
    plans: Iterable[ScalePlan],
    events: Sequence[Event],
    now: float,
    stored: StoredAnswers | None = None,
    ranks: Ranks = MappingProxyType({}),
) -> Shown:
    """Return the page, in which each traceback is shown once.

    `stored`: the answers that the job's master has stored.
    """
    status = job.status
    shown = _tracebacks_shown_once(status.failures)
    return Page(
        _summary(job, now, stored, shown),
        *titled("Roles", _roles(job)),
        *titled("Pods", _pods(job, pods, ranks, now, shown)),
        *titled("Plans under way", _plans(plans)),
        *titled("Failures, the newest first", _failures(status.failures, now)),
        *titled("Conditions", _conditions(status.conditions, now, shown)),
        *titled("Events", _events(events[-_EVENTS:], now, shown)),
    )


def _tracebacks_shown_once(failures: Iterable[Failure]) -> Callable[[str], str]:
    """Return a function that puts a text on one line.

    Of a traceback that was in an earlier text, only the last line is left, which is the error. Of
    an error with a rest of its traceback, which ends with the error again, only the error is left.
    """
    errors = [_on_one_line(each.message) for each in failures if each.message]
    seen: set[str] = set()

    def shown(text: str) -> str:
        line = _on_one_line(text)
        trace = _TRACEBACK.search(line)
        error = next((each for each in errors if trace and each in line[trace.start() :]), None)
        if trace and error in seen:
            before = line[: trace.start()]  # with the error, if this operator has written the text
            return before.rstrip() if error in before else before + line[line.rindex(error) :]
        if error:
            seen.add(error)
            return line
        again = next((each for each in errors if line.endswith(each)), None)
        return line if again is None else line[: line.index(again) + len(again)]

    return shown


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _summary(
    job: ElasticJob, now: float, stored: StoredAnswers | None, shown: Callable[[str], str]
) -> Table:
    status = job.status
    rows = [
        ("Job", f"{job.metadata.namespace}/{job.metadata.name}"),
        ("Framework", job.spec.framework),
        ("Phase", shown(with_reason(status.phase or "Pending", status.message))),
        ("Age", format_age(job.metadata.creation_timestamp, now)),
    ]
    if job.created_by:
        rows.append(("Created by", _on_one_line(job.created_by)))
    if status.progress is not None:
        rows += _progress(status.progress, now)
    rows.append(("Restarts", restarts(status.restarts, status.uncounted_restarts)))
    if stored is not None:
        rows.append(("Totals", f"as of {format_duration(max(now - stored.time, 0))} ago"))
        rows += summary(stored.report)
    return key_value_table(rows)


def _progress(progress: Progress, now: float) -> Iterable[tuple[str, str]]:
    parts = [progress.steps, progress.rate]
    if progress.eta_seconds is not None:
        parts.append(f"{format_duration(progress.eta_seconds)} to go")
    if progress.last_report_time:
        parts.append(f"as of {format_age(progress.last_report_time, now)} ago")
    yield "Progress", ", ".join(filter(None, parts)) or UNKNOWN
    if progress.metrics:
        yield "Metrics", ", ".join(f"{name} {value:g}" for name, value in progress.metrics.items())
    if progress.stragglers:
        yield "Stragglers", ", ".join(progress.stragglers)


def _roles(job: ElasticJob) -> Table:
    def count(name: str) -> Callable[[tuple[str, ReplicaSpec]], str]:
        def text_of(row: tuple[str, ReplicaSpec]) -> str:
            role, spec = row
            status = job.status.replica_statuses.get(role)
            if status is None:
                return str(spec.size if name == "desired" else 0)
            return str(getattr(status, name))

        return text_of

    columns: dict[str, Callable[[tuple[str, ReplicaSpec]], str]] = {
        "ROLE": lambda row: row[0],
        "DESIRED": count("desired"),
        "READY": count("ready"),
        "SUCCEEDED": count("succeeded"),
        "FAILED": count("failed"),
        "BOUNDS": lambda row: f"{row[1].min_replicas} to {row[1].max_replicas or 'any'}",
    }
    return table_of(sorted(job.spec.replica_specs.items()), columns)


def _pods(
    job: ElasticJob,
    pods: Sequence[Json],
    ranks: Ranks,
    now: float,
    shown: Callable[[str], str],
) -> Table:
    in_gang = sum(read(pod, JobPod).in_gang for pod in pods)

    def why(pod: Json) -> str:
        found = read(pod, JobPod)
        if found.waits_for_gang:
            return (
                f"waits for its gang: the scheduler starts {gang_size(job)} pods of the job "
                f"together, and {in_gang} exist"
            )
        return shown(found.why_not_running)

    def phase(pod: Json) -> str:
        if pod["metadata"].get("deletionTimestamp"):
            return "Terminating"
        return str((pod.get("status") or {}).get("phase", UNKNOWN))

    columns: dict[str, Callable[[Json], str]] = {
        "POD": lambda pod: pod["metadata"]["name"],
        "RANK": lambda pod: str(ranks.get(pod["metadata"].get("uid", ""), UNKNOWN)),
        "PHASE": phase,
        "NODE": lambda pod: pod["spec"].get("nodeName") or UNKNOWN,
        "AGE": lambda pod: format_age(pod["metadata"]["creationTimestamp"], now),
        "WHY": why,
    }
    return table_of(pods, columns, wrapped=("WHY",))


def _plans(plans: Iterable[ScalePlan]) -> Table:
    columns: dict[str, Callable[[ScalePlan], str]] = {
        "PLAN": lambda plan: plan.metadata.name,
        "SOURCE": lambda plan: plan.spec.source,
        "PHASE": lambda plan: plan.status.phase or "Pending",
        "WAITS FOR": lambda plan: plan.status.waiting_for,
        "REASON": lambda plan: plan.spec.reason,
    }
    unfinished = (plan for plan in plans if plan.status.phase not in FINISHED)
    return table_of(unfinished, columns, wrapped=("WAITS FOR", "REASON"))


def _failures(failures: Iterable[Failure], now: float) -> Table:
    def how(failure: Failure) -> str:
        code = "" if failure.exit_code is None else exit_text(failure.exit_code)
        return ", ".join(filter(None, (failure.reason, code))) or UNKNOWN

    columns: dict[str, Callable[[Failure], str]] = {
        "AGE": lambda failure: format_age(failure.finished_at or "", now),
        "POD": lambda failure: failure.pod,
        "HOW": how,
        "RULE": lambda failure: failure.action,
        "LAST WORDS": lambda failure: failure.message,
    }
    return table_of(failures, columns, wrapped=("LAST WORDS",))


def _conditions(conditions: Iterable[Condition], now: float, shown: Callable[[str], str]) -> Table:
    columns: dict[str, Callable[[Condition], str]] = {
        "TYPE": lambda condition: condition.type,
        "STATUS": lambda condition: condition.status,
        "REASON": lambda condition: condition.reason,
        "AGE": lambda condition: format_age(condition.last_transition_time or "", now),
        "MESSAGE": lambda condition: shown(condition.message),
    }
    return table_of(conditions, columns, wrapped=("MESSAGE",))


def _events(events: Iterable[Event], now: float, shown: Callable[[str], str]) -> Table:
    return events_table([replace(each, note=shown(each.note)) for each in events], now)
