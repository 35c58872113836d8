"""Attacks a guarded server through real sockets, below and above TLS."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from aiohttp import web
from elasticjob_kube import guarded_server, open_files
from elasticjob_kube.guarded_server import GuardedServer, healthy

from tests.support.no_file import no_file
from tests.support.self_signed import server_context
from tests.support.wait import until

MOST = 10
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
HALF = GET[:-4]
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    return server_context(tmp_path, "server")[1]


@asynccontextmanager
async def serving(
    *, context: ssl.SSLContext | None = None, seconds: float = 60.0
) -> AsyncIterator[int]:
    async def slow(request: web.Request) -> web.Response:
        await web.StreamResponse().prepare(request)
        await asyncio.Event().wait()
        raise AssertionError

    async def body(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app = web.Application()
    app.add_routes([web.get("/healthz", healthy), web.get("/slow", slow), web.post("/", body)])
    server = GuardedServer(app, context=context, most=MOST, seconds=seconds)
    port = await server.start(["127.0.0.1"], 0)
    try:
        yield port
    finally:
        await server.stop()


async def connect(port: int, sent: bytes = b"", *, tls: bool = False) -> Client:
    context = ssl._create_unverified_context() if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(sent)
    return reader, writer


async def begin(port: int) -> Client:
    """Send a request whose answer does not end, and wait for its beginning."""
    client = await connect(port, b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    await client[0].readline()
    return client


async def is_served(port: int, *, tls: bool = False) -> bool:
    reader, writer = await connect(port, GET, tls=tls)
    async with asyncio.timeout(20):
        status = await reader.readline()
    writer.transport.abort()
    return status == b"HTTP/1.1 200 OK\r\n"


async def is_closed(client: Client) -> bool:
    """Wait until the server has closed a connection."""
    try:
        async with asyncio.timeout(20):
            await client[0].read()
    except ConnectionError:
        pass
    client[1].transport.abort()
    return True


async def is_closed_over_tls(port: int, sent: bytes) -> bool:
    """Connect by TLS, and wait until the server closes: it may do so before the handshake's end."""
    try:
        client = await connect(port, sent, tls=True)
    except ConnectionError:
        return True
    return await is_closed(client)


@pytest.mark.parametrize("sent", [b"", HALF, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"])
@pytest.mark.guarantee("ports-are-guarded")
async def test_a_client_has_little_time_for_its_first_complete_request(sent: bytes) -> None:
    async with serving(seconds=0.2) as port:
        assert await is_closed(await connect(port, sent))


@pytest.mark.guarantee("ports-are-guarded")
async def test_a_body_that_is_not_what_its_headers_say_is_an_error_of_the_sender() -> None:
    async with serving() as port:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n"
        reader, writer = await connect(port, head + b"hello")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"no TLS at all"])
@pytest.mark.guarantee("ports-are-guarded")
async def test_a_client_has_little_time_for_its_handshake(
    context: ssl.SSLContext, sent: bytes
) -> None:
    async with serving(context=context, seconds=0.2) as port:
        assert await is_closed(await connect(port, sent))
        assert await is_closed_over_tls(port, HALF)


@pytest.mark.guarantee("ports-are-guarded")
async def test_strangers_beyond_the_bound_close_the_oldest_and_keep_nobody_out(
    context: ssl.SSLContext,
) -> None:
    async with serving(context=context) as port:
        strangers = [await connect(port) for _ in range(MOST)]
        strangers += [await connect(port, HALF, tls=True) for _ in range(MOST)]
        for each in strangers[:MOST]:
            assert await is_closed(each)
        assert await is_served(port, tls=True)
        assert await is_closed(strangers[MOST])
        for _, writer in strangers:
            writer.transport.abort()


@pytest.mark.guarantee("ports-are-guarded")
async def test_a_known_client_stays_while_there_are_strangers_to_close() -> None:
    async with serving() as port:
        known = await connect(port, GET)
        assert await known[0].readuntil(b"ok\n")
        strangers = [await connect(port) for _ in range(2 * MOST)]
        assert await is_closed(strangers[0])
        known[1].write(GET)
        assert (await known[0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in (known, *strangers):
            writer.transport.abort()


@pytest.mark.guarantee("ports-are-guarded")
async def test_idle_clients_make_room_and_requests_in_progress_are_not_ended() -> None:
    async with serving() as port:
        idle = await connect(port, GET)
        await idle[0].readuntil(b"ok\n")
        busy = [await begin(port) for _ in range(MOST - 1)]
        assert await is_served(port)
        assert await is_closed(idle)
        busy.append(await begin(port))

        async def refused() -> bool:
            return await is_closed(await connect(port))

        assert await refused(), "all connections are in use"
        assert not any(reader.at_eof() for reader, _ in busy)
        for _, writer in busy:
            writer.transport.abort()
        await until("there is room again", lambda: is_served(port))


@pytest.mark.parametrize(
    "sent", [b"\0\r\n\r\n", b"GET\r\n\r\n", b"CONNECT HTTP/1.1\r\n\r\n", HALF + b"\r\n: x\r\n\r\n"]
)
@pytest.mark.guarantee("ports-are-guarded")
async def test_a_malformed_request_is_answered_and_not_logged(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as port:
        reader, writer = await connect(port, sent)
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/")
        writer.transport.abort()
    assert caplog.text == ""


@pytest.mark.guarantee("ports-are-guarded")
def test_the_event_loop_of_operator_and_master_is_guarded_too(context: ssl.SSLContext) -> None:
    async def attack() -> None:
        await test_a_client_has_little_time_for_its_first_complete_request(HALF)
        await test_a_client_has_little_time_for_its_handshake(context, b"")
        await test_strangers_beyond_the_bound_close_the_oldest_and_keep_nobody_out(context)
        await test_idle_clients_make_room_and_requests_in_progress_are_not_ended()

    uvloop.run(attack())


@pytest.mark.guarantee("ports-are-guarded")
async def test_a_process_that_can_open_no_file_is_not_healthy_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded_server, "_SWEEP_SECONDS", 0.1)
    async with serving() as port:
        reader, writer = await connect(port, GET)
        await reader.readuntil(b"ok\n")
        with no_file():
            writer.write(GET)
            answer = await reader.readuntil(b"files\n")
            assert answer.startswith(b"HTTP/1.1 503"), answer
            assert b"no file can be opened" in answer
        assert await is_served(port)
        writer.transport.abort()


async def test_a_connection_that_found_no_file_is_accepted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guarded_server, "_SWEEP_SECONDS", 0.1)
    async with serving() as port:
        end = socket.socket()
        end.setblocking(False)
        with no_file():
            await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", port))
            await asyncio.sleep(0.3)
        reader, writer = await asyncio.open_connection(sock=end)
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.transport.abort()


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        open_files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.guarantee("ports-are-guarded")
def test_no_program_serves_http_without_the_guard() -> None:
    root = Path(__file__).parents[3]
    packages = [folder for folder in root.glob("*/elasticjob*") if folder.is_dir()]
    serving = [
        str(path.relative_to(root))
        for package in packages
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("AppRunner", "TCPSite", "web.run_app"))
    ]
    assert serving == ["kube/elasticjob_kube/guarded_server.py"]
