"""Attacks the HTTP port, and both ports below HTTP, with nearly valid and random bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
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
from tests.support.fuzz.http_requests import Connect, HttpRequests, hold_halves, send_inputs
from tests.support.grpc_agent import SECONDS
from tests.support.master_process import Master


def connecting(port: int) -> Connect:
    return partial(asyncio.open_connection, "127.0.0.1", port)


async def check_survival(
    master: Master, port: int, requests: HttpRequests, inputs: int
) -> Counter[str]:
    answers: Counter[str] = Counter()
    await send_inputs(connecting(port), requests, inputs // 4, answers)
    before = rss(master)
    log_before = master.log.stat().st_size
    await send_inputs(connecting(port), requests, inputs * 3 // 4, answers)
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
    requests = HttpRequests(f"http {seed}")
    async with master_with_bystanders(tmp_path, "--insecure") as master:
        answers = await check_survival(master, master.http_port, requests, inputs // 10)
        await check_hosts_are_served(master)
    assert not [code for code in answers if code.startswith("5") and code not in ("501", "505")], (
        answers
    )


@pytest.mark.guarantee("ports-are-guarded")
async def test_no_half_requests_and_idle_clients_keep_others_from_the_hosts(
    tmp_path: Path, seed: int
) -> None:
    requests = HttpRequests(f"half {seed}")
    async with master_with_bystanders(tmp_path, "--insecure") as master:
        for _ in range(4):
            held = await hold_halves(connecting(master.http_port), requests)
            await check_hosts_are_served(master)
            for writer in held:
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
                master, port, HttpRequests(f"tls {number} {seed}"), inputs // 40
            )
            assert "200" not in answers


class _Http2(HttpRequests):
    """Draws bytes that begin as HTTP/2 does."""

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
