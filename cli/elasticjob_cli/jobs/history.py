"""`elasticjob history JOB`: the course of a training, also of one that has ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from elasticjob_api.v1 import job_pb2
from elasticjob_client.cluster import Access
from elasticjob_client.report import StoredMaster

from elasticjob_cli.jobs.options import Context, Job, Kubeconfig, Namespace
from elasticjob_cli.query.command import Connect, Output, ask_master, query
from elasticjob_cli.query.report import history_csv
from elasticjob_cli.query.topics import Topic


class Format(StrEnum):
    """How the history is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def history(
    job: Job,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until the job has ended.")
    ] = False,
    output: Annotated[
        Format,
        typer.Option(
            "--output",
            "-o",
            help="Format; csv: a column per metric; json with --watch: one a line.",
        ),
    ] = Format.TABLE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the course of a training: events, rate, metrics.

    It is the same as `elasticjob query JOB history`. Of a job that has ended it is what its master
    has stored.
    """
    if output is not Format.CSV:
        query(job, Topic.HISTORY, None, watch, Output(output), namespace, context, kubeconfig)
        return
    if watch:
        raise typer.BadParameter(
            "csv cannot be watched, as metrics that come later need columns; use -o json"
        )

    async def work(connect: Connect) -> job_pb2.History:
        async with connect() as master:
            if isinstance(master, StoredMaster):
                typer.echo(master.why, err=True)
            found: job_pb2.History = await master.get("History")
            return found

    typer.echo(history_csv(ask_master(job, Access(kubeconfig, context, namespace), work)), nl=False)
