"""Uses a real master's values, barriers and node checks over TLS; agents are played."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from elasticjob_api.v1 import rendezvous_pb2 as pb
from elasticjob_api.v1.rendezvous_pb2_grpc import RendezvousServiceStub

from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_process import STANDALONE, run_master


async def refused(call: Any, code: grpc.StatusCode, message: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    assert refusal.value.code() == code, refusal.value.details()
    assert message in (refusal.value.details() or "")


def wait(keys: list[str], seconds: float = 20.0) -> pb.GetValuesRequest:
    return pb.GetValuesRequest(round=1, keys=keys, wait_seconds=seconds)


async def test_a_value_reaches_its_waiting_readers(channel: grpc.aio.Channel) -> None:
    await world_of_two(channel)
    stub = RendezvousServiceStub(channel)
    waiting = asyncio.ensure_future(stub.GetValues(wait(["a", "b"])))
    await stub.SetValue(pb.SetValueRequest(round=1, key="b", value=b"\x00two"))
    assert not waiting.done()
    await stub.SetValue(pb.SetValueRequest(round=1, key="a", value=b"one"))
    assert list((await waiting).values) == [b"one", b"\x00two"]
    await refused(stub.GetValues(wait(["c"], 0)), grpc.StatusCode.NOT_FOUND, "key 'c' has no value")
    invalid = "wait_seconds is nan; it must be 0 to 3600"
    nan = stub.GetValues(wait(["a"], float("nan")))
    await refused(nan, grpc.StatusCode.INVALID_ARGUMENT, invalid)
    await refused(
        stub.GetValues(wait(["c"], 0.05)), grpc.StatusCode.DEADLINE_EXCEEDED, "no value within"
    )


async def test_only_one_caller_sets_an_absent_value_and_additions_are_counted_once(
    channel: grpc.aio.Channel,
) -> None:
    await world_of_two(channel)
    stub = RendezvousServiceStub(channel)
    requests = [
        pb.SetValueRequest(round=1, key="leader", value=b"%d" % n, if_absent=True) for n in range(5)
    ]
    answers = await asyncio.gather(*(stub.SetValue(request) for request in requests))
    assert len({answer.value for answer in answers}) == 1
    swap = pb.SetValueRequest(round=1, key="leader", value=b"x", expected=b"no such")
    assert (await stub.SetValue(swap)).value == answers[0].value
    none = await stub.SetValue(pb.SetValueRequest(round=1, key="nobody", value=b"", expected=b""))
    assert not none.present
    add = pb.AddValueRequest(round=1, key="n", amount=3, request_id="one")
    assert [(await stub.AddValue(add)).value for _ in range(3)] == [3, 3, 3]
    assert (await stub.AddValue(pb.AddValueRequest(round=1, key="n", amount=-1))).value == 2
    assert list((await stub.GetValues(wait(["n"]))).values) == [b"2"]
    assert (await stub.DeleteValue(pb.DeleteValueRequest(round=1, key="n"))).existed
    assert not (await stub.DeleteValue(pb.DeleteValueRequest(round=1, key="n"))).existed


async def test_a_barrier_opens_when_all_have_arrived(channel: grpc.aio.Channel) -> None:
    first, second = await world_of_two(channel)
    stub = RendezvousServiceStub(channel)

    def at(agent: Agent, number: int, seconds: float = 20.0) -> pb.BarrierRequest:
        return pb.BarrierRequest(
            round=1, name="epoch", number=number, pod_uid=agent.uid, wait_seconds=seconds
        )

    for number in range(3):
        waiting = asyncio.ensure_future(stub.Barrier(at(first, number)))
        await refused(
            stub.Barrier(at(first, number, 0)),
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "barrier 'epoch': 1 of 2 have not arrived, such as job-worker-1",
        )
        assert not waiting.done()
        await stub.Barrier(at(second, number))
        await waiting
        await stub.Barrier(at(first, number, 0))
    stranger = pb.BarrierRequest(round=1, name="epoch", pod_uid="nobody", wait_seconds=1)
    await refused(
        stub.Barrier(stranger), grpc.StatusCode.FAILED_PRECONDITION, "not in the world of round 1"
    )


@pytest.mark.guarantee("process-retried-in-its-pod")
async def test_waits_end_with_the_round_and_the_next_round_starts_empty(
    channel: grpc.aio.Channel,
) -> None:
    first, _ = await world_of_two(channel)
    stub = RendezvousServiceStub(channel)
    await stub.SetValue(pb.SetValueRequest(round=1, key="old", value=b"v"))
    barrier = pb.BarrierRequest(round=1, name="b", pod_uid=first.uid, wait_seconds=20)
    waits = [
        asyncio.ensure_future(stub.GetValues(wait(["a"]))),
        asyncio.ensure_future(stub.Barrier(barrier)),
    ]
    await refused(stub.GetValues(wait(["a"], 0)), grpc.StatusCode.NOT_FOUND, "'a'")
    await Agent(2).join(channel)
    for waiting in waits:
        await refused(
            waiting,
            grpc.StatusCode.FAILED_PRECONDITION,
            "round is 1; it is over, the present one is 2",
        )
    await refused(
        stub.GetValues(pb.GetValuesRequest(round=2, keys=["old"])),
        grpc.StatusCode.NOT_FOUND,
        "'old' has no value",
    )
    set_old = pb.SetValueRequest(round=1, key="k", value=b"")
    await refused(stub.SetValue(set_old), grpc.StatusCode.FAILED_PRECONDITION, "it is over")
    await refused(
        stub.AddValue(pb.AddValueRequest(round=9, key="k")),
        grpc.StatusCode.UNAVAILABLE,
        "this master knows of 2",
    )


@pytest.mark.guarantee("master-can-be-replaced")
async def test_values_and_passed_barriers_outlive_the_master(tmp_path: Path) -> None:
    options = (*STANDALONE, f"--state-file={tmp_path / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        first, second = await world_of_two(channel)
        stub = RendezvousServiceStub(channel)
        await stub.SetValue(pb.SetValueRequest(round=1, key="address", value=bytes(range(256))))
        add = pb.AddValueRequest(round=1, key="n", amount=5, request_id="once")
        await stub.AddValue(add)
        passes = [
            pb.BarrierRequest(round=1, name="b", pod_uid=agent.uid, wait_seconds=20)
            for agent in (first, second)
        ]
        await asyncio.gather(*(stub.Barrier(request) for request in passes))
        ports = await master.kill()
    async with run_master(tmp_path, *options, ports=ports) as master, master.channel() as channel:
        stub = RendezvousServiceStub(channel)
        values = (await stub.GetValues(wait(["address", "n"]))).values
        assert list(values) == [bytes(range(256)), b"5"]
        assert (await stub.AddValue(add)).value == 5
        await stub.Barrier(passes[0])
        await refused(
            stub.Barrier(pb.BarrierRequest(round=1, name="b", number=1, pod_uid=first.uid)),
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "1 of 2 have not arrived",
        )
