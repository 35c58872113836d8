"""Checks at real ports how much of a master one caller may occupy."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio
import psutil
import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import discovery_pb2, job_pb2, rendezvous_pb2
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_api.v1.rendezvous_pb2_grpc import RendezvousServiceStub
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube
from elasticjob_master.core.connection_limits import (
    CALL_BYTES,
    REQUEST_COPIES,
    SPARE_CONNECTIONS,
    HeldCalls,
)
from elasticjob_master.persistence.config_map import ConfigMapStore
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.grpc_agent import Agent
from tests.support.master_process import TOKEN, Master, certificates, run_master
from tests.support.thorough import some_of
from tests.support.unread_calls import unread_calls
from tests.support.wait import until

STREAMS = 256
FLOOD = 2000


@pytest_asyncio.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    async with run_master(tmp_path, "--standalone", "--framework=custom") as running:
        yield running


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def test_metadata_that_is_too_large_is_rejected(master: Master) -> None:
    async with master.channel() as channel:
        call = JobServiceStub(channel).GetStatus(
            job_pb2.GetStatusRequest(), metadata=(("x", "y" * 40_000),)
        )
        assert (await refusal(call)).code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_too_many_calls_on_one_connection_wait_without_blocking_others(
    master: Master,
) -> None:
    async with master.channel() as channel, master.channel() as another:
        watches = [
            DiscoveryServiceStub(channel).WatchHosts(discovery_pb2.WatchHostsRequest())
            for _ in range(STREAMS)
        ]
        for watch in watches:
            await watch.read()
        one_more = asyncio.ensure_future(
            JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest(), timeout=20)
        )
        await JobServiceStub(another).GetStatus(job_pb2.GetStatusRequest(), timeout=20)
        assert not one_more.done()
        watches[0].cancel()
        await one_more
        for watch in watches:
            watch.cancel()


async def test_without_free_file_descriptors_connected_agents_continue_and_others_wait(
    master: Master,
) -> None:
    process = psutil.Process(master.process.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    assert soft == hard, "the master could have more connections than it allows itself"
    async with master.channel() as channel, master.channel() as late:
        stub = JobServiceStub(channel)
        await stub.GetStatus(job_pb2.GetStatusRequest(), timeout=20)
        process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, hard))
        connections = [
            await asyncio.open_connection("127.0.0.1", master.grpc_port) for _ in range(60)
        ]
        await master.logged("File descriptor limit")
        await stub.GetStatus(job_pb2.GetStatusRequest(), timeout=20)
        # The master closes the connections of strangers itself, without a descriptor to spare.
        await until(
            "a connection is closed",
            lambda: any(reader.at_eof() for reader, _ in connections),
            seconds=60,
        )
        for _, writer in connections:
            writer.transport.abort()
        await JobServiceStub(late).GetStatus(
            job_pb2.GetStatusRequest(), timeout=20, wait_for_ready=True
        )


def _http(master: Master) -> Any:
    context = ssl.create_default_context(cadata=certificates()[0])
    named = names.TLS_SERVER_NAME
    return asyncio.open_connection(
        "127.0.0.1", master.http_port, ssl=context, server_hostname=named
    )


@pytest.mark.guarantee("unread-answers-are-bounded")
@pytest.mark.parametrize("holder", some_of(["caller", "reader"], first=1))
async def test_calls_that_stay_open_hold_bounded_memory_and_disturb_no_agent(
    master: Master, holder: Literal["reader", "caller"]
) -> None:
    async with master.channel() as channel:
        agents = [await Agent(index).join(channel) for index in (0, 1)]
        await until("a world of two", lambda: all(agent.running for agent in agents))
        if holder == "reader":
            calls = await unread_calls(
                master,
                query_token(TOKEN),
                lambda: ("/elasticjob.v1.JobService/GetHistory", b""),
                connections=40,
                calls=200,
            )
            each = CALL_BYTES
        else:
            waiting = rendezvous_pb2.GetValuesRequest(
                round=agents[0].running,
                keys=[f"{number:0128}" for number in range(1000)],
                wait_seconds=3600,
            ).SerializeToString()
            calls = await unread_calls(
                master,
                TOKEN,
                lambda: ("/elasticjob.v1.RendezvousService/GetValues", waiting),
                connections=10,
                calls=150,
            )
            each = CALL_BYTES + REQUEST_COPIES * len(waiting)
        held = HeldCalls(lambda: 2)
        most = held.most(holder) + len(calls) * held.share(holder)
        await until(
            "bounded memory",
            lambda: sum(connection.open_calls for connection in calls) * each,
            lambda open_bytes: open_bytes <= most,
        )
        # An agent waits as long as it likes, while the others wait for nothing.
        stub = RendezvousServiceStub(channel)
        wanted = rendezvous_pb2.GetValuesRequest(
            round=agents[0].running, keys=["k"], wait_seconds=20
        )
        value = asyncio.ensure_future(stub.GetValues(wanted))
        await stub.SetValue(
            rendezvous_pb2.SetValueRequest(round=agents[0].running, key="k", value=b"v")
        )
        assert (await value).values == [b"v"]
        for agent in agents:
            await agent.heartbeat()
            assert not agent.stream.done()
        for connection in calls:
            connection.close()


def open_connections(master: Master, port: int) -> int:
    """Return the number of the master's connections on a port."""
    found = psutil.Process(master.process.pid).net_connections(kind="tcp")
    return sum(1 for each in found if each.laddr.port == port and each.raddr)


