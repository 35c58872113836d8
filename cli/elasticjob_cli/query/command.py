"""`elasticjob query`: requests a job's state from its master, not from the API server.

The status in Kubernetes is a summary a few seconds old. Only the master has members, shards and the
world.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from elasticjob_client.cluster import Access
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject
from elasticjob_client.master_queries import Master
from elasticjob_client.report import StoredMaster, open_master_or_report
from rich.console import Console, RenderableType
from rich.live import Live

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs.options import Job, for_cluster, reported, run_on_job
from elasticjob_cli.jobs.printing import console
from elasticjob_cli.query import topics
from elasticjob_cli.query.job_view import as_json, as_text
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic
from elasticjob_cli.run.lookup import local_run

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[Master | StoredMaster]]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Show each change until the job has ended.")
]
_RECONNECT_SECONDS = 1.0


class Output(StrEnum):
    """The formats of an answer."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class _Answer:
    """An answer in both formats."""

    text: RenderableType
    json: str


@for_cluster
def query(
    job: Job,
    access: Access,
    topic: Annotated[
        Topic, typer.Argument(help="What to show; default: the whole job.")
    ] = Topic.STATUS,
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the master, such as a forwarded port; default: as in the status."
        ),
    ] = None,
    watch: Watch = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Format; json with --watch: one a line.")
    ] = Output.TABLE,
) -> None:
    """Query a job's master: world, members, shards, auto-scaling.

    The master knows more than the status in Kubernetes, and earlier. A topic shows one part in
    detail. If the job has ended or is suspended, the last answers of its master are shown.
    """
    show(job, access, topic, output, watch=watch, address=address)


def show(
    job: str,
    access: Access,
    topic: Topic,
    output: Output,
    *,
    watch: bool,
    address: str | None = None,
) -> None:
    """Print the answer to a topic, or with `watch` each answer until the job has ended."""

    async def work(connect: Connect) -> None:
        if watch:
            await _Watch(connect, topic, output).run()
            return
        async with connect() as master:
            note_source(master)
            answer = await _answer(master, topic)
        _print(answer, output, console())

    ask_master(job, access, work, address=address)


def ask_master(
    job: str, access: Access, work: Callable[[Connect], Awaitable[T]], *, address: str | None = None
) -> T:
    """Return the result of `work` on a job's master, or on the answers that it has stored.

    A `ClientError` becomes one line on standard error and an exit code.
    """
    with reported():
        local = local_run(job, address, access.namespace, access.context, access.kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import open_run_master

            return asyncio.run(_awaited(work(lambda: open_run_master(local))))
    return run_on_job(
        access,
        job,
        lambda cluster, found: work(
            lambda: open_master_or_report(cluster, found.metadata.name, address=address)
        ),
    )


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def note_source(master: Master | StoredMaster) -> None:
    """Print a line on standard error if stored answers replace those of the master."""
    if isinstance(master, StoredMaster):
        echo(master.why, err=True)


async def _answer(master: Master | StoredMaster, topic: Topic) -> _Answer:
    if topic is Topic.STATUS:
        snapshot = await master.snapshot()
        return _Answer(as_text(snapshot), as_json(snapshot))
    query = TOPIC_QUERIES[topic]
    answer = await master.get(query.name)
    return _Answer(query.render(answer), topics.as_json(answer))


async def _answers(master: Master | StoredMaster, topic: Topic) -> AsyncGenerator[_Answer, None]:
    """Yield an answer at each change, until the master ends."""
    if topic is Topic.STATUS:
        async with aclosing(master.watch("Status")) as statuses:
            async for status in statuses:
                snapshot = await master.snapshot(status)
                yield _Answer(as_text(snapshot), as_json(snapshot))
        return
    query = TOPIC_QUERIES[topic]
    async with aclosing(master.watch(query.name)) as answers:
        async for answer in answers:
            yield _Answer(query.render(answer), topics.as_json(answer))


class _Watch:
    """Prints each answer until the job has ended; reconnects to the next master."""

    def __init__(self, connect: Connect, topic: Topic, output: Output) -> None:
        self._connect = connect
        self._topic = topic
        self._output = output
        self._incremental = topic in TOPIC_QUERIES and TOPIC_QUERIES[topic].incremental
        self._console = console()
        self._live: Live | None = None
        self._last_answer_time: float | None = None

    async def run(self) -> None:
        redraw = self._console.is_terminal and self._output is Output.TABLE
        if not redraw or self._incremental:
            await self._follow_masters()
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            await self._follow_masters()

    async def _follow_masters(self) -> None:
        while True:
            try:
                async with self._connect() as master:
                    if isinstance(master, StoredMaster):
                        await self._show_stored(master)
                        if master.is_last:
                            return
                    else:
                        await self._show_all(master)
            except (MasterUnavailable, NoSuchObject) as error:
                if self._last_answer_time is None:
                    raise
                echo(str(error), err=True)
                return
            except ClientError:
                if self._last_answer_time is None:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _show_stored(self, master: StoredMaster) -> None:
        """Show stored answers unless a master has already sent newer ones, or all increments."""
        last = self._last_answer_time
        is_news = last is None or (not self._incremental and master.answers.time > last)
        if is_news or master.is_last:
            note_source(master)
        if is_news:
            await self._show_all(master)

    async def _show_all(self, master: Master | StoredMaster) -> None:
        async with aclosing(_answers(master, self._topic)) as answers:
            async for answer in answers:
                self._last_answer_time = time.time()
                if self._live is not None:
                    self._live.update(answer.text, refresh=True)
                else:
                    _print(answer, self._output, self._console)


def _print(answer: _Answer, output: Output, screen: Console) -> None:
    if output is Output.JSON:
        echo(answer.json)
    else:
        screen.print(answer.text)
