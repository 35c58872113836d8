"""Shared by the commands for jobs: options, session with the cluster, errors and exit codes.

Options complete the names of jobs, roles and pods in the shell. A completion prints no errors,
because the shell would show them in the middle of the user's line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster, open_cluster
from elasticjob_client.errors import (
    ClientError,
    JobEnded,
    NoCluster,
    NoSuchObject,
    NotInTime,
    WrongArgument,
)
from elasticjob_client.jobs import find_job, get_job, list_jobs
from elasticjob_client.related import pods_of
from elasticjob_kube.resources import ELASTIC_POOLS

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.local_runs import hint
from elasticjob_cli.common.streams import INTERRUPTED, echo

_COMPLETION_SECONDS = 3.0
"""A completion takes no longer than this."""
T = TypeVar("T")


def complete_job(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of jobs with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        return [str(job["metadata"]["name"]) for job in await list_jobs(cluster)]

    return _beginning(incomplete, ctx, work)


def complete_pool(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of pools with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        return [str(pool["metadata"]["name"]) for pool in await cluster.list(ELASTIC_POOLS)]

    return _beginning(incomplete, ctx, work)


def complete_role(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of the job's roles with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        return (await get_job(cluster, _named_job(ctx))).spec.replica_specs

    return _beginning(incomplete, ctx, work)


def complete_pod(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of the job's pods with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        pods = await pods_of(cluster, await get_job(cluster, _named_job(ctx)))
        return [str(pod["metadata"]["name"]) for pod in pods]

    return _beginning(incomplete, ctx, work)


def _named_job(ctx: Any) -> str:
    """Return the job that the line names.

    Click assigns no names to arguments before an option that has no value yet.
    """
    return str(ctx.params.get("job") or next(iter(ctx.args), ""))


def _beginning(
    incomplete: str, ctx: Any, work: Callable[[Cluster], Awaitable[Iterable[str]]]
) -> list[str]:
    given = ctx.params
    kubeconfig = given.get("kubeconfig")
    access = Access(
        Path(kubeconfig) if kubeconfig else None, given.get("context"), given.get("namespace")
    )

    async def names() -> list[str]:
        async with asyncio.timeout(_COMPLETION_SECONDS), open_cluster(access) as cluster:
            return [name for name in await work(cluster) if name.startswith(incomplete)]

    try:
        return asyncio.run(names())
    except (ClientError, TimeoutError):
        return []


Framework = StrEnum("Framework", {name: name for name in FRAMEWORKS})  # type: ignore[misc]
Job = Annotated[
    str,
    Argument(
        help="Name of the ElasticJob, or its unique beginning.",
        metavar="JOB",
        autocompletion=complete_job,
    ),
]
ExactJob = Annotated[
    str, Argument(help="Name of the ElasticJob.", metavar="JOB", autocompletion=complete_job)
]
"""Of a command that cannot be undone: a job of a similar name must not take its place."""
ExactJobs = Annotated[
    list[str],
    Argument(help="Names of ElasticJobs.", metavar="JOB...", autocompletion=complete_job),
]
Wait = Annotated[bool, Option("--wait", help="Wait until it is done.")]
Timeout = Annotated[
    float | None, Option(help="Seconds to wait at most; default: no bound.", min=0.0)
]
AnyRole = Annotated[
    str | None,
    Option(help="A role's members only; master is the job's master.", autocompletion=complete_role),
]
_WRONG_ARGUMENT = 2
_JOB_ENDED = 3
_NOT_IN_TIME = 4
"""Exit codes."""


def run(access: Access, work: Callable[[Cluster], Awaitable[T]], *, job: str = "") -> T:
    """Open a session with the cluster and return the result of `work`.

    A `ClientError` becomes one line on standard error and an exit code.

    `job`: the name that the user gave, which may be that of a run on this machine.
    """

    async def with_cluster() -> T:
        async with open_cluster(access) as cluster:
            return await work(cluster)

    with reported(job):
        return asyncio.run(with_cluster())


def run_on_job(
    access: Access,
    job: str,
    work: Callable[[Cluster, ElasticJob], Awaitable[T]],
    *,
    exact: bool = False,
) -> T:
    """Like `run`, for a job that is given by its name, or by the unique beginning of its name.

    With `exact`, it is given by the whole name.
    """
    with reported():
        if "/" in job:
            raise WrongArgument(
                f"{job[:80]} is not a job's name; a run has no suspend, resume, plans, events, exec"
            )

    async def with_job(cluster: Cluster) -> T:
        found = await find_job(cluster, job, exact=exact)
        if found.metadata.name != job:
            echo(f"job {found.metadata.name}", err=True)
        return await work(cluster, found)

    return run(access, with_job, job=job)


@contextmanager
def reported(job: str = "") -> Iterator[None]:
    """Turn a `ClientError` into one line and an exit code by its kind, and Ctrl-C into 130.

    `job`: the name that the user gave, which may be that of a run on this machine.
    """
    try:
        yield
    except ClientError as error:
        where = ""
        if job and isinstance(error, NoCluster | NoSuchObject):
            where = hint(job)
        echo(f"error: {error}{where}", err=True)
        raise SystemExit(_exit_code(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _exit_code(error: ClientError) -> int:
    if isinstance(error, JobEnded):
        return _JOB_ENDED
    if isinstance(error, NotInTime):
        return _NOT_IN_TIME
    return _WRONG_ARGUMENT if isinstance(error, WrongArgument) else 1
