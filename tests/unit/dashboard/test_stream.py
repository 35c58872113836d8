"""Tests the stream of the job's page: what it sends, and that no reader can hold the server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from elasticjob_api.transports import abort
from elasticjob_dashboard import stream
from elasticjob_dashboard.data import Sections, sections_of
from elasticjob_dashboard.stream import Streams, changes

from tests.support.self_signed import server_context
from tests.support.served_app import served_app
from tests.support.wait import until


class Served:
    """A server with one stream of sections, which a test changes."""

    def __init__(self) -> None:
        self.sections: Sections = {"step": b"1", "phase": b'"training"'}
        self.streams = Streams(self._read, most=1, seconds=0.01)
        self.url = ""

    async def _read(self) -> Sections:
        return self.sections

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request, {"X-Own": "a"})


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(stream, "_SEND_SECONDS", 0.1)
    made = Served()
    app = web.Application()
    app.router.add_get("/stream", made.answer)
    async with served_app(app) as port:
        made.url = f"http://127.0.0.1:{port}/stream"
        try:
            yield made
        finally:
            made.streams.end()


async def line(answer: aiohttp.ClientResponse) -> Any:
    """Return the next line that is not empty."""
    while not (found := (await answer.content.readline()).strip()):
        pass
    return json.loads(found)


async def test_a_stream_sends_all_then_what_has_changed_and_ends_with_the_server(
    served: Served,
) -> None:
    async with aiohttp.ClientSession() as http, http.get(served.url) as answer:
        assert (answer.status, answer.headers["X-Own"]) == (200, "a")
        assert await line(answer) == {"step": 1, "phase": "training"}
        served.sections = {"step": b"2", "phase": b'"training"'}
        assert await line(answer) == {"step": 2}
        served.streams.end()
        with pytest.raises(aiohttp.ClientError):
            await answer.content.read()


async def test_a_stream_without_changes_shows_that_the_server_is_there(served: Served) -> None:
    async with aiohttp.ClientSession() as http, http.get(served.url) as answer:
        await line(answer)
        assert await answer.content.readline() == b"\n"


async def test_one_stream_too_many_is_refused_until_another_ends(served: Served) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(served.url) as first:
            await line(first)
            async with http.get(served.url) as second:
                assert second.status == 503
                assert "1 streams are open" in await second.text()

        async def admitted() -> bool:
            async with http.get(served.url) as answer:
                return answer.status == 200

        await until("the end of the first stream counts", admitted)


async def test_a_reader_that_does_not_read_is_disconnected(served: Served) -> None:
    reader, writer = await asyncio.open_connection(*served.url.split("/")[2].split(":"))
    try:
        writer.write(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        await until("the stream", lambda: bool(served.streams._open))
        reader._transport.pause_reading()  # type: ignore[attr-defined]

        def dropped() -> bool:
            served.sections = {"much": json.dumps("x" * 8_000_000 + str(id(object()))).encode()}
            return not served.streams._open

        await until("the end of the stream", dropped)
    finally:
        writer.transport.abort()


async def test_a_connection_with_tls_that_is_lost_ends_its_stream_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, tls = server_context(tmp_path, "page")
    served = Served()
    app = web.Application()
    app.router.add_get("/stream", served.answer)
    async with served_app(app, tls) as port:
        context = ssl.create_default_context(cadata=certificate)
        context.check_hostname = False
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        await until("the stream", lambda: bool(served.streams._open))
        (transport,) = served.streams._open
        writer.transport.abort()
        await until("the end of the stream", lambda: not served.streams._open)
        abort(transport)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_section_stays_on_one_line_and_keeps_its_value() -> None:
    found = sections_of(b'{"plans": [1,\n 2], "job": "x\\ny", "other": 1}')
    values = {name: json.loads(part) for name, part in found.items()}
    assert values == {"plans": [1, 2], "job": "x\ny"}
    assert b"\n" not in changes({}, found)
    assert changes(found, found) == b""
