"""The agent serves Horovod without a launcher: HTTP, notifications, requests to the master."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import os
import pickle
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from elasticjob_agent.horovod import notification
from elasticjob_agent.horovod.horovod_rendezvous import HorovodRendezvous
from elasticjob_agent.horovod.notification import NotificationPort
from elasticjob_api.v1 import horovod_pb2 as pb
from elasticjob_api.v1.horovod_pb2_grpc import (
    HorovodServiceServicer,
    add_HorovodServiceServicer_to_server,
)

from tests.support.wait import until

KEY = b"k" * 32


class Driver(HorovodServiceServicer):
    """A master whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[pb.JoinRequest] = asyncio.Queue()
        self.answers: asyncio.Queue[pb.JoinResponse] = asyncio.Queue()
        self.values: dict[tuple[int, str], bytes] = {}
        self.open_joins = 0

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        self.open_joins += 1
        self.asked.put_nowait(request)
        try:
            return await self.answers.get()
        finally:
            self.open_joins -= 1

    async def Put(self, request: pb.PutRequest, context: Any) -> pb.PutResponse:
        self.values[request.round, request.key] = request.value
        return pb.PutResponse()

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        if (request.round, request.key) not in self.values:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no value")
        return pb.GetResponse(value=self.values[request.round, request.key])

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.DeleteResponse:
        self.values.pop((request.round, request.key), None)
        return pb.DeleteResponse()


