"""`elasticjob query JOB`: requests a job's state from its master, not from the API server.

The status in Kubernetes is a summary a few seconds old; only the master has members, shards and the
world.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from elasticjob_client.cluster import Access
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject
from elasticjob_client.master_queries import JobSnapshot, Master
from elasticjob_client.report import StoredMaster, open_master_or_report
from rich.console import RenderableType
from rich.live import Live

from elasticjob_cli.jobs.options import Context, Job, Kubeconfig, Namespace, reported, run
from elasticjob_cli.jobs.printing import console
from elasticjob_cli.query import topics
from elasticjob_cli.query.job_view import as_json, as_text
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic
from elasticjob_cli.run.lookup import local_run

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[Master | StoredMaster]]
_RECONNECT_SECONDS = 1.0


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class _Question:
    """What is asked, and how it is printed."""

    topic: Topic
    output: Output


@dataclass(frozen=True)
class _Answer:
    """An answer as people and as programs read it."""

    text: RenderableType
    json: str


def query(
    job: Job,
    topic: Annotated[
        Topic, typer.Argument(help="What to show; default: the whole job.")
    ] = Topic.STATUS,
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the master, such as a forwarded port; default: as in the status."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until the job has ended.")
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Format; json with --watch: one a line.")
    ] = (Output.TABLE),
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Ask a job's master: world, members, shards, auto-scaling.

    It knows more, and sooner, than the status in Kubernetes. A topic shows one of these in detail.
    Of a job that has ended, or is suspended, it shows what its master has last said.
    """
    question = _Question(topic, output)
    show = _watch if watch else _show
    access = Access(kubeconfig, context, namespace)
    ask_master(job, access, lambda connect: show(connect, question), address=address)


def ask_master(
    job: str, access: Access, work: Callable[[Connect], Awaitable[T]], *, address: str | None = None
) -> T:
    """Do something with a job's master, or with what it has stored.

    An error is one line, and an exit code.
    """
    with reported():
        local = local_run(job, address, access.namespace, access.context, access.kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import open_run_master

            return asyncio.run(_awaited(work(lambda: open_run_master(local))))
    return run(
        access, lambda cluster: work(lambda: open_master_or_report(cluster, job, address=address))
    )


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _show(connect: Connect, question: _Question) -> None:
    async with connect() as master:
        if isinstance(master, StoredMaster):
            typer.echo(master.why, err=True)
        if question.topic is Topic.STATUS:
            _print(_status_answer(await master.snapshot()), question.output)
            return
        topic = TOPIC_QUERIES[question.topic]
        answer = await master.get(topic.name)
    _print(_Answer(topic.render(answer), topics.as_json(answer)), question.output)


def _status_answer(snapshot: JobSnapshot) -> _Answer:
    return _Answer(as_text(snapshot), as_json(snapshot))


async def _watch(connect: Connect, question: _Question) -> None:
    """Show every change until the job has ended; reconnect when the master was relaunched."""
    screen = console()
    answered = False
    shown_at = 0.0
    incremental = question.topic in TOPIC_QUERIES and TOPIC_QUERIES[question.topic].incremental
    redraw = screen.is_terminal and question.output is Output.TABLE and not incremental
    with Live(console=screen, auto_refresh=False) if redraw else nullcontext() as live:
        while True:
            try:
                async with (
                    connect() as master,
                    aclosing(_answers(master, question.topic)) as answers,
                ):
                    stored = master if isinstance(master, StoredMaster) else None
                    is_news = stored is None or (
                        stored.answers.time > shown_at and not (answered and incremental)
                    )
                    if stored is not None and (is_news or stored.is_last):
                        typer.echo(stored.why, err=True)
                    while is_news and (answer := await anext(answers, None)) is not None:
                        answered = True
                        shown_at = time.time()
                        if live is not None:
                            live.update(answer.text, refresh=True)
                        else:
                            _print(answer, question.output)
                if stored is not None and stored.is_last:
                    return
            except (MasterUnavailable, NoSuchObject) as error:
                if not answered:
                    raise
                typer.echo(str(error), err=True)
                return
            except ClientError:
                if not answered:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)


async def _answers(master: Master | StoredMaster, topic: Topic) -> AsyncGenerator[_Answer, None]:
    """Yield what the master says at each change, until it ends."""
    name = "Status" if topic is Topic.STATUS else TOPIC_QUERIES[topic].name
    async with aclosing(master.watch(name)) as said:
        async for answer in said:
            if topic is Topic.STATUS:
                yield _status_answer(await master.snapshot(answer))
            else:
                yield _Answer(TOPIC_QUERIES[topic].render(answer), topics.as_json(answer))


def _print(answer: _Answer, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(answer.json)
    else:
        console().print(answer.text)