@contextlib.asynccontextmanager
async def flood(port: int, count: int) -> AsyncIterator[None]:
    """Open connections that do nothing; every second one completes its handshake first."""
    context = ssl.create_default_context(cadata=certificates()[0])
    context.set_alpn_protocols(["h2"])
    writers: list[asyncio.StreamWriter] = []

    async def connect(number: int) -> None:
        secure: Any = (
            {"ssl": context, "server_hostname": names.TLS_SERVER_NAME} if number % 2 else {}
        )
        with contextlib.suppress(OSError):
            writers.append((await asyncio.open_connection("127.0.0.1", port, **secure))[1])

    for first in range(0, count, 100):
        await asyncio.gather(*map(connect, range(first, first + 100)))
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.guarantee("flood-of-connections")
@pytest.mark.thorough
@pytest.mark.parametrize("flooded", ["grpc_port", "http_port"])
async def test_strangers_get_bounded_connections_and_block_no_agent(
    master: Master, flooded: str
) -> None:
    port = getattr(master, flooded)
    most = SPARE_CONNECTIONS + 50
    async with master.channel() as channel:
        early = await Agent(0).join(channel)
        async with flood(port, FLOOD), master.channel() as another:
            agents = [early, await Agent(1).join(another)]
            await asyncio.gather(*(agent.heartbeat() for agent in agents))
            reader, writer = await _http(master)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: master\r\n\r\n")
            assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 200 OK\r\n"
            writer.transport.abort()
            await until(
                "few are left", lambda: open_connections(master, port), lambda there: there < most
            )
            await until(
                "none of them stays",
                lambda: open_connections(master, port),
                lambda there: there < 150,
            )
            for agent in agents:
                await agent.heartbeat()
            status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest(), timeout=20)
            assert status.world_size == 2, "the first agent has noticed nothing"
            assert early.stream is not None
            assert not early.stream.done()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET /hosts HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
    ],
)
async def test_an_http_line_that_is_too_long_is_rejected(master: Master, request_: bytes) -> None:
    reader, writer = await _http(master)
    writer.write(request_)
    assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.0 400 Bad Request\r\n"
    writer.transport.abort()


async def test_a_watch_of_the_health_does_not_delay_the_masters_end(master: Master) -> None:
    async with master.channel() as channel:
        watches = [
            health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            for _ in range(20)
        ]
        for watch in watches:
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        master.process.terminate()
        await until("the master's end", lambda: master.process.returncode == 0)
        assert (await watches[0].read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.guarantee("master-state-too-large")
async def test_the_largest_state_fits_into_a_config_map_of_a_real_api_server(
    kube: Kube, namespace: str
) -> None:
    await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": "state"}})
    store = ConfigMapStore(kube, namespace, "state")
    assert await store.claim() is None
    assert store.largest is not None
    for seed in (1, 2):
        state = random.Random(seed).randbytes(store.largest)
        await store.save(state)
        assert await ConfigMapStore(kube, namespace, "state").claim() == state
        assert await store.claim() == state
