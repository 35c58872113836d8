"""Sends nearly valid and random requests to an HTTP port."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tests.support.fuzz.random_messages import RandomMessages
from tests.support.master_process import TOKEN

METHODS = (
    "GET",
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "PRI",
    "get",
    "",
)
PATHS = (
    "/hosts", "/healthz", "/readyz", "/metrics", "/", "/status", "/stream", "/hosts/", "//hosts",
    "/hosts?a=b&a", "/../hosts",
    "/%68osts", "*", "hosts", "http://elsewhere/hosts", "/\0", "/%", "/%ff", "/" + "x" * 9000, "",
)  # fmt: skip
HEADERS = (
    "Host: master", "Connection: close", "Connection: upgrade", "Upgrade: websocket",
    "Content-Length: 5",
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip", "Content-Encoding: deflate",
    "Expect: 100-continue",
    "Range: bytes=0-", "Accept: */*", "Accept-Encoding: gzip", "Cookie: a=b; \x01", ": empty",
    "no colon", " folded: x",
    "X: " + "y" * 9000, f"Authorization: Bearer {TOKEN}", "Authorization: Bearer wrong",
    "Authorization: \xff",
)  # fmt: skip
BODIES = (
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n\r\n",
    b"\x1f\x8b" + b"\0" * 50,
)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n")
TOGETHER = 16
HELD = 280
"""More connections than a port keeps."""
ANSWER_SECONDS = 0.05
"""The wait for an answer. Most inputs are incomplete requests and get none."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Connection]]


class HttpRequests(RandomMessages):
    """Draws something like HTTP requests.

    Args:
        seed: of all choices.
        paths: the server's paths, and others.
        headers: its headers, and others.
        bodies: bodies that say nothing to it, or much.
        methods: the methods of those requests that are right in form.
    """

    def __init__(
        self,
        seed: str,
        *,
        paths: Sequence[str] = (),
        headers: Sequence[str] = (),
        bodies: Sequence[bytes] = (),
        methods: Sequence[str] = METHODS[:8],
    ) -> None:
        super().__init__(seed, {})
        self._good_paths = (*paths, *PATHS[:13])
        self._paths = (*paths, *PATHS)
        self._headers = (*headers, *HEADERS)
        self._bodies = (*bodies, *BODIES)
        self._methods = methods

    def request(self) -> bytes:
        """Return a request."""
        rng = self.rng
        if rng.random() < 0.1:
            return rng.randbytes(int(2 ** rng.uniform(0, 12)))
        if rng.random() < 0.5:
            made = self._wild_request()
        else:
            line = f"{rng.choice(self._methods)} {rng.choice(self._good_paths)} HTTP/1.1"
            body = rng.choice(self._bodies)
            length = f"Content-Length: {len(body)}"
            made = (
                _encoded(line, [*rng.choices(self._headers, k=rng.choice((0, 1))), length]) + body
            )
        if rng.random() < 0.1:
            return self.corrupted(made)
        return made

    def _wild_request(self) -> bytes:
        rng = self.rng
        path = rng.choice(self._paths)
        if rng.random() < 0.2:
            path = "/" + self.text()
        version = rng.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "ICY"))
        headers = rng.choices(self._headers, k=rng.choice((0, 1, 2, 5, 200)))
        made = _encoded(f"{rng.choice(METHODS)} {path} {version}", headers)
        return made + rng.choice(self._bodies)


def _encoded(line: str, headers: Sequence[str]) -> bytes:
    text = "\r\n".join((line, "Host: master", *headers, "", ""))
    return text.encode("utf-8", "replace")


async def send_inputs(
    connect: Connect, requests: HttpRequests, inputs: int, answers: Counter[str]
) -> None:
    """Send the inputs over some connections at a time, and open new ones when they are closed."""
    left = inputs

    async def some() -> None:
        nonlocal left
        while left > 0:
            reader, writer = await connect()
            try:
                for _ in range(requests.rng.randrange(1, 20)):
                    left -= 1
                    writer.write(requests.request())
                    await writer.drain()
                    try:
                        data = await asyncio.wait_for(reader.read(1 << 16), ANSWER_SECONDS)
                    except TimeoutError:
                        answers["no answer yet"] += 1
                        break
                    answers.update(status.decode() for status in _STATUS.findall(data))
                    if not data:
                        answers["closed"] += 1
                        break
            except ConnectionError:
                answers["closed"] += 1
            finally:
                writer.transport.abort()

    await asyncio.gather(*(some() for _ in range(TOGETHER)))


async def hold_halves(connect: Connect, requests: HttpRequests) -> list[asyncio.StreamWriter]:
    """Open more connections than a port keeps, each with a part of a request or nothing."""
    held = []
    for _ in range(HELD):
        with suppress(ConnectionError):  # during the handshake, to make room for another one
            _, writer = await connect()
            held.append(writer)
            sent = requests.request()
            part = sent[: requests.rng.randrange(len(sent) + 1)]
            writer.write(part if requests.rng.random() < 0.7 else b"")
    return held
