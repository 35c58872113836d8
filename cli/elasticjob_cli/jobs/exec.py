"""`elasticjob exec`: runs a command in the container of a member."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.execution import STDERR, Execution, execute
from elasticjob_client.members import Choice, JobPod, chosen_pods

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.options import AnyRole, Job, complete_pod, reported, run_on_job
from elasticjob_cli.common.streams import echo

_CHUNK = 1 << 15


@for_cluster
def exec_(
    job: Job,
    command: Annotated[
        list[str], Argument(help="Program and arguments, after --.", metavar="-- COMMAND")
    ],
    access: Access,
    rank: Annotated[int | None, Option(help="Of the member; default: 0.", min=0)] = None,
    pod: Annotated[
        str | None,
        Option(help="One of the job's pods, by its name.", autocompletion=complete_pod),
    ] = None,
    role: AnyRole = None,
    stdin: Annotated[
        bool, Option("--stdin", "-i", help="Send it this input; on a terminal: always.")
    ] = False,
    terminal: Annotated[
        bool | None,
        Option(
            "--tty/--no-tty",
            "-t/-T",
            help="Give it a terminal; default: if this command runs in one.",
        ),
    ] = None,
) -> None:
    """Run a command in the container of a job's member.

    The default is the member with rank 0. The exit code is that of the command.
    """
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with_terminal = at_terminal if terminal is None else terminal
    with_input = stdin or at_terminal

    with reported():
        if pod is not None and (rank is not None or role is not None):
            raise WrongArgument("give either --pod or --rank and --role")
    choice = Choice(ranks=() if rank is None else (rank,), role=role, pod=pod)

    async def work(cluster: Cluster, found: ElasticJob) -> int:
        member = await _member(cluster, found, choice)
        async with execute(
            cluster,
            member.name,
            command,
            container=member.container,
            stdin=with_input,
            terminal=with_terminal,
        ) as execution:
            with _raw_terminal(with_terminal and sys.stdin.isatty()):
                return await _attend(execution, stdin=with_input, terminal=with_terminal)

    raise SystemExit(run_on_job(access, job, work))


async def _member(cluster: Cluster, job: ElasticJob, choice: Choice) -> JobPod:
    pods, ranks = await chosen_pods(cluster, job, choice)
    running = [each for each in pods if each.runs]
    if not running:
        raise ClientError(f"pod {pods[0].name} does not run now: it is {pods[0].status.phase}")
    if choice.needs_ranks and not ranks:
        echo(f"no ranks are known: in {running[0].name}, by its index", err=True)
    return running[0]


async def _attend(execution: Execution, *, stdin: bool, terminal: bool) -> int:
    """Carry input and output until the command has ended; return its exit code."""
    loop = asyncio.get_running_loop()
    helpers: list[asyncio.Task[None]] = []
    if terminal:
        sizes = asyncio.Event()
        sizes.set()
        loop.add_signal_handler(signal.SIGWINCH, sizes.set)
        helpers.append(asyncio.create_task(_send_sizes(execution, sizes)))
    if stdin:
        helpers.append(asyncio.create_task(_send_input(execution)))
    try:
        async for channel, data in execution.output():
            target = sys.stderr.buffer if channel == STDERR else sys.stdout.buffer
            target.write(data)
            target.flush()
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
    return execution.code or 0


async def _send_sizes(execution: Execution, changed: asyncio.Event) -> None:
    while True:
        await changed.wait()
        changed.clear()
        with suppress(OSError):
            size = os.get_terminal_size(sys.stdin.fileno())
            await execution.resize(size.columns, size.lines)


async def _send_input(execution: Execution) -> None:
    while data := await _read():
        await execution.write(data)
    await execution.end_input()


async def _read() -> bytes:
    """Return the next bytes of standard input.

    An event loop cannot wait for a file, so files are read in a thread.
    """
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return await asyncio.to_thread(os.read, descriptor, _CHUNK)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK)


@contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Send every key to the command unchanged, also Ctrl-C."""
    if not wanted:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
