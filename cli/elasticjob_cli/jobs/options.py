"""What the commands for jobs have in common.

Which cluster and namespace, how an answer is printed, how they end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_client.cluster import Access, Cluster, open_cluster
from elasticjob_client.errors import ClientError, JobEnded, NotInTime

from elasticjob_cli.jobs.completion import complete_job, complete_role

T = TypeVar("T")
Framework = StrEnum("Framework", {name: name for name in FRAMEWORKS})  # type: ignore[misc]
Job = Annotated[
    str, typer.Argument(help="Name of the ElasticJob.", metavar="JOB", autocompletion=complete_job)
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace of the job; default: the context's."),
]
Context = Annotated[
    str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")
]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig file; default: $KUBECONFIG.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done.")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds to wait at most; default: no bound.", min=0.0)
]
Role = Annotated[str, typer.Option(help="The role that is meant.", autocompletion=complete_role)]
EXIT_JOB_ENDED = 3
EXIT_NOT_IN_TIME = 4


def run(access: Access, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Do something with a cluster; an error is one line, and an exit code by its kind."""

    async def with_cluster() -> T:
        async with open_cluster(access) as cluster:
            return await work(cluster)

    with reported():
        return asyncio.run(with_cluster())


@contextmanager
def reported() -> Iterator[None]:
    """Turn an error into one line and an exit code by its kind, and Ctrl-C into its exit code."""
    try:
        yield
    except ClientError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(_exit_code(error)) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _exit_code(error: ClientError) -> int:
    if isinstance(error, JobEnded):
        return EXIT_JOB_ENDED
    return EXIT_NOT_IN_TIME if isinstance(error, NotInTime) else 1