class Pod:
    """The rendezvous of one pod, and requests to it as Horovod's clients send them."""

    def __init__(self, channel: grpc.aio.Channel, driver: Driver) -> None:
        self.driver = driver
        self.joined: list[int] = []
        self.rendezvous = HorovodRendezvous(channel, "uid", on_joined=self.joined.append)

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        return await self.send(head.encode() + body)

    async def send(self, data: bytes) -> tuple[int, bytes]:
        port = int(self.rendezvous.environment({}, "127.0.0.1")["HOROVOD_GLOO_RENDEZVOUS_PORT"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[Pod]:
    driver = Driver()
    server = grpc.aio.server()
    add_HorovodServiceServicer_to_server(driver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        made = Pod(channel, driver)
        await made.rendezvous.open()
        yield made
        await made.rendezvous.close()
    await server.stop(None)


def place(round_: int, *slots: tuple[int, int]) -> pb.JoinResponse:
    made = [
        pb.Slot(
            rank=rank,
            size=size,
            local_rank=local,
            local_size=len(slots),
            cross_rank=0,
            cross_size=1,
        )
        for local, (rank, size) in enumerate(slots)
    ]
    return pb.JoinResponse(round=round_, slots=made)


async def test_the_first_value_of_a_new_process_waits_for_all_processes(pod: Pod) -> None:
    pod.rendezvous.begin_processes(4, first_rank=2, count=1)
    put = asyncio.create_task(pod.request("PUT", "/global/rank_2", b"host"))
    asked = await pod.driver.asked.get()
    assert (asked.process_round, asked.left_round) == (4, 0)
    assert not put.done()
    pod.driver.answers.put_nowait(place(4, (2, 3)))
    assert await put == (200, b"")
    assert pod.joined == [4]
    assert pod.driver.values == {(4, "global/rank_2"): b"host"}
    assert await pod.request("GET", "/global/rank_2") == (200, b"host")
    assert await pod.request("DELETE", "/global/rank_2") == (200, b"")
    assert await pod.request("GET", "/global/rank_2") == (404, b"")


async def test_a_process_that_has_left_a_world_gets_its_place_in_the_next_or_is_removed(
    pod: Pod,
) -> None:
    await enter(pod, 1)
    pod.driver.answers.put_nowait(place(2, (0, 2)))
    assert await pod.request("GET", "/rank_and_size/pod-0:0") == (200, b"0,2,0,1,0,1")
    assert (await pod.driver.asked.get()).left_round == 1
    pod.driver.answers.put_nowait(pb.JoinResponse(removed=True))
    assert await pod.request("GET", "/rank_and_size/pod-0:0") == (200, b"-1,-1,-1,-1,-1,-1")
    assert pod.rendezvous.removed


async def test_the_processes_of_a_pod_ask_together(pod: Pod) -> None:
    pod.rendezvous.begin_processes(1, first_rank=2, count=2)
    first = asyncio.create_task(pod.request("PUT", "/global/rank_3", b"b"))
    await until("the first asks", lambda: pod.rendezvous._asking == {1})
    assert pod.rendezvous._joiner is None, "the master is not asked yet"
    second = asyncio.create_task(pod.request("PUT", "/global/rank_2", b"a"))
    await pod.driver.asked.get()
    pod.driver.answers.put_nowait(place(1, (2, 4), (3, 4)))
    assert [await first, await second] == [(200, b"")] * 2
    answers = [
        asyncio.create_task(pod.request("GET", f"/rank_and_size/pod-0:{local}"))
        for local in range(2)
    ]
    assert (await pod.driver.asked.get()).left_round == 1
    pod.driver.answers.put_nowait(place(2, (0, 2), (1, 2)))
    assert [await answer for answer in answers] == [(200, b"0,2,0,2,0,1"), (200, b"1,2,1,2,0,1")]


async def test_the_request_of_a_process_that_has_ended_is_cancelled(pod: Pod) -> None:
    pod.rendezvous.begin_processes(1, first_rank=0, count=1)
    put = asyncio.create_task(pod.request("PUT", "/global/rank_0", b""))
    await pod.driver.asked.get()
    pod.rendezvous.processes_ended()
    assert await put == (0, b""), "its connection is closed"
    assert not pod.rendezvous.joined_round
    # Otherwise it would take the answer for the next process.
    await until("the end of the request", lambda: not pod.driver.open_joins)
    await enter(pod, 2)


async def test_values_are_put_again_when_the_master_has_restarted(pod: Pod) -> None:
    await enter(pod, 1)
    before = dict(pod.driver.values)
    pod.driver.values.clear()
    pod.rendezvous.master_connected()
    await until("the values", lambda: pod.driver.values == before)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /one HTTP/1.1\r\n\r\n", 400),
        (b"GET /a/b/c HTTP/1.1\r\n\r\n", 400),
        (b"POST /a/b HTTP/1.1\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"GET /rank_and_size/pod:7 HTTP/1.1\r\n\r\n", 404),
        (b"PUT /global/rank_x HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 503),
        (b"PUT /worker_addresses/pod:0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz", 400),
        (b"x" * 20_000 + b"\r\n\r\n", 0),
        (b"\x00\xff\r\n\r\n", 400),
    ],
)
async def test_no_bytes_on_the_port_harm_the_agent(pod: Pod, data: bytes, status: int) -> None:
    pod.rendezvous.begin_processes(1, first_rank=0, count=1)
    assert (await pod.send(data))[0] == status
    await enter(pod, 1)


async def test_a_change_is_announced_until_the_process_asks_and_not_while_it_does(pod: Pod) -> None:
    messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(36)
        messages.put_nowait(head + await reader.readexactly(struct.unpack("i", head[32:])[0]))
        writer.write(b"d" * 36)
        writer.close()

    await enter(pod, 1)
    async with await asyncio.start_server(take, "127.0.0.1", 0) as process:
        port = process.sockets[0].getsockname()[1]
        assert await pod.request("PUT", "/worker_addresses/pod-0:0", registration(port)) == (
            200,
            b"",
        )
        pod.rendezvous.announce(1)
        pod.rendezvous.announce(2)
        assert {await messages.get(), await messages.get()} == {notification.message(KEY, 2)}, (
            "it is repeated"
        )
        asks = asyncio.create_task(pod.request("GET", "/rank_and_size/pod-0:0"))
        await pod.driver.asked.get()
        pod.rendezvous.announce(3)
        assert pod.rendezvous._notifier is None
        pod.driver.answers.put_nowait(place(3, (0, 1)))
        assert (await asks)[0] == 200
        pod.rendezvous.announce(4)
        while (received := await messages.get()) != notification.message(KEY, 4):
            # One of the second round may still arrive; one of the third would make the process
            # leave the world that it has just entered.
            assert received == notification.message(KEY, 2)


def test_horovods_own_reader_accepts_the_message() -> None:
    class HostsUpdatedRequest:
        def __init__(self, timestamp: int, res: int) -> None:
            self.timestamp = timestamp
            self.res = res

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            assert (module, name) == ("horovod.runner.elastic.worker", "HostsUpdatedRequest")
            return HostsUpdatedRequest

    message = notification.message(KEY, 17)
    digest = message[:32]
    length = struct.unpack("i", message[32:36])[0]
    body = message[36:]
    assert digest == hmac.new(KEY, body, hashlib.sha256).digest()
    assert length == len(body)
    request = Reader(io.BytesIO(body)).load()
    assert (request.timestamp, request.res) == (17, 2)


class _Runs:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    "value",
    [
        _Runs(),
        ({"lo": [("127.0.0.1", _Runs())]}, KEY),
        ({}, KEY),
        ({"lo": []}, KEY),
        ({"lo": [("a", "b")]}, KEY),
        7,
    ],
    ids=["a call", "a call inside", "no interface", "no address", "no port", "a number"],
)
def test_a_registration_is_read_as_plain_values_or_refused(value: object) -> None:
    with pytest.raises(ValueError, match="no registration of Horovod's"):
        notification.parse(base64.b64encode(pickle.dumps(value)))


def test_a_registration_is_read() -> None:
    assert notification.parse(registration(4711)) == NotificationPort(4711, KEY)


def registration(port: int) -> bytes:
    return base64.b64encode(pickle.dumps(({"lo": [("127.0.0.1", port)]}, KEY), protocol=5))


async def enter(pod: Pod, round_: int) -> None:
    """Have one process enter the world of a round."""
    pod.rendezvous.begin_processes(round_, first_rank=0, count=1)
    pod.driver.answers.put_nowait(place(round_, (0, 1)))
    assert await pod.request("PUT", "/global/rank_0", b"host") == (200, b"")
    await pod.driver.asked.get()
