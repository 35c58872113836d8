"""Completes the names of jobs, roles and pods in the shell.

A completion prints no errors, because the shell would show them in the middle of the user's line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import typer
from elasticjob_client.cluster import Access, Cluster, open_cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import get_job, list_jobs
from elasticjob_client.related import pods_of

_SECONDS = 3.0
"""A completion takes no longer than this."""


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of jobs with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        return [str(job["metadata"]["name"]) for job in await list_jobs(cluster)]

    return _beginning(incomplete, context, work)


def complete_role(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the job's roles with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        return (await get_job(cluster, _job(context))).spec.replica_specs

    return _beginning(incomplete, context, work)


def complete_pod(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the job's pods with this beginning."""

    async def work(cluster: Cluster) -> Iterable[str]:
        pods = await pods_of(cluster, await get_job(cluster, _job(context)))
        return [str(pod["metadata"]["name"]) for pod in pods]

    return _beginning(incomplete, context, work)


def _job(context: typer.Context) -> str:
    """Return the job that the line names.

    Click assigns no names to arguments before an option that has no value yet.
    """
    return str(context.params.get("job") or next(iter(context.args), ""))


def _beginning(
    incomplete: str, context: typer.Context, work: Callable[[Cluster], Awaitable[Iterable[str]]]
) -> list[str]:
    given = context.params
    kubeconfig = given.get("kubeconfig")
    access = Access(
        Path(kubeconfig) if kubeconfig else None, given.get("context"), given.get("namespace")
    )

    async def names() -> list[str]:
        async with asyncio.timeout(_SECONDS), open_cluster(access) as cluster:
            return [name for name in await work(cluster) if name.startswith(incomplete)]

    try:
        return asyncio.run(names())
    except (ClientError, TimeoutError):
        return []
