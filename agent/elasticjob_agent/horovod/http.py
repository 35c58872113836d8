"""Serves HTTP to Horovod's clients in one pod: GET, PUT and DELETE of `/<scope>/<key>`.

It answers one request on each connection. The clients, one in C++ and one in Python, cannot send a
token, so it listens only on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

LONGEST_HEAD = 16 * 1024
LONGEST_BODY = 512 * 1024
MAX_CONNECTIONS = 1024
_READ_SECONDS = 30.0
_LONGEST_NUMBER = 10
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    413: "Content Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Request:
    """One request; the path is `/scope/key`."""

    method: str
    scope: str
    key: str
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One answer.

    Horovod's C++ client knows 200 and 404; after any other it tries twice more, and then ends.
    """

    status: int = 200
    body: bytes = b""


class HttpServer:
    """Serves the requests by a function."""

    def __init__(self, answer: Callable[[Request], Awaitable[Answer]]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Listen on a free port of 127.0.0.1, and return it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LONGEST_HEAD)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop serving, and leave the open requests unanswered."""
        if self._server is not None:
            self._server.close()
        self.drop_requests()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def drop_requests(self) -> None:
        """Drop the open requests: their processes have exited."""
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                answer = Answer(503)
            else:
                async with asyncio.timeout(_READ_SECONDS):
                    request = await _read(reader)
                answer = await self._answer(request) if isinstance(request, Request) else request
            writer.write(_head(answer) + answer.body)
            async with asyncio.timeout(_READ_SECONDS):
                await writer.drain()
        except (
            ConnectionError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # the process has ended, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # asyncio would log it: this task is its own
        finally:
            self._connections.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | Answer:
    """Return the request, or the refusal of a bad one."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    words = head[0].split(" ")
    path = []
    if len(words) == 3:
        path = words[1].split("/")
    if len(path) != 3 or path[0] or not path[1] or not path[2]:
        return Answer(400)
    fields = (line.partition(":") for line in head[1:])
    lengths = [value.strip() for name, _, value in fields if name.lower() == "content-length"]
    length = lengths[0] if lengths else "0"
    if not (length.isascii() and length.isdigit()):
        return Answer(400)
    if len(length) > _LONGEST_NUMBER or int(length) > LONGEST_BODY:
        return Answer(413)
    return Request(words[0], path[1], path[2], await reader.readexactly(int(length)))


def _head(answer: Answer) -> bytes:
    # Horovod's C++ client knows this spelling of Content-Length only.
    reason = _REASONS.get(answer.status, "")
    lines = (
        f"HTTP/1.1 {answer.status} {reason}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
