"""`elasticjob stacks`: shows what the training processes of a job execute, equal stacks once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from elasticjob_api.v1 import job_pb2
from elasticjob_client.cluster import Access
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.report import StoredMaster

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs.options import Job, for_cluster
from elasticjob_cli.query.command import Connect, Output, ask_master
from elasticjob_cli.query.topics import as_json

_SECONDS = 35.0
"""The master answers or refuses after at most 15 s; the rest is for a slow way to it."""
_MOST_RANKS = 16


@for_cluster
def stacks(
    job: Job,
    access: Access,
    rank: Annotated[
        list[int] | None, typer.Option(help="Of this rank only; can be repeated.", min=0)
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.TABLE,
) -> None:
    """Show what the training processes execute, and who waits.

    Ranks with equal stacks are shown together. The processes train on meanwhile.
    """
    ranks = rank or []

    async def work(connect: Connect) -> job_pb2.StackList:
        async with connect() as master:
            if isinstance(master, StoredMaster):
                raise ClientError(f"nothing runs whose stacks could be read: {master.why}")
            found: job_pb2.StackList = await master.get("Stacks", seconds=_SECONDS, ranks=ranks)
            if missing := set(ranks) - {each for group in found.groups for each in group.ranks}:
                raise WrongArgument(
                    f"--rank is {min(missing)}; round {found.round} has no such rank, "
                    f"see elasticjob query {job}"
                )
            return found

    answer = ask_master(job, access, work)
    echo(as_json(answer) if output is Output.JSON else "\n".join(_lines(answer)))


def _lines(answer: job_pb2.StackList) -> Iterator[str]:
    yield answer.summary or "no training process runs now"
    for group in answer.groups:
        ranks = ", ".join(map(str, group.ranks[:_MOST_RANKS]))
        more = len(group.ranks) - _MOST_RANKS
        title = f"rank {ranks} and {more} more" if more > 0 else f"rank {ranks}"
        waits = group.waits_in and f"waits in {group.waits_in}"
        yield ""
        yield ": ".join(filter(None, (title, waits, group.problem)))
        yield from (f"    {frame}" for frame in group.frames)
        yield from (f"  thread {thread}" for thread in group.other_threads)
