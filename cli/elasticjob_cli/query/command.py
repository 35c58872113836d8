"""`elasticjob query JOB`: requests a job's state from its master, not from the API server.

The status in Kubernetes is a summary a few seconds old; only the master has members, shards and the world.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer
from elasticjob_client.cluster import Access
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject
from elasticjob_client.master_queries import JobSnapshot, Master, open_master
from rich.console import RenderableType
from rich.live import Live

from elasticjob_cli.jobs.options import Context, Job, Kubeconfig, Namespace, reported, run
from elasticjob_cli.jobs.printing import console
from elasticjob_cli.query import topics
from elasticjob_cli.query.job_view import as_json, as_text
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic
from elasticjob_cli.run.lookup import local_run

Connect = Callable[[], AbstractAsyncContextManager[Master]]
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
    topic: Annotated[Topic, typer.Argument(help="What to show; default: the whole job.")] = Topic.STATUS,
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of the master, such as a forwarded port; default: as in the status.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until the job has ended.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format; json with --watch: one a line.")] = (
        Output.TABLE
    ),
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Ask a job's master: world, members, shards, auto-scaling.

    It knows more, and sooner, than the status in Kubernetes. A topic shows one of these in detail.
    """
    question, show = _Question(topic, output), _watch if watch else _show
    with reported():
        local = local_run(job, address, namespace, context, kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import open_run_master

            asyncio.run(show(lambda: open_run_master(local), question))
            return
    access = Access(kubeconfig, context, namespace)
    run(access, lambda cluster: show(lambda: open_master(cluster, job, address=address), question))


async def _show(connect: Connect, question: _Question) -> None:
    async with connect() as master:
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
    incremental = question.topic in TOPIC_QUERIES and TOPIC_QUERIES[question.topic].incremental
    redraw = screen.is_terminal and question.output is Output.TABLE and not incremental
    with Live(console=screen, auto_refresh=False) if redraw else nullcontext() as live:
        while True:
            try:
                async with (
                    connect() as master,
                    aclosing(_answers(master, question.topic)) as answers,
                ):
                    async for answer in answers:
                        answered = True
                        if live is not None:
                            live.update(answer.text, refresh=True)
                        else:
                            _print(answer, question.output)
            except (MasterUnavailable, NoSuchObject) as error:
                if not answered:
                    raise
                typer.echo(str(error), err=True)
                return
            except ClientError:
                if not answered:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)


async def _answers(master: Master, topic: Topic) -> AsyncGenerator[_Answer, None]:
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
