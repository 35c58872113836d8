"""`elasticjob query`, `history` and `stacks`: request a job's state from its master.

The status in Kubernetes is a summary a few seconds old. Only the master has members, shards and the
world. If the job has no master, as after its end, they show the answers that it has stored.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from elasticjob_api.v1 import job_pb2
from elasticjob_client.access import Access
from elasticjob_client.answers import Master, StoredMaster, open_master_or_report
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject, WrongArgument

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import DataFormat, DataOutput
from elasticjob_cli.common.local_runs import local_run
from elasticjob_cli.common.options import Job, reported, run_on_job
from elasticjob_cli.common.streams import echo
from elasticjob_cli.common.tables import show
from elasticjob_cli.query.report import history_csv
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic, message_fields

if TYPE_CHECKING:
    from rich.live import Live

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[Master | StoredMaster]]
Watch = Annotated[bool, Option("--watch", "-w", help="Show each change until the job has ended.")]
_RECONNECT_SECONDS = 1.0
_STACKS_SECONDS = 35.0
"""The master answers or refuses after at most 15 s; the rest is for a slow way to it."""
_MOST_RANKS = 16
_LIBRARYS_THREADS = ("elasticjob-", "shards_")
"""The beginnings of the names of threads that the library starts for itself."""


class HistoryFormat(StrEnum):
    """The formats of the history."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@for_cluster
def query(
    job: Job,
    access: Access,
    topic: Annotated[Topic, Argument(help="What to show; default: the whole job.")] = Topic.STATUS,
    address: Annotated[
        str | None,
        Option(
            help="HOST:PORT of the master, such as a forwarded port; default: as in the status."
        ),
    ] = None,
    watch: Watch = False,
    output: Annotated[
        DataFormat, Option("--output", "-o", help="Format; json with --watch: one a line.")
    ] = DataFormat.TABLE,
) -> None:
    """Query a job's master: world, members, shards, auto-scaling.

    The master knows more than the status in Kubernetes, and earlier. A topic shows one part in
    detail. If the job has ended or is suspended, the last answers of its master are shown.
    """
    _show(job, access, topic, output, watch=watch, address=address)


@for_cluster
def history(
    job: Job,
    access: Access,
    watch: Watch = False,
    output: Annotated[
        HistoryFormat,
        Option(
            "--output",
            "-o",
            help="Format; csv: a column per metric; json with --watch: one a line.",
        ),
    ] = HistoryFormat.TABLE,
) -> None:
    """Show a training over time: events, rate, metrics.

    It is the same as `elasticjob query JOB history`. After the end of the job it shows what the
    job's master has stored.
    """
    if output is not HistoryFormat.CSV:
        _show(job, access, Topic.HISTORY, DataFormat(output), watch=watch)
        return
    if watch:
        with reported():
            raise WrongArgument(
                "csv cannot be watched, as later metrics need columns of their own; use -o json"
            )
    echo(history_csv(_answer(job, access, Topic.HISTORY)), nl=False)


@for_cluster
def stacks(
    job: Job,
    access: Access,
    rank: Annotated[
        list[int] | None, Option(help="Of this rank only; can be repeated.", min=0)
    ] = None,
    output: DataOutput = DataFormat.TABLE,
) -> None:
    """Show what the training processes execute, and who waits.

    Ranks with equal stacks are shown together. The processes train on meanwhile.
    """
    ranks = rank or []

    async def work(connect: Connect) -> job_pb2.StackList:
        async with connect() as master:
            if isinstance(master, StoredMaster):
                raise ClientError(f"nothing runs whose stacks could be read: {master.why}")
            found: job_pb2.StackList = await master.get(
                "Stacks", seconds=_STACKS_SECONDS, ranks=ranks
            )
        if missing := set(ranks) - {each for group in found.groups for each in group.ranks}:
            raise WrongArgument(
                f"--rank is {min(missing)}; round {found.round} has no such rank, "
                f"see elasticjob query {job}"
            )
        return found

    answer = _with_master(job, access, work)
    if output is DataFormat.JSON:
        echo(json.dumps(message_fields(answer)))
    else:
        echo("\n".join(stack_lines(answer)))


