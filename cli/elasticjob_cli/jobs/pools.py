"""`elasticjob pool`: who holds what of a shared cluster, and who waits."""

from __future__ import annotations

import time
from asyncio import gather
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import typer
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_api.plain_text import counted
from elasticjob_api.pooled_jobs import elastic_role, member_requests, pool_of
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import list_jobs, on_one_line, read
from elasticjob_client.related import of_kind
from elasticjob_kube.resources import ELASTIC_JOBS, ELASTIC_POOLS, SCALE_PLANS

from elasticjob_cli.common.arguments import Argument, Option, with_typer
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import TABLES, Format, Output, PageFormat
from elasticjob_cli.common.formatting import (
    UNKNOWN,
    format_age,
    key_value_table,
    plain_text,
    table_of,
    titled,
)
from elasticjob_cli.common.options import complete_pool, run
from elasticjob_cli.common.printing import print_objects, print_table, readable
from elasticjob_cli.common.tables import Page, Shown, Table, show
from elasticjob_cli.jobs.pool_simulation import simulate
from elasticjob_cli.parameters import Command, typer_parameter

_MOST_JOBS = 200
"""The number of jobs on a pool's page, those that wait first."""
Name = Annotated[
    str, Argument(help="Name of the ElasticPool.", metavar="POOL", autocompletion=complete_pool)
]
Plans = Mapping[str, Sequence[ScalePlan]]
"""The plans of each job, the oldest first."""


@for_cluster
def list_(
    access: Access,
    all_namespaces: Annotated[
        bool, Option("--all-namespaces", "-A", help="Pools of all namespaces.")
    ] = False,
    output: Annotated[Output, Option("--output", "-o", help="Format.")] = Output.TABLE,
) -> None:
    """List pools: what is used, how many jobs wait, the last plan."""

    async def work(cluster: Cluster) -> list[Json]:
        return await cluster.list(ELASTIC_POOLS, all_namespaces=all_namespaces)

    found = run(access, work)
    if output not in TABLES:
        print_objects(ELASTIC_POOLS, found, output)
        return
    wide = output is Output.WIDE
    pools = readable(found, ElasticPool)
    table = pools_table(pools, time.time(), all_namespaces=all_namespaces, wide=wide)
    none = "no pools" if all_namespaces else "no pools; -A lists those of all namespaces"
    print_table(table, none=none)


@for_cluster
def describe(name: Name, access: Access, output: PageFormat = Format.TABLE) -> None:
    """Show a pool and its jobs: sizes, shares, who waits for what, last acts.

    With -o json or yaml: the pool, its jobs that have not ended and their plans as a List of the
    API.
    """

    async def work(cluster: Cluster) -> tuple[Json, list[Json], list[Json]]:
        return await _read(cluster, name)

    found, jobs, plans = run(access, work)
    if output is not Format.TABLE:
        kinds = zip((ELASTIC_JOBS, SCALE_PLANS), (jobs, plans), strict=True)
        related = [of_kind(kind, each) for kind, objects in kinds for each in objects]
        print_objects(ELASTIC_POOLS, [found, *related], Output(output))
        return
    of_jobs: dict[str, list[ScalePlan]] = defaultdict(list)
    for plan in readable(plans, ScalePlan):
        of_jobs[plan.spec.job_name].append(plan)
    pool = read(found, ElasticPool)
    show(page(pool, list(readable(jobs, ElasticJob)), of_jobs, time.time()))


async def _read(cluster: Cluster, name: str) -> tuple[Json, list[Json], list[Json]]:
    """Return a pool, its jobs that have not ended, and their plans. Raises `ClientError`."""
    found = await cluster.get(ELASTIC_POOLS, name)
    pool = read(found, ElasticPool)
    selector = ",".join(f"{key}={value}" for key, value in pool.spec.selector.items())
    selected, listed, plans = await gather(
        list_jobs(cluster, selector=selector),
        cluster.list(ELASTIC_POOLS),
        cluster.list(SCALE_PLANS),
    )
    pools = list(readable(listed, ElasticPool))

    def is_in(job: ElasticJob) -> bool:
        of_job = pool_of(job, pools)
        is_this = of_job is not None and of_job.metadata.uid == pool.metadata.uid
        return is_this and job.status.phase not in ENDED

    names = {job.metadata.name for job in readable(selected, ElasticJob) if is_in(job)}
    jobs = [job for job in selected if job["metadata"]["name"] in names]
    of_jobs = [plan for plan in plans if plan["spec"].get("jobName") in names]
    return found, jobs, sorted(of_jobs, key=lambda each: each["metadata"]["creationTimestamp"])


def pools_table(
    pools: Iterable[ElasticPool], now: float, *, all_namespaces: bool, wide: bool
) -> Table:
    """Return a line per pool, with the columns of `kubectl get elasticpools`."""
    columns: dict[str, Callable[[ElasticPool], str]] = {}
    if all_namespaces:
        columns["NAMESPACE"] = lambda pool: pool.metadata.namespace
    columns |= {
        "NAME": lambda pool: pool.metadata.name,
        "POLICY": lambda pool: pool.spec.policy,
        "JOBS": lambda pool: str(pool.status.jobs),
        "WAITING": lambda pool: str(pool.status.waiting),
        "USED": lambda pool: pool.status.used or UNKNOWN,
        "LAST ACT": lambda pool: pool.status.last_act or UNKNOWN,
        "AGE": lambda pool: format_age(pool.metadata.creation_timestamp, now),
    }
    if wide:
        columns["LONGEST WAITING"] = lambda pool: pool.status.longest_waiting
        columns["MESSAGE"] = lambda pool: pool.status.message
    return table_of(pools, columns, wrapped=("USED", "LAST ACT", "LONGEST WAITING", "MESSAGE"))


