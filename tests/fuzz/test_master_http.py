"""Attacks the HTTP port, and both ports below HTTP, with nearly valid and random bytes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.fuzz.bystanders import (
    GROWTH,
    LOG_PER_INPUT,
    MEGABYTE,
    master_with_bystanders,
    rss,
)
from tests.support.fuzz.random_messages import RandomMessages
from tests.support.grpc_agent import SECONDS
from tests.support.master_process import TOKEN, Master

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
"""More connections than the port keeps."""
ANSWER_SECONDS = 0.05
"""The wait for an answer. Most inputs are incomplete requests and get none."""


def request(generator: RandomMessages) -> bytes:
    """Return something like an HTTP request."""
    rng = generator.rng
    if rng.random() < 0.1:
        return rng.randbytes(int(2 ** rng.uniform(0, 12)))
    if rng.random() < 0.5:
        made = _wild_request(generator)
    else:
        line = f"{rng.choice(METHODS[:8])} {rng.choice(PATHS[:13])} HTTP/1.1"
        made = _encoded(line, rng.choices(HEADERS, k=rng.choice((0, 1))))
    if rng.random() < 0.1:
        return generator.corrupted(made)
    return made


def _wild_request(generator: RandomMessages) -> bytes:
    rng = generator.rng
    path = rng.choice(PATHS)
    if rng.random() < 0.2:
        path = "/" + generator.text()
    version = rng.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "ICY"))
    headers = rng.choices(HEADERS, k=rng.choice((0, 1, 2, 5, 200)))
    return _encoded(f"{rng.choice(METHODS)} {path} {version}", headers) + rng.choice(BODIES)


def _encoded(line: str, headers: list[str]) -> bytes:
    text = "\r\n".join((line, "Host: master", *headers, "", ""))
    return text.encode("utf-8", "replace")


async def send_inputs(
    port: int, generator: RandomMessages, inputs: int, answers: Counter[str]
) -> None:
    """Send the inputs over some connections at a time, and open new ones when they are closed."""
    left = inputs

    async def some() -> None:
        nonlocal left
        while left > 0:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                for _ in range(generator.rng.randrange(1, 20)):
                    left -= 1
                    writer.write(request(generator))
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


async def check_survival(
    master: Master, port: int, generator: RandomMessages, inputs: int
) -> Counter[str]:
    answers: Counter[str] = Counter()
    await send_inputs(port, generator, inputs // 4, answers)
    before = rss(master)
    log_before = master.log.stat().st_size
    await send_inputs(port, generator, inputs * 3 // 4, answers)
    grown = rss(master) - before
    logged = master.log.stat().st_size - log_before
    print(f"{inputs} inputs: grown by {grown / MEGABYTE:.1f} MiB, log {logged}; {dict(answers)}")
    assert grown <= GROWTH
    assert logged <= LOG_PER_INPUT * inputs, "any client can fill the disk with the log"
    return answers


async def check_hosts_are_served(master: Master) -> None:
    """Check that a right request still gets its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", master.http_port)
    writer.write(b"GET /hosts HTTP/1.1\r\nHost: master\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(SECONDS):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer


@pytest.mark.guarantee("bad-input-is-refused")
async def test_no_bytes_on_the_http_port_harm_the_master_or_show_the_hosts(
    tmp_path: Path, inputs: int, seed: int
) -> None:
    generator = RandomMessages(f"http {seed}", {})
    async with master_with_bystanders(tmp_path, "--insecure") as master:
        answers = await check_survival(master, master.http_port, generator, inputs // 10)
        await check_hosts_are_served(master)
    assert not [code for code in answers if code.startswith("5") and code not in ("501", "505")], (
        answers
    )


@pytest.mark.guarantee("ports-are-guarded")
async def test_no_half_requests_and_idle_clients_keep_others_from_the_hosts(
    tmp_path: Path, seed: int
) -> None:
    generator = RandomMessages(f"half {seed}", {})
    rng = generator.rng
    async with master_with_bystanders(tmp_path, "--insecure") as master:
        for _ in range(4):
            held = [
                await asyncio.open_connection("127.0.0.1", master.http_port) for _ in range(HELD)
            ]
            for _, writer in held:
                sent = request(generator)
                writer.write(sent[: rng.randrange(len(sent) + 1)] if rng.random() < 0.7 else b"")
            await check_hosts_are_served(master)
            for _, writer in held:
                writer.transport.abort()


@pytest.mark.guarantee("bad-input-is-refused")
async def test_no_bytes_on_the_grpc_port_harm_the_master(
    tmp_path: Path, inputs: int, seed: int
) -> None:
    async with master_with_bystanders(tmp_path, "--insecure") as master:
        await check_survival(master, master.grpc_port, _Http2(f"grpc {seed}"), inputs // 20)


@pytest.mark.guarantee("bad-input-is-refused")
async def test_no_bytes_below_tls_harm_the_master(tmp_path: Path, inputs: int, seed: int) -> None:
    async with master_with_bystanders(tmp_path) as master:
        for number, port in enumerate((master.grpc_port, master.http_port)):
            answers = await check_survival(
                master, port, RandomMessages(f"tls {number} {seed}", {}), inputs // 40
            )
            assert "200" not in answers


class _Http2(RandomMessages):
    """Draws bytes that begin as HTTP/2 does."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed, {})

    def corrupted(self, data: bytes) -> bytes:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        frames = b"".join(self._frame() for _ in range(self.rng.randrange(6)))
        rest = b""
        if self.rng.random() < 0.5:
            rest = super().corrupted(data)
        return preface + frames + rest

    def _frame(self) -> bytes:
        rng = self.rng
        body = rng.choice((b"", rng.randbytes(rng.randrange(200)), names.TOKEN_METADATA.encode()))
        length = len(body)
        if rng.random() < 0.1:
            length = rng.getrandbits(24)
        head = length.to_bytes(3, "big") + bytes([rng.randrange(12), rng.getrandbits(8)])
        return head + rng.choice((0, 1, 3, rng.getrandbits(32))).to_bytes(4, "big") + body
