"""The socket of a run, by which other commands of its user scale and end it.

A request is a line of JSON, and so is its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from elasticjob_client.errors import ClientError
from elasticjob_client.scaling import SizeChange

from elasticjob_cli.common.local_runs import SOCKET

_MOST_BYTES = 65_536
_SECONDS = 10.0
_END_SECONDS = 2.0
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Scale(msgspec.Struct, frozen=True, tag=True):
    """Change the number of workers."""

    change: SizeChange


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the run, after its workers have saved."""


class Show(msgspec.Struct, frozen=True, tag=True):
    """Return the number of workers."""


class AwaitEnd(msgspec.Struct, frozen=True, tag=True):
    """Answer when the run has ended."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of a run.

    Attributes:
        error: why the request was refused; empty: it was carried out.
        size: the requested number of workers.
        leaving: the number of workers that are leaving.
        outcome: how the run has ended: Succeeded, Failed or Stopped; empty before.
    """

    error: str = ""
    size: int = 0
    leaving: int = 0
    outcome: str = ""


Request = Scale | Stop | Show | AwaitEnd


@asynccontextmanager
async def serve(
    folder: Path, handle: Callable[[Request], Answer], outcome: asyncio.Future[str]
) -> AsyncIterator[None]:
    """Answer requests; at the end also those of clients that have connected and not yet asked.

    Args:
        folder: the run's.
        handle: returns the answer; a `ClientError` becomes an answer with its text.
        outcome: how the run has ended.
    """
    answering: set[asyncio.Task[Any]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            answering.add(task)
            task.add_done_callback(answering.discard)
        try:
            line = await asyncio.wait_for(reader.readline(), _SECONDS)
            try:
                wanted = msgspec.json.decode(line, type=Request)
                found = handle(wanted)
                if isinstance(wanted, AwaitEnd):
                    found = Answer(outcome=await asyncio.shield(outcome))
            except (ClientError, msgspec.DecodeError) as error:
                found = Answer(error=str(error))
            writer.write(msgspec.json.encode(found) + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # the client has disconnected, was too slow, or sent too much
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, folder / SOCKET, limit=_MOST_BYTES)
    try:
        yield
    finally:
        if answering:
            await asyncio.wait(answering, timeout=_END_SECONDS)
        server.close()


async def end_of_run(folder: Path) -> asyncio.Task[str]:
    """Ask the run of a folder to tell its end; return a task with its outcome, or `killed`.

    The run has the request when this returns, so no later work of the caller misses the end.
    """
    streams = None
    with suppress(OSError):
        streams = await _send(folder, AwaitEnd())
    return asyncio.create_task(_outcome(streams))


async def _send(folder: Path, wanted: Request) -> _Streams:
    """Connect to the run of a folder, and send a request. Raises `OSError`."""
    streams = await asyncio.open_unix_connection(folder / SOCKET, limit=_MOST_BYTES)
    streams[1].write(msgspec.json.encode(wanted) + b"\n")
    return streams


async def _outcome(streams: _Streams | None) -> str:
    if streams is None:
        return "killed"
    reader, writer = streams
    try:
        return msgspec.json.decode(await reader.readline(), type=Answer).outcome
    except (OSError, msgspec.DecodeError):
        return "killed"
    finally:
        writer.close()


async def request(folder: Path, wanted: Request) -> Answer:
    """Send a request to the run of a folder.

    Raises:
        ClientError: the request was refused; the message says why.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await _send(folder, wanted)
            try:
                line = await reader.readline()
            finally:
                writer.close()
        answer = msgspec.json.decode(line, type=Answer)
    except (OSError, TimeoutError, msgspec.DecodeError) as error:
        raise ClientError(
            f"run {folder.name} does not answer ({error or 'no answer in time'}); has it ended?"
        ) from error
    if answer.error:
        raise ClientError(f"run {folder.name}: {answer.error}")
    return answer
