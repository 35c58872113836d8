"""The HTTP client of commands, with answers in the forms that API servers and proxies send."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from elasticjob_kube.errors import KubeError, TryLater
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube, connect

from tests.support.kubeconfig import write_kubeconfig

POD = b'{"metadata": {"name": "a"}}'


class Server:
    """Answers each request with the next of some texts; records the heads of the requests.

    After the answers it closes each connection.
    """

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            self.heads.append(head.decode())
            answer = self.answers.pop(0)
            for part in answer.partition(b"\n")[::1]:  # in parts, as a network delivers them
                writer.write(part)
                await writer.drain()
            if b"Content-Length" not in answer and b"chunked" not in answer:
                break
        writer.close()


@asynccontextmanager
async def served(*answers: bytes, directory: Path) -> AsyncIterator[tuple[Server, Kube]]:
    server = Server(answers)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    kubeconfig = write_kubeconfig(directory / "kubeconfig", url)
    async with listening, connect(user_agent="test", kubeconfig=kubeconfig, brief=True) as kube:
        yield server, kube


def with_length(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join((b"HTTP/1.1 " + status, length, *headers, b"", body))


def in_chunks(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize(
    "answer",
    [
        with_length(POD),
        with_length(gzip.compress(POD), b"content-encoding: gzip"),
        in_chunks(POD[:5], POD[5:]),
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + with_length(POD),
        b"HTTP/1.0 200 OK\r\n\r\n" + POD,
    ],
    ids=["with a length", "gzip", "in chunks", "after a hint", "until the end"],
)
async def test_an_answer_is_read_in_each_form(answer: bytes, tmp_path: Path) -> None:
    async with served(answer, directory=tmp_path) as (server, kube):
        found = await kube.get(PODS, "ns", "a")
    assert found["metadata"]["name"] == "a"
    assert server.heads[0].startswith("GET /api/v1/namespaces/ns/pods/a HTTP/1.1\r\nHost: 127.")


async def test_requests_share_a_connection(tmp_path: Path) -> None:
    async with served(with_length(POD), in_chunks(POD), directory=tmp_path) as (server, kube):
        await kube.get(PODS, "ns", "a")
        await kube.get(PODS, "ns", "b")
    assert server.connections == 1


async def test_a_connection_that_the_server_closes_is_not_used_again(tmp_path: Path) -> None:
    first = with_length(POD, b"Connection: close")
    async with served(first, with_length(POD), directory=tmp_path) as (server, kube):
        await kube.get(PODS, "ns", "a")
        await kube.get(PODS, "ns", "b")
    assert server.connections == 2


async def test_a_body_is_sent_with_its_length_and_parameters_are_quoted(tmp_path: Path) -> None:
    async with served(with_length(POD), with_length(POD), directory=tmp_path) as (server, kube):
        await kube.list(PODS, "ns", label_selector="a in (b,c)")
        await kube.delete(PODS, "ns", "a", uid="u")
    assert server.heads[0].splitlines()[0].endswith("/pods?labelSelector=a+in+%28b%2Cc%29 HTTP/1.1")
    assert server.heads[1].startswith("DELETE ")
    assert "Content-Length: " in server.heads[1]


async def test_a_watch_and_a_log_arrive_in_lines_and_parts(tmp_path: Path) -> None:
    line = b'{"type": "ADDED", "object": {"n": 1}}\n'
    lines = in_chunks(line[:7], line[7:] + line[:3], line[3:])
    async with served(lines, in_chunks(b"a\nb", b"c"), directory=tmp_path) as (_, kube):
        assert [event.type async for event in kube.watch(PODS, "ns")] == ["ADDED", "ADDED"]
        assert b"".join([part async for part in kube.stream("/log", params={})]) == b"a\nbc"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-x\r\n\r\n",
    ],
    ids=["closed", "cut", "no chunk", "not HTTP"],
)
async def test_a_broken_answer_is_an_error_that_a_later_request_may_mend(
    answer: bytes, tmp_path: Path
) -> None:
    async with served(answer, directory=tmp_path) as (_, kube):
        with pytest.raises(TryLater, match="no answer from the API server"):
            await kube.get(PODS, "ns", "a")


async def test_an_error_of_the_server_has_its_text(tmp_path: Path) -> None:
    body = b'{"reason": "Forbidden", "message": "no", "code": 403}'
    async with served(with_length(body, status=b"403 Forbidden"), directory=tmp_path) as (_, kube):
        with pytest.raises(KubeError, match="no"):
            await kube.get(PODS, "ns", "a")