def stack_lines(answer: job_pb2.StackList) -> Iterator[str]:
    """Yield the lines that show stacks, without threads of the library itself."""
    yield answer.summary or "no training process runs now"
    for group in answer.groups:
        ranks = ", ".join(map(str, group.ranks[:_MOST_RANKS]))
        more = len(group.ranks) - _MOST_RANKS
        title = f"rank {ranks} and {more} more" if more > 0 else f"rank {ranks}"
        waits = group.waits_in and f"waits in {group.waits_in}"
        yield ""
        yield ": ".join(filter(None, (title, waits, group.problem)))
        yield from (f"    {frame}" for frame in group.frames)
        others = (each for each in group.other_threads if not each.startswith(_LIBRARYS_THREADS))
        yield from (f"  thread {thread}" for thread in others)


def _with_master(
    job: str,
    access: Access,
    work: Callable[[Connect], Coroutine[Any, Any, T]],
    *,
    address: str | None = None,
) -> T:
    """Return the result of `work` on a job's master, or on the answers that it has stored.

    A `ClientError` becomes one line on standard error and an exit code.
    """
    with reported():
        local = local_run(job, access, address)
        if local is not None:
            from elasticjob_cli.run.local import open_run_master

            return asyncio.run(work(lambda: open_run_master(local)))
    return run_on_job(
        access,
        job,
        lambda cluster, found: work(
            lambda: open_master_or_report(cluster, found.metadata.name, address=address)
        ),
    )


def _show(
    job: str,
    access: Access,
    topic: Topic,
    output: DataFormat,
    *,
    watch: bool,
    address: str | None = None,
) -> None:
    """Print the answer to a topic, or with `watch` each answer until the job has ended."""
    if watch:
        watching = _Watch(topic, output)
        _with_master(job, access, watching.run, address=address)
    else:
        _print(_answer(job, access, topic, address=address), topic, output)


def _answer(job: str, access: Access, topic: Topic, *, address: str | None = None) -> Any:
    """Return the answer to a topic."""

    async def work(connect: Connect) -> Any:
        async with connect() as master:
            if isinstance(master, StoredMaster):
                echo(master.why, err=True)
            if topic is Topic.STATUS:
                return await master.snapshot()
            return await master.get(TOPIC_QUERIES[topic].name)

    return _with_master(job, access, work, address=address)


def _print(answer: Any, topic: Topic, output: DataFormat) -> None:
    query = TOPIC_QUERIES[topic]
    if output is DataFormat.JSON:
        echo(query.as_json(answer))
    else:
        show(query.render(answer))


class _Watch:
    """Prints each answer until the job has ended; reconnects to the next master."""

    def __init__(self, topic: Topic, output: DataFormat) -> None:
        self._topic = topic
        self._query = TOPIC_QUERIES[topic]
        self._output = output
        self._live: Live | None = None
        self._last_answer_time: float | None = None

    async def run(self, connect: Connect) -> None:
        redraw = sys.stdout.isatty() and self._output is DataFormat.TABLE
        if not redraw or self._query.incremental:
            await self._follow_masters(connect)
            return
        from rich.live import Live

        with Live(auto_refresh=False) as self._live:
            await self._follow_masters(connect)

    async def _follow_masters(self, connect: Connect) -> None:
        while True:
            try:
                async with connect() as master:
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
        is_news = last is None or (not self._query.incremental and master.answers.time > last)
        if is_news or master.is_last:
            echo(master.why, err=True)
        if is_news:
            await self._show_all(master)

    async def _show_all(self, master: Master | StoredMaster) -> None:
        """Show an answer at each change, until the master ends."""
        async with aclosing(master.watch(self._query.name)) as answers:
            async for answer in answers:
                shown = await master.snapshot(answer) if self._topic is Topic.STATUS else answer
                self._last_answer_time = time.time()
                if self._live is not None:
                    self._live.update(self._query.render(shown), refresh=True)
                else:
                    _print(shown, self._topic, self._output)
