"""Uses the master's services over TLS, as played agents and as strangers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest
from elasticjob_agent.proxy.master_call import call_until_answered
from elasticjob_api import names
from elasticjob_api.frameworks.peer import meeting_port
from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import agent_pb2, discovery_pb2, job_pb2, rendezvous_pb2, shards_pb2
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub
from elasticjob_master.core.rendezvous.state import MOST_LOST_ROUNDS
from elasticjob_master.server.access import READING
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_process import STANDALONE, TOKEN, Master, certificates, run_master
from tests.support.wait import until


async def test_two_agents_get_one_world_with_the_frameworks_environment(
    channel: grpc.aio.Channel,
) -> None:
    first, second = await world_of_two(channel)
    start = second.started[0]
    assert start.rank == 1
    assert [member.pod_name for member in start.world.members] == [first.name, second.name]
    assert dict(start.environment) == {
        "JAX_COORDINATOR_ADDRESS": f"127.0.1.1:{meeting_port('127.0.1.1', 8476)}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
    }


async def test_a_new_stream_replaces_the_old_one(channel: grpc.aio.Channel) -> None:
    first, _ = await world_of_two(channel)
    old = first.task
    await first.join(channel)
    assert old is not None
    await asyncio.wait_for(old, 10)
    status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
    assert (status.round, status.phase) == (1, job_pb2.JOB_PHASE_TRAINING)


async def test_new_members_get_the_imports_of_their_role_of_a_bounded_size(
    channel: grpc.aio.Channel,
) -> None:
    first, _ = await world_of_two(channel)
    stub = AgentServiceStub(channel)

    async def imports(role: str) -> bytes:
        answer = await stub.GetImports(pb.GetImportsRequest(role=role), timeout=20)
        plan: bytes = answer.plan
        return plan

    assert await imports("worker") == b""
    for plan in (b"1", b"x" * 65 * 1024, b"2"):
        await first.send(imports=pb.Imports(plan=plan))

    async def newest() -> bool:
        found = await imports("worker")
        assert len(found) <= 1, "it is too large"
        return found == b"2"

    await until("the newest imports", newest)
    assert await imports("chief") == b""


async def test_a_master_that_ends_sends_the_last_status_to_its_watches(
    master: Master, channel: grpc.aio.Channel
) -> None:
    shards = ShardServiceStub(channel)
    watch = aiter(JobServiceStub(channel).WatchStatus(job_pb2.WatchStatusRequest(), timeout=20))
    assert not (await anext(watch)).datasets
    dataset = shards_pb2.CreateDatasetRequest(dataset="late", size=10, shard_size=5, epochs=1)
    await shards.CreateDataset(dataset)
    master.process.terminate()
    statuses = [status async for status in watch]
    assert [ledger.dataset for ledger in statuses[-1].datasets] == ["late"]
    async with asyncio.timeout(20):
        assert await master.process.wait() == 0


async def test_hosts_are_pushed_when_they_change(master: Master, channel: grpc.aio.Channel) -> None:
    lists = aiter(
        DiscoveryServiceStub(channel).WatchHosts(discovery_pb2.WatchHostsRequest(), timeout=20)
    )
    assert (await anext(lists)).hosts == []
    await world_of_two(channel)
    snapshot = await anext(lists)
    while len(snapshot.hosts) < 2:
        snapshot = await anext(lists)
    assert {(host.name, host.slots) for host in snapshot.hosts} == {
        ("job-worker-0", 1),
        ("job-worker-1", 1),
    }
    again = await DiscoveryServiceStub(channel).GetHosts(discovery_pb2.GetHostsRequest())
    assert again == snapshot


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_http_uses_horovods_format_and_requires_the_token(
    master: Master, channel: grpc.aio.Channel
) -> None:
    await world_of_two(channel)
    context = ssl.create_default_context(cadata=certificates()[0])
    base = f"https://127.0.0.1:{master.http_port}"
    async with aiohttp.ClientSession() as http:

        async def get(path: str, token: str | None = None) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            named = names.TLS_SERVER_NAME
            async with http.get(
                base + path, headers=headers, ssl=context, server_hostname=named
            ) as answer:
                return answer.status, await answer.text()

        assert (await get("/hosts"))[0] == 401
        assert (await get("/hosts", "wrong"))[0] == 401
        status, text = await get("/hosts", TOKEN)
        assert status == 200
        assert re.fullmatch(r"([^:\s]+:[0-9]+\n)*", text)
        assert text == "job-worker-0:1\njob-worker-1:1\n"
        assert re.fullmatch(r"([0-9.]+:1\n){2}", (await get("/hosts?addresses", TOKEN))[1])
        assert (await get("/healthz"))[0] == (await get("/readyz"))[0] == 200
        assert "elasticjob_round 1.0" in (await get("/metrics"))[1]
        assert (await get("/nothing"))[0] == 404


@pytest.mark.guarantee("impossible-numbers-from-agents")
async def test_a_round_that_no_master_has_started_is_rejected_and_blocks_no_agent(
    channel: grpc.aio.Channel,
) -> None:
    wrong = Agent(7)
    stub = AgentServiceStub(channel)
    await stub.Register(wrong.registration(), timeout=20)
    for claimed in (2**64 - 1, 2**53, MOST_LOST_ROUNDS + 1):
        stream = stub.Connect()
        await stream.write(
            pb.AgentMessage(hello=pb.Hello(pod_uid=wrong.uid, running_round=claimed))
        )
        with pytest.raises(
            grpc.aio.AioRpcError, match=f"running_round is {claimed}; it must be at most"
        ) as refused:
            await stream.read()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    wrong.running = MOST_LOST_ROUNDS
    await wrong.join(channel)
    await until("its process is stopped", lambda: not wrong.running or wrong.started)
    await wrong.leave()
    agents = [await Agent(index).join(channel) for index in (0, 1)]
    await until(
        "a world of two",
        lambda: all(agent.running > MOST_LOST_ROUNDS for agent in agents),
        seconds=60,
    )
    await agents[0].leave()
    await agents[0].join(channel)
    await agents[0].heartbeat()
    assert agents[0].running == agents[1].running, "it was let in with its round"


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_read_only_token_can_neither_join_nor_change_anything(
    master: Master,
) -> None:
    async with master.channel(query_token(TOKEN)) as reader:
        for service in (agent_pb2, discovery_pb2, job_pb2, shards_pb2, rendezvous_pb2):
            for described in service.DESCRIPTOR.services_by_name.values():
                for method in described.methods:
                    path = f"/{described.full_name}/{method.name}"
                    asking: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = reader.stream_stream(
                        path
                    )
                    if path in READING:
                        call = asking(iter([b""]), timeout=20)
                        with contextlib.suppress(grpc.aio.AioRpcError):
                            await call.read()
                        call.cancel()
                        continue
                    with pytest.raises(
                        grpc.aio.AioRpcError, match="this token only reads"
                    ) as refused:
                        await asking(
                            timeout=20
                        ).read()  # nothing is sent: grpc may not send on a call that has ended
                    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED, path
        status = await JobServiceStub(reader).GetStatus(job_pb2.GetStatusRequest(), timeout=20)
        assert status.job_name
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {query_token(TOKEN)}"}
    ) as http:
        for path in ("/status", "/hosts"):
            async with http.get(f"https://127.0.0.1:{master.http_port}{path}", ssl=False) as answer:
                assert answer.status == 200


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_without_the_token_every_service_rejects_calls(master: Master) -> None:
    for token in (None, "wrong", TOKEN + "x", "\x7f"):
        await check_refused(master, token)


async def check_refused(master: Master, token: str | None) -> None:
    async with master.channel(token) as stranger:
        calls = (
            AgentServiceStub(stranger).Register(Agent(0).registration(), timeout=10),
            JobServiceStub(stranger).GetStatus(job_pb2.GetStatusRequest(), timeout=10),
            ShardServiceStub(stranger).GetLedger(
                shards_pb2.GetLedgerRequest(dataset="d"), timeout=10
            ),
            DiscoveryServiceStub(stranger)
            .WatchHosts(discovery_pb2.WatchHostsRequest(), timeout=10)
            .read(),
            reflection_pb2_grpc.ServerReflectionStub(stranger)
            .ServerReflectionInfo(timeout=10)
            .read(),
            AgentServiceStub(stranger).Connect(timeout=10).read(),
        )
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() in (
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.UNAVAILABLE,
            )
            assert token == "\x7f" or refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        if token is None:
            health = await health_pb2_grpc.HealthStub(stranger).Check(
                health_pb2.HealthCheckRequest()
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING


BAD_REGISTRATIONS: list[tuple[str, str | int, str]] = [
    ("pod_uid", "", "pod_uid has 0 characters"),
    ("pod_name", "x" * 254, "pod_name has 254 characters; it must have 1 to 253"),
    ("pod_name", "a:1\nb", "without spaces and colons"),
    ("role", "chief", "role is 'chief'; this job has worker"),
    ("index", 4_000_000_000, "index is 4000000000; it must be at most 100000"),
    ("slots", 0, "slots is 0; it must be between 1 and 256"),
    ("address", "example.org", "it must be an IP address"),
]


async def test_a_bad_registration_is_rejected_with_a_reason(channel: grpc.aio.Channel) -> None:
    for field, value, message in BAD_REGISTRATIONS:
        request = Agent(0).registration()
        setattr(request, field, value)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await AgentServiceStub(channel).Register(request)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert message in (refused.value.details() or "")


@pytest.mark.guarantee("bad-input-is-refused")
async def test_garbage_gets_an_error_status_and_the_master_survives(
    master: Master, channel: grpc.aio.Channel
) -> None:
    raw: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
    raw = channel.stream_stream("/elasticjob.v1.AgentService/Connect")
    register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    register = channel.unary_unary("/elasticjob.v1.AgentService/Register")
    unknown: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    unknown = channel.unary_unary("/elasticjob.v1.AgentService/NoSuchMethod")
    stub = AgentServiceStub(channel)
    streams = (
        (raw(iter([b"\xff\xff\xff garbage"])), grpc.StatusCode.INVALID_ARGUMENT),
        (stub.Connect(iter([pb.AgentMessage()])), grpc.StatusCode.INVALID_ARGUMENT),
        (
            stub.Connect(iter([pb.AgentMessage(heartbeat=pb.Heartbeat())])),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            stub.Connect(iter([pb.AgentMessage(hello=pb.Hello(pod_uid="nobody"))])),
            grpc.StatusCode.NOT_FOUND,
        ),
    )
    for stream, code in streams:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert refused.value.code() == code
    for call, code, problem in (
        (register(b"\xff\xff\xff"), grpc.StatusCode.INVALID_ARGUMENT, "not a request"),
        (register(b"\0" * 2_000_000), grpc.StatusCode.RESOURCE_EXHAUSTED, "2000000 vs. 1048576"),
        (unknown(b""), grpc.StatusCode.UNIMPLEMENTED, "."),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=problem) as refused:
            await call
        assert refused.value.code() == code
    for port in (master.grpc_port, master.http_port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n" + bytes(range(256)) * 100)
        writer.close()
    first, _ = await world_of_two(channel)
    await first.send(step=pb.StepReport(round=1, step=2**64 - 1, samples=float("nan"), seconds=-1))
    await first.send(exited=pb.ProcessExited(round=77, exit_code=-5))
    await first.send(started=pb.ProcessStarted(round=2**64 - 1))
    await first.heartbeat()
    status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
    assert (status.round, status.progress.step) == (1, 0)


@pytest.mark.guarantee("upgrade-while-jobs-run")
async def test_removed_fields_of_an_earlier_agent_are_ignored(channel: grpc.aio.Channel) -> None:
    first, _ = await world_of_two(channel)
    acknowledgement = b"\x32\x02\x08\x05"  # AgentMessage.ack = 6, with command_id = 5
    async with first.sending:
        await first.stream.write(pb.AgentMessage.FromString(acknowledgement))
    report = pb.StepReport(round=1, step=3, steps=1, seconds=0.1)
    time_of_report = b"\x39" + bytes(8)  # StepReport.time = 7
    report.MergeFromString(time_of_report)
    await first.send(step=report)

    status = JobServiceStub(channel).GetStatus
    await until(
        "the step that was reported",
        lambda: status(job_pb2.GetStatusRequest()),
        lambda found: found.progress.step == 3,
    )
    assert first.running == 1


@pytest.mark.guarantee("master-can-be-replaced", "master-deleted-node-lost")
async def test_a_killed_master_is_restarted_and_everything_continues(tmp_path: Path) -> None:
    options = (*STANDALONE, f"--state-file={tmp_path / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        first, second = await world_of_two(channel)
        stub = ShardServiceStub(channel)
        await stub.CreateDataset(
            shards_pb2.CreateDatasetRequest(dataset="d", size=10, shard_size=1, epochs=1)
        )
        lease = shards_pb2.LeaseShardsRequest(
            dataset="d", pod_uid=first.uid, count=4, request_id="one"
        )
        leased = await stub.LeaseShards(lease)
        await first.send(
            step=pb.StepReport(round=1, step=7, total_steps=40, samples=100, seconds=2)
        )
        await until_status(channel, lambda status: status.progress.step == 7)
        await stub.ReportShards(
            shards_pb2.ReportShardsRequest(dataset="d", pod_uid=first.uid, done=[0, 1, 2])
        )
        ports = await master.kill()
    async with run_master(tmp_path, *options, ports=ports) as master, master.channel() as channel:
        status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
        assert status.master_starts == 2
        assert (status.round, status.world_size, status.progress.step) == (1, 2, 7)
        ledger = status.datasets[0]
        assert (ledger.done, ledger.leased, ledger.waiting) == (3, 1, 6)
        for agent in (first, second):
            await agent.join(channel)
        again = await call_until_answered(ShardServiceStub(channel).LeaseShards, lease)
        assert list(again.shards) == [leased.shards[3]], (
            "only the lease's unfinished shards, and no further lease"
        )
        done = shards_pb2.ReportShardsRequest(dataset="d", pod_uid=first.uid, done=[2, 3])
        assert (await ShardServiceStub(channel).ReportShards(done)).stale == []
        third = await Agent(2).join(channel)
        # Round 2 may have begun without being stored, so its number is not used again.
        await until("the next round", lambda: {a.running for a in (first, second, third)} == {3})
        assert [len(agent.started) for agent in (first, second, third)] == [2, 2, 1]


async def until_status(
    channel: grpc.aio.Channel, condition: Callable[[job_pb2.JobStatus], object]
) -> None:
    async for status in JobServiceStub(channel).WatchStatus(
        job_pb2.WatchStatusRequest(), timeout=20
    ):
        if condition(status):
            return
