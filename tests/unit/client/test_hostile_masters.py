"""Lets a tenant's master send what would harm a server of pages that all tenants use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_client import dashboard, page_source
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.page_source import MOST_LARGE, LargeAnswers
from elasticjob_dashboard.data import NAMES, page_sections

from tests.support.impostor import Impostor, cluster_with, impostor
from tests.support.loopback import loopback_network

DEPTH = 200_000
TINY = b"{%b}" % b",".join(b'"a%d":1' % number for number in range(200_000))


class Page:
    """The page of a job whose master is another's server."""

    def __init__(self, master: Impostor, url: str) -> None:
        self.master = master
        self.url = url

    async def status(self) -> tuple[int, str]:
        async with aiohttp.ClientSession(self.url) as http, http.get("/status") as answer:
            return answer.status, await answer.text()

    async def first_line(self) -> dict[str, object]:
        """Return the first line of the stream."""
        async with aiohttp.ClientSession(self.url) as http, http.get("/stream") as answer:
            found: dict[str, object] = json.loads(await answer.content.readline())
            return found


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    with loopback_network() as network:
        address = f"{network}.1"
        async with (
            impostor(address, tmp_path) as master,
            cluster_with(tmp_path, address=address, authority=master.authority) as cluster,
            serve_dashboard(cluster, "a") as url,
        ):
            yield Page(master, url)


@pytest.mark.guarantee("hostile-masters")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"phase": %b' % (b"[" * DEPTH), "nested too deeply"),
        (b'{"odd": %b%b}' % (b"[" * DEPTH, b"]" * DEPTH), "nested too deeply"),
        (b"[" * DEPTH, "no page's data"),
        (b"<html>", "no page's data"),
        (b'{"phase": "%b"}' % (b"x" * 40_000), "more than 30000 bytes"),
    ],
    ids=["deep", "deep and unknown", "only deep", "HTML", "long"],
)
async def test_an_answer_that_is_no_page_is_reported_and_nothing_else_fails(
    page: Page, body: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_source, "_MAX_BYTES", 30_000 if "30000" in why else 1 << 20)
    page.master.body = body
    status, text = await page.status()
    assert (status, why in text) == (503, True), text
    assert why in str((await page.first_line())["problem"])
    page.master.body = b'{"phase": "training"}'
    assert await page.status() == (200, '{"phase":"training"}')


@pytest.mark.guarantee("hostile-masters")
async def test_sections_that_the_page_does_not_know_are_dropped(page: Page) -> None:
    page.master.body = TINY[:-1] + b', "step": 1, "phase": "training"}'
    assert await page.status() == (200, '{"phase":"training"}')
    assert set(await page.first_line()) == {"phase", "problem"}


def test_the_page_knows_all_sections_of_a_master() -> None:
    assert tuple(page_sections(job_pb2.StoredAnswers())) == NAMES


@pytest.mark.guarantee("hostile-masters")
async def test_a_reader_that_does_not_read_keeps_no_other_request_waiting_for_long(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "_SEND_SECONDS", 0.3)
    page.master.body = b'{"phase": "%b"}' % (b"x" * (16 << 20))
    host, port = page.url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.write(b"GET /status HTTP/1.1\r\nHost: %b:%b\r\n\r\n" % (host.encode(), port.encode()))
    await reader.readexactly(1)
    page.master.body = (
        b'{"phase": "training"}'  # the other's answer fits into the bound at any load
    )
    try:
        async with asyncio.timeout(20):
            assert (await page.status())[0] == 200
    finally:
        writer.transport.abort()


@pytest.mark.guarantee("hostile-masters")
async def test_few_pages_of_a_server_have_much_data_at_a_time(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = LargeAnswers()
    pages = [object() for _ in range(MOST_LARGE + 1)]
    assert [large.admit(each) for each in pages] == [True] * MOST_LARGE + [False]
    assert large.admit(pages[0])
    monkeypatch.setattr(page_source, "_LARGE_SECONDS", 0.0)
    assert large.admit(pages[-1])

    monkeypatch.setattr(page_source, "MOST_LARGE", 0)
    page.master.body = b'{"phase": "%b"}' % (b"x" * (2 << 20))
    status, text = await page.status()
    assert (status, "close one of these pages" in text) == (503, True)
