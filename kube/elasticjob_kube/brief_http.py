"""HTTP for commands that send a few requests and end: the import of aiohttp takes longer than both.

HTTP/1.1 on asyncio's streams, for answers of an API server: with a length, in chunks, or until the
end of the connection. A websocket, and a server behind a proxy, is reached by aiohttp.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from elasticjob_kube.access import Access
from elasticjob_kube.transport import CONNECT_SECONDS, MAX_LINE_BYTES, probe

if TYPE_CHECKING:
    from elasticjob_kube.connection import AioHttp

_PART_BYTES = 64 * 1024
_GZIP = 31
"""zlib's number for this format."""
_WITHOUT_BODY = (204, 304)
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Headers(dict[str, str]):
    """Headers whose names are found in any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class Answer:
    """An answer whose body may still arrive; it is its own content."""

    def __init__(
        self, status: int, reason: str, headers: _Headers, parts: AsyncGenerator[bytes, None]
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = self
        self._parts = parts

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([part async for part in self._parts])

    def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body."""
        return self._parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the lines of the body."""
        rest: list[bytes] = []
        size = 0
        async for part in self._parts:
            *lines, last = part.split(b"\n")
            for line in lines:
                yield b"".join([*rest, line, b"\n"])
                rest = []
                size = 0
            rest.append(last)
            size += len(last)
            if size > MAX_LINE_BYTES:
                raise ValueError("a line of the answer is too long")
        if size:
            yield b"".join(rest)


class BriefHttp:
    """Connections to the API server of an access."""

    failures: tuple[type[Exception], ...] = (EOFError, ValueError)

    def __init__(self, access: Access) -> None:
        url = urlsplit(access.host)
        self._access = access
        self._secure = url.scheme == "https"
        self._host = url.hostname or ""
        self._authority = url.netloc.rpartition("@")[2]
        self._port = url.port or (443 if self._secure else 80)
        self._idle: list[_Streams] = []
        self._stack = AsyncExitStack()
        self._full: AioHttp | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        seconds: float | None,
        body: bytes | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request, as `Http.request` says."""
        async with asyncio.timeout(seconds):
            reader, writer = self._idle.pop() if self._idle else await self._connected()
            state = _Body()
            try:
                if before_write is not None:
                    before_write()
                writer.write(self._head(method, url, params, headers, body) + (body or b""))
                await writer.drain()
                status, reason, found = await _answer_head(reader)
                async with aclosing(_decoded(state.parts(reader, status, found), found)) as parts:
                    yield Answer(status, reason, found, parts)
            finally:
                if state.is_read and not reader.at_eof():
                    self._idle.append((reader, writer))
                else:
                    writer.transport.abort()

    async def ws_connect(self, url: str, **settings: Any) -> Any:
        """Open a websocket by aiohttp."""
        from elasticjob_kube.connection import open_http  # slow: it imports aiohttp

        if self._full is None:
            self._full = await self._stack.enter_async_context(open_http(self._access))
        return await self._full.ws_connect(url, **settings)

    def close_idle(self) -> None:
        """Close the connections that no request uses."""
        for _, writer in self._idle:
            writer.transport.abort()
        self._idle.clear()

    async def __aenter__(self) -> BriefHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_idle()
        await self._stack.aclose()

    async def _connected(self) -> _Streams:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._host,
                self._port,
                ssl=self._access.context if self._secure else None,
                limit=_PART_BYTES,
            )
        probe(writer.get_extra_info("socket"))
        return reader, writer

    def _head(
        self,
        method: str,
        url: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes:
        path = quote(urlsplit(url).path or "/", safe="/%:@!$&'()*+,;=~")
        query = f"?{urlencode(params)}" if params else ""
        lines = [f"{method} {path}{query} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append("Accept-Encoding: gzip")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header has several lines")
        return "\r\n".join([*lines, "", ""]).encode()


class _Body:
    """The body of an answer. `is_read`: the connection can be used again."""

    def __init__(self) -> None:
        self.is_read = False

    async def parts(
        self, reader: asyncio.StreamReader, status: int, headers: _Headers
    ) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they arrive."""
        reusable = headers.get("Connection", "").lower() != "close"
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int((await _line(reader)).partition(b";")[0], 16):
                async for part in _exactly(reader, size):
                    yield part
                await reader.readexactly(2)
            while await _line(reader):
                pass
        elif (length := headers.get("Content-Length")) is not None or status in _WITHOUT_BODY:
            async for part in _exactly(reader, int(length or 0)):
                yield part
        else:
            reusable = False
            while part := await reader.read(_PART_BYTES):
                yield part
        self.is_read = reusable


async def _answer_head(reader: asyncio.StreamReader) -> tuple[int, str, _Headers]:
    status = 100
    while 100 <= status < 200:
        protocol, _, line = (await _line(reader)).decode("latin-1").partition(" ")
        if not protocol.startswith("HTTP/1."):
            raise ValueError(f"the answer is not HTTP/1: {protocol[:40]!r}")
        code, _, reason = line.partition(" ")
        status = int(code)
        headers = _Headers()
        while field := (await _line(reader)).decode("latin-1"):
            name, _, value = field.partition(":")
            headers[name.strip().lower()] = value.strip()
    return status, reason, headers


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the server has closed the connection")
    return line.rstrip(b"\r\n")


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size > 0:
        part = await reader.read(min(size, _PART_BYTES))
        if not part:
            raise EOFError("the server has closed the connection within an answer")
        size -= len(part)
        yield part


async def _decoded(
    parts: AsyncGenerator[bytes, None], headers: _Headers
) -> AsyncGenerator[bytes, None]:
    unzip = zlib.decompressobj(_GZIP) if headers.get("Content-Encoding") == "gzip" else None
    async with aclosing(parts):
        async for part in parts:
            found = part if unzip is None else unzip.decompress(part)
            if found:
                yield found
