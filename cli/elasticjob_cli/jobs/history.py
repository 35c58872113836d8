"""`elasticjob history`: shows a training over time, also after its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from elasticjob_api.v1 import job_pb2
from elasticjob_client.cluster import Access

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs.options import Job, for_cluster
from elasticjob_cli.query.command import Connect, Output, Watch, ask_master, note_source, show
from elasticjob_cli.query.report import history_csv
from elasticjob_cli.query.topics import Topic


class Format(StrEnum):
    """The formats of the history."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@for_cluster
def history(
    job: Job,
    access: Access,
    watch: Watch = False,
    output: Annotated[
        Format,
        typer.Option(
            "--output",
            "-o",
            help="Format; csv: a column per metric; json with --watch: one a line.",
        ),
    ] = Format.TABLE,
) -> None:
    """Show a training over time: events, rate, metrics.

    It is the same as `elasticjob query JOB history`. After the end of the job it shows what the
    job's master has stored.
    """
    if output is not Format.CSV:
        show(job, access, Topic.HISTORY, Output(output), watch=watch)
        return
    if watch:
        raise typer.BadParameter(
            "csv cannot be watched, as later metrics need columns of their own; use -o json"
        )

    async def work(connect: Connect) -> job_pb2.History:
        async with connect() as master:
            note_source(master)
            found: job_pb2.History = await master.get("History")
            return found

    echo(history_csv(ask_master(job, access, work)), nl=False)