def page(pool: ElasticPool, jobs: Sequence[ElasticJob], plans: Plans, now: float) -> Shown:
    """Return the page of a pool, with its jobs that have not ended and the plans of each."""
    ordered = sorted(jobs, key=lambda job: (not _waits_for(job, plans), job.metadata.name))
    more = len(ordered) - _MOST_JOBS
    rest = [plain_text(f"{counted(more, 'more job')}: -o json has all")] if more > 0 else []
    table = _jobs(pool, ordered[:_MOST_JOBS], plans, now)
    return Page(_summary(pool, now), *titled("Jobs, those that wait first", table), *rest)


def _summary(pool: ElasticPool, now: float) -> Table:
    spec = pool.spec
    status = pool.status
    queue = spec.cluster_queue
    rest = f"the quota of ClusterQueue {queue}" if queue else "what the nodes have"
    jobs = "{} with quota; {} jobs and Workloads wait" if queue else "{}, of which {} wait"
    act = f"{format_age(status.last_act_time or '', now)} ago, {status.last_act}"
    rows = {
        "Pool": f"{pool.metadata.namespace}/{pool.metadata.name}",
        "Policy": spec.policy,
        "Selector": _pairs(spec.selector, "=") or "all jobs of the namespace",
        "Capacity": _pairs(spec.capacity, " ") or rest,
        "Used": status.used or UNKNOWN,
        "Jobs": jobs.format(status.jobs, status.waiting),
        "Longest waiting": status.longest_waiting,
        "Last act": act if status.last_act else UNKNOWN,
        "Message": status.message,
    }
    return key_value_table((name, text) for name, text in rows.items() if text)


def _pairs(values: Mapping[str, int | str], between: str) -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in sorted(values.items()))


def _jobs(pool: ElasticPool, jobs: Iterable[ElasticJob], plans: Plans, now: float) -> Table:
    def bounds(job: ElasticJob) -> str:
        spec = job.spec.replica_specs[elastic_role(job)]
        return f"{spec.min_replicas} to {spec.max_replicas or 'any'}"

    def last_act(job: ElasticJob) -> str:
        acts = [each for each in plans.get(job.metadata.name, ()) if each.spec.source == "Pool"]
        if not acts:
            return UNKNOWN
        plan = acts[-1]
        age = format_age(plan.metadata.creation_timestamp, now)
        change = plan.status.change or plan.status.phase or "Pending"
        return f"{age} ago, {change}: {plan.spec.reason}"

    columns: dict[str, Callable[[ElasticJob], str]] = {
        "JOB": lambda job: job.metadata.name,
        "PHASE": lambda job: job.status.phase or "Pending",
        "MEMBERS": lambda job: str(_members(job)),
        "ASKED": lambda job: str(_asked(job)),
        "BOUNDS": bounds,
        "SHARE": lambda job: _share(pool, job),
        "WAITS FOR": lambda job: _waits_for(job, plans) or UNKNOWN,
        "LAST ACT": last_act,
    }
    return table_of(jobs, columns, wrapped=("WAITS FOR", "LAST ACT"))


def _members(job: ElasticJob) -> int:
    """Return the pods of the role that the pool changes."""
    replica = job.status.replica_statuses.get(elastic_role(job))
    return replica.active if replica else 0


def _asked(job: ElasticJob) -> int:
    """Return the size that was asked for last, also while the pool gives less."""
    role = elastic_role(job)
    replica = job.status.replica_statuses.get(role)
    if replica is None:
        return job.spec.replica_specs[role].size
    return max(replica.asked or 0, replica.desired)


def _share(pool: ElasticPool, job: ElasticJob) -> str:
    """Return the part of the capacity that a job's members request, of the scarcest resource."""
    requests = member_requests(job)
    capacity = {name: parse_quantity(amount) for name, amount in pool.spec.capacity.items()}
    parts = [
        _members(job) * requests.get(name, 0) / most for name, most in capacity.items() if most
    ]
    return f"{max(parts):.0%}" if parts else UNKNOWN


def _waits_for(job: ElasticJob, plans: Plans) -> str:
    """Return what a job waits for; empty if it waits for nothing."""
    if job.status.phase == "Suspended":
        return on_one_line(job.status.message)
    waiting = (
        each for each in plans.get(job.metadata.name, ()) if each.status.phase not in FINISHED
    )
    for plan in waiting:
        if text := plan.status.message or plan.status.waiting_for:
            return text
    missing = _asked(job) - _members(job)
    return f"{counted(missing, 'member')} more" if missing > 0 else ""


group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for _name, _command in {"list": list_, "describe": describe, "simulate": simulate}.items():
    group.command(_name, cls=Command)(with_typer(_command, typer_parameter))
