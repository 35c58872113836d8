"""Uses ShardService over TLS: parts, streams, failures, and the right to restore."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from elasticjob_agent.proxy.master_call import call_until_answered
from elasticjob_api.v1 import agent_pb2, rendezvous_pb2, rendezvous_pb2_grpc, shards_pb2_grpc
from elasticjob_api.v1 import shards_pb2 as pb

from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_process import STANDALONE, run_master
from tests.support.wait import until

ONE = ("--standalone", "--framework=jax", "--min=1", "--workers=1")
TWENTY = pb.CreateDatasetRequest(dataset="d", size=20, shard_size=1, epochs=1)
LEDGER = pb.GetLedgerRequest(dataset="d")


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


async def member(channel: grpc.aio.Channel, index: int = 0, slots: int = 1) -> Agent:
    agent = await Agent(index, slots=slots).join(channel)
    await until("its process runs", lambda: agent.running)
    return agent


def request_of(agent: Agent, count: int, round_: int = 0) -> pb.LeaseShardsRequest:
    return pb.LeaseShardsRequest(
        dataset="d", pod_uid=agent.uid, count=count, round=round_ or agent.running
    )


async def lease(
    stub: shards_pb2_grpc.ShardServiceAsyncStub, agent: Agent, count: int, round_: int = 0
) -> list[int]:
    answer = await stub.LeaseShards(request_of(agent, count, round_))
    return [shard.id for shard in answer.shards]


async def lease_of_new_master(
    stub: shards_pb2_grpc.ShardServiceAsyncStub, agent: Agent, count: int
) -> list[int]:
    """Send a request as an agent does: until a master that has just started answers."""
    answer = await call_until_answered(stub.LeaseShards, request_of(agent, count))
    return [shard.id for shard in answer.shards]


async def report(
    stub: shards_pb2_grpc.ShardServiceAsyncStub,
    agent: Agent,
    done: list[int],
    round_: int = 0,
    **more: Any,
) -> list[int]:
    request = pb.ReportShardsRequest(
        dataset="d", pod_uid=agent.uid, done=done, round=round_ or agent.running, **more
    )
    return list((await stub.ReportShards(request)).stale)


async def test_no_shard_crosses_a_parts_boundary_and_the_parts_must_stay_the_same(
    tmp_path: Path,
) -> None:
    async with run_master(tmp_path, *ONE) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        agent = await member(channel)
        files = [pb.Part(name="a", size=5), pb.Part(name="empty"), pb.Part(name="b", size=4)]
        request = pb.CreateDatasetRequest(dataset="d", shard_size=2, epochs=1, parts=files)
        assert (await stub.CreateDataset(request)).shards == 5
        assert (await stub.CreateDataset(request)).shards == 5
        answer = await stub.LeaseShards(
            pb.LeaseShardsRequest(dataset="d", pod_uid=agent.uid, count=10)
        )
        assert [(s.part, s.start, s.end) for s in answer.shards] == [
            (0, 0, 2), (0, 2, 4), (0, 4, 5), (2, 0, 2), (2, 2, 4),
        ]  # fmt: skip
        assert answer.most == 10_000
        request.parts[0].name = "c"
        assert await refusal(stub.CreateDataset(request)) == (
            grpc.StatusCode.ALREADY_EXISTS,
            "data set d was declared with 3 parts before, and with 3 or others now",
        )


@pytest.mark.guarantee("damaged-samples")
async def test_a_stream_and_failed_shards_are_in_the_ledger(tmp_path: Path) -> None:
    async with run_master(tmp_path, *ONE) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        agent = await member(channel)
        await stub.CreateDataset(
            pb.CreateDatasetRequest(dataset="d", shard_size=10, epochs=1, streamed=True)
        )
        assert (await stub.ExtendDataset(pb.ExtendDatasetRequest(dataset="d", size=35))).size == 35
        assert await lease(stub, agent, 9) == [0, 1, 2]
        assert (
            await report(stub, agent, [0], returned=[1], failed=[2], message="cannot be read") == []
        )
        ledger = await stub.GetLedger(LEDGER)
        assert ledger == pb.Ledger(
            dataset="d", total=3, done=1, waiting=1, returned=1, failed=1, growing=True
        )
        await stub.ExtendDataset(pb.ExtendDatasetRequest(dataset="d", size=35, final=True))
        assert await lease(stub, agent, 9) == [1, 3]
        await report(stub, agent, [1, 3])
        ledger = await stub.GetLedger(LEDGER)
        assert ledger == pb.Ledger(dataset="d", total=4, done=3, returned=1, failed=1)
        assert "data set d: 1 shards failed (2): cannot be read" in master.log.read_text()
        code, details = await refusal(
            stub.ExtendDataset(pb.ExtendDatasetRequest(dataset="d", size=36))
        )
        assert (code, details) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "size is 36, but d has ended with 35 samples",
        )


@pytest.mark.guarantee("leases-survive-the-master")
async def test_the_next_master_does_not_repeat_a_killed_masters_leases(
    tmp_path: Path,
) -> None:
    options = (*ONE, f"--state-file={tmp_path / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        agent = await member(channel)
        await stub.CreateDataset(TWENTY)
        for _ in range(3):
            given = await lease(stub, agent, 4)
        ports = await master.kill()
    assert given == [8, 9, 10, 11]
    async with run_master(tmp_path, *options, ports=ports) as master, master.channel() as channel:
        ledger = await shards_pb2_grpc.ShardServiceStub(channel).GetLedger(LEDGER)
    assert (ledger.leased, ledger.waiting) == (12, 8)


@pytest.mark.guarantee("leases-survive-the-master")
async def test_a_master_leases_nothing_before_the_whole_world_has_reported_its_leases(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    away = tmp_path / "away"
    store.mkdir()
    options = (*STANDALONE, f"--state-file={store / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        first, second = await world_of_two(channel)
        await stub.CreateDataset(TWENTY)
        assert await lease(stub, first, 2) == [0, 1]
        store.rename(away)
        given = [await lease(stub, agent, 4) for agent in (first, second)]
        assert given == [[2, 3, 4, 5], [6, 7, 8, 9]], "at once, though nothing is stored"
        ports = await master.kill()
    away.rename(store)
    async with run_master(tmp_path, *options, ports=ports) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        first.leased = [
            agent_pb2.LeasedShards(dataset="d", round=1, shards=[0, 1, *given[0]]),
            agent_pb2.LeasedShards(dataset="d", round=1, shards=[6], ended=True),
            agent_pb2.LeasedShards(dataset="d", round=1, shards=[20]),
            agent_pb2.LeasedShards(dataset="another", round=1, shards=[0]),
        ]
        second.leased = [agent_pb2.LeasedShards(dataset="d", round=1, shards=given[1])]
        await first.join(channel)
        await master.logged("data set 'another' was not declared")
        assert "shard 20 does not exist" in master.log.read_text()
        code, details = await refusal(lease(stub, first, 1))
        assert (code, details) == (
            grpc.StatusCode.UNAVAILABLE,
            f"the leases of {second.name} are not known yet: not connected",
        )
        code, _ = await refusal(report(stub, second, [], returned=[6], round_=1))
        assert code == grpc.StatusCode.UNAVAILABLE
        await second.join(channel)
        assert await lease_of_new_master(stub, first, 2) == [10, 11]
        await report(stub, first, [0, 1, *given[0], 10, 11])
        await report(stub, second, given[1])
        ledger = await stub.GetLedger(LEDGER)
        assert (ledger.done, ledger.leased, ledger.waiting, ledger.returned) == (12, 0, 8, 0)


@pytest.mark.guarantee("master-can-be-replaced")
async def test_the_running_process_restores_a_checkpoint_that_survives_the_master(
    tmp_path: Path,
) -> None:
    options = (*ONE, f"--state-file={tmp_path / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        first = await member(channel)
        await stub.CreateDataset(TWENTY)
        await report(stub, first, (await lease(stub, first, 6))[:4])
        saved = (await stub.GetCheckpoint(pb.GetCheckpointRequest(dataset="d"))).state
        await report(stub, first, [4, *await lease(stub, first, 2)])

        second = await Agent(1).join(channel)
        await until("a new world", lambda: first.running == second.running == 2)

        def restore(agent: Agent, state: bytes, round_: int) -> Any:
            request = pb.RestoreCheckpointRequest(
                dataset="d", state=state, round=round_, pod_uid=agent.uid
            )
            return stub.RestoreCheckpoint(request)

        code, details = await refusal(restore(first, saved, 1))
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "runs no process of that round any more" in details
        for agent, state, round_, expected in (
            (first, saved, 0, grpc.StatusCode.INVALID_ARGUMENT),
            (Agent(7), saved, 2, grpc.StatusCode.UNAVAILABLE),
            (first, b"nonsense", 2, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            assert (await refusal(restore(agent, state, round_)))[0] == expected
        assert (await restore(first, saved, 2)).waiting == 16
        ports = await master.kill()
    async with run_master(tmp_path, *options, ports=ports) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        for agent in (first, second):
            await agent.join(channel)
        assert await lease_of_new_master(stub, first, 3) == [4, 5, 6]
        assert (await restore(second, saved, 2)).waiting == 16, (
            "a repetition, by another process of the world"
        )
        assert (await refusal(restore(second, b"", 2)))[0] == grpc.StatusCode.FAILED_PRECONDITION
        assert await report(stub, first, [4, 7], round_=1) == [4, 7], (
            "its effect is not in the model any more"
        )
        assert await report(stub, first, [4, 5]) == []
        ledger = await stub.GetLedger(LEDGER)
        assert (ledger.done, ledger.leased, ledger.waiting) == (6, 1, 13)


@pytest.mark.guarantee("notified-processes")
async def test_processes_that_continue_restore_only_if_none_of_them_has_the_state(
    tmp_path: Path,
) -> None:
    options = (*ONE, "--on-world-change=Notify")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        pod = await member(channel)
        await stub.CreateDataset(TWENTY)
        await report(stub, pod, await lease(stub, pod, 2))
        request = pb.RestoreCheckpointRequest(dataset="d", round=1, pod_uid=pod.uid)
        code, details = await refusal(stub.RestoreCheckpoint(request))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "onWorldChange: Notify" in details
        request.first_round = 1
        assert (await stub.RestoreCheckpoint(request)).waiting == 20
        assert await lease(stub, pod, 2) == [0, 1]
        assert await report(stub, pod, [0, 1]) == [], "the process of this round counts"


@pytest.mark.guarantee("several-processes-per-pod")
async def test_processes_of_one_pod_restore_one_checkpoint_and_keep_leases(
    tmp_path: Path,
) -> None:
    async with run_master(tmp_path, *ONE) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        pod = await member(channel, slots=2)
        await stub.CreateDataset(TWENTY)
        request = pb.RestoreCheckpointRequest(
            dataset="d", state=b"", round=pod.running, pod_uid=pod.uid
        )
        await stub.RestoreCheckpoint(request)
        assert await lease(stub, pod, 3) == [0, 1, 2]
        assert await report(stub, pod, [0]) == []
        await stub.RestoreCheckpoint(request)
        assert await lease(stub, pod, 1) == [3], (
            "the second process has not taken back what the first one trains"
        )


async def test_an_ended_process_gets_no_shards_and_takes_none_from_its_successor(
    tmp_path: Path,
) -> None:
    async with run_master(tmp_path, *ONE) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        first = await member(channel)
        await stub.CreateDataset(TWENTY)
        assert await lease(stub, first, 2) == [0, 1]
        second = await Agent(1).join(channel)
        await until("a new world", lambda: first.running == second.running == 2)
        code, details = await refusal(lease(stub, first, 2, round_=1))
        assert code == grpc.StatusCode.FAILED_PRECONDITION, details
        assert await lease(stub, first, 2) == [0, 1]
        assert await report(stub, first, [], round_=1, returned=[0, 1]) == []
        assert await lease(stub, second, 1) == [2], "the first two are still at work"
        assert await report(stub, first, [0], round_=1) == [], "what it had finished counts"
        await first.send(leaving=agent_pb2.Leaving())
        await until("the last world", lambda: second.running == 3)
        assert await lease(stub, second, 3) == [1, 2, 3], (
            "the leases of the previous world have returned"
        )


@pytest.mark.guarantee("member-cut-off")
async def test_a_process_outside_the_world_neither_reads_nor_changes_the_ledger(
    tmp_path: Path,
) -> None:
    async with run_master(tmp_path, *STANDALONE) as master, master.channel() as channel:
        stub = shards_pb2_grpc.ShardServiceStub(channel)
        rendezvous = rendezvous_pb2_grpc.RendezvousServiceStub(channel)
        first, second = await world_of_two(channel)

        def calls(agent: Agent, round_: int) -> list[Awaitable[Any]]:
            who: Any = {"pod_uid": agent.uid, "round": round_}
            return [
                stub.CreateDataset(
                    pb.CreateDatasetRequest(
                        dataset="d", shard_size=1, epochs=1, streamed=True, **who
                    )
                ),
                stub.ExtendDataset(pb.ExtendDatasetRequest(dataset="d", size=20, **who)),
                stub.GetCheckpoint(pb.GetCheckpointRequest(dataset="d", **who)),
                stub.LeaseShards(pb.LeaseShardsRequest(dataset="d", count=1, **who)),
                rendezvous.MayCommit(rendezvous_pb2.MayCommitRequest(**who)),
            ]

        await stub.CreateDataset(
            pb.CreateDatasetRequest(dataset="d", shard_size=1, epochs=1, streamed=True)
        )
        for call in calls(first, 1):  # all of them are in flight at the same time
            await call
        await first.leave()
        third = await Agent(2).join(channel)
        await until("a world without it", lambda: second.running == third.running == 2)
        over = (grpc.StatusCode.FAILED_PRECONDITION, "round is 1; it is over, the present one is 2")
        assert [await refusal(call) for call in calls(first, 1)] == [over] * 5, "while it is away"
        for call in calls(second, 2):
            await call
        await first.join(channel, follow_commands=False)
        await until(
            "it is killed",
            lambda: first.commands and first.commands[-1].WhichOneof("command") == "stop",
        )
        assert first.commands[-1].stop == agent_pb2.Stop(round=1, grace_seconds=0)
        assert [await refusal(call) for call in calls(first, 1)] == [over] * 5, "when it is back"
        # An agent of an earlier version sends this.
        await stub.GetCheckpoint(pb.GetCheckpointRequest(dataset="d"))
