"""Sends random bytes and messages to every method of the master, next to well-behaved agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_master.core.connection_limits import HeldCalls
from google.protobuf.descriptor import MethodDescriptor

from tests.support.fuzz.attack import Attack, Metadata, methods
from tests.support.fuzz.bystanders import (
    GROWTH,
    LOG_PER_INPUT,
    MEGABYTE,
    master_with_bystanders,
    rss,
)
from tests.support.fuzz.random_messages import RandomMessages
from tests.support.master_process import TOKEN, Master
from tests.support.unread_calls import unread_calls

PODS = tuple(f"pod-{number}" for number in range(40))
DATASETS = ("d", "e", "text", "stream")


class Knowledge:
    """The names that an attacker with the token can find out."""

    def __init__(self) -> None:
        self.rounds: Sequence[int] = (1,)

    def by_field(self) -> dict[str, Any]:
        return {
            "pod_uid": lambda: PODS,
            "pod_name": lambda: PODS,
            "role": lambda: ("worker",),
            "index": lambda: range(2, 60),
            "incarnation": lambda: range(3),
            "address": lambda: ("127.0.0.9", "::1", "10.0.0.1"),
            "node_name": lambda: ("n1", ""),
            "slots": lambda: (1, 2, 8),
            "round": lambda: (*self.rounds, 0, 1),
            "running_round": lambda: (0, *self.rounds),
            "dataset": lambda: DATASETS,
            "size": lambda: (1, 10, 1000, 2**40),
            "shard_size": lambda: (1, 3, 100),
            "epochs": lambda: (1, 2),
            "count": lambda: (1, 2, 50),
            "done": lambda: range(40),
            "returned": lambda: range(40),
            "failed": lambda: range(40),
            "request_id": lambda: ("", "r1", "r2"),
            "key": lambda: ("k", "l", "counter"),
            "keys": lambda: ("k", "l", "nobody-sets-this"),
            "name": lambda: ("b", "n1", "n2"),
            "wait_seconds": lambda: (0.0, 0.0, 0.01),
            "step": lambda: range(50),
            "seconds": lambda: (0.1, 1.0),
            "samples": lambda: (1.0, 100.0),
            "service": lambda: ("", "elasticjob.v1.JobService"),
            "file_containing_symbol": lambda: ("elasticjob.v1.JobService", "elasticjob.v1.World"),
            "containing_type": lambda: ("elasticjob.v1.World",),
        }


async def check_inputs(
    attack: Attack, master: Master, *, inputs: int, knowledge: Knowledge
) -> None:
    """Send the inputs.

    After a part of them has filled every pool and cache, memory may grow only within a bound.
    """
    await attack.run(inputs // 4)
    log_before = master.log.stat().st_size
    grown = await growth(attack, master, inputs=inputs * 3 // 4, knowledge=knowledge)
    if grown > GROWTH:  # the allocator keeps memory that was needed once; a leak grows again
        grown = await growth(attack, master, inputs=inputs * 3 // 4, knowledge=knowledge)
    logged = master.log.stat().st_size - log_before
    print(f"{attack.sent} inputs; log {logged}")
    for (method, code), count in sorted(attack.answers.items()):
        print(f"  {method} {code}: {count}")
    assert not attack.problems, "\n".join(attack.problems)
    assert attack.sent >= inputs
    assert grown <= GROWTH
    assert logged <= LOG_PER_INPUT * attack.sent, (
        "a client with the token can fill the disk with the log"
    )
    asked = {method for method, _ in attack.answers}
    assert asked == {method.full_name for method in attack.methods}, "not every method was asked"


async def growth(attack: Attack, master: Master, *, inputs: int, knowledge: Knowledge) -> int:
    """Send inputs; return the master's growth in bytes."""
    before = rss(master)
    for _ in range(5):
        await attack.run(inputs // 5)
        status = await JobServiceStub(attack.channel).GetStatus(
            job_pb2.GetStatusRequest(), metadata=attack.metadata
        )
        knowledge.rounds = (status.round,)
        if attack.problems:
            break
    grown = rss(master) - before
    print(f"memory {before / MEGABYTE:.0f} MiB, grown by {grown / MEGABYTE:.1f}")
    return grown


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize(
    ("options", "share"), [(("--insecure",), 0.7), ((), 0.1)], ids=["plain", "tls"]
)
async def test_no_input_of_any_method_harms_the_master_or_a_well_behaved_agent(
    tmp_path: Path, inputs: int, seed: int, options: tuple[str, ...], share: float
) -> None:
    knowledge = Knowledge()
    async with master_with_bystanders(tmp_path, *options) as master, master.channel() as bad:
        attack = Attack(
            bad, RandomMessages(f"{seed} {options}", knowledge.by_field()), await methods(bad, ())
        )
        await check_inputs(attack, master, inputs=int(inputs * share), knowledge=knowledge)


@pytest.mark.guarantee("unread-answers-are-bounded")
@pytest.mark.parametrize("token", [TOKEN, query_token(TOKEN)], ids=["agent", "reader"])
async def test_requests_whose_answers_are_not_read_hold_bounded_memory(
    tmp_path: Path, inputs: int, seed: int, token: str
) -> None:
    generator = RandomMessages(f"unread {seed}", Knowledge().by_field())
    connections = max(4, inputs // 2000)
    async with master_with_bystanders(tmp_path) as master, master.channel() as channel:
        every = [method for method in await methods(channel, ()) if not method.client_streaming]

        def draw() -> tuple[str, bytes]:
            method = generator.rng.choice(every)
            path = f"/{method.containing_service.full_name}/{method.name}"
            return path, generator.message(method.input_type).SerializeToString()

        before = rss(master)
        calls = await unread_calls(master, token, draw, connections=connections, calls=200)
        print(f"grown by {(rss(master) - before) / MEGABYTE:.1f} MiB")
        held = HeldCalls(lambda: 2)
        most = held.most("caller") + connections * held.share("caller")
        assert rss(master) - before <= most + GROWTH
        for connection in calls:
            connection.close()


BAD_TOKENS: tuple[Metadata, ...] = (
    (),
    (("authorization", ""),),
    (("authorization", "Bearer"),),
    (("authorization", "Bearer "),),
    (("authorization", TOKEN),),
    (("authorization", f"Basic {TOKEN}"),),
    (("authorization", f"bearer {TOKEN}"),),
    (("authorization", f"Bearer {TOKEN}"[:-1]),),
    (("authorization", f"Bearer {TOKEN} "),),
    (("authorization", f"Bearer {'x' * 4000}"),),
    (("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer wrong")),
    (("authorization-bin", f"Bearer {TOKEN}".encode()),),
    (("token", TOKEN),),
)


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_without_the_token_only_a_health_check_is_answered(
    tmp_path: Path, inputs: int, seed: int
) -> None:
    def closed(each: MethodDescriptor) -> bool:
        return each.full_name != "grpc.health.v1.Health.Check"

    async with (
        master_with_bystanders(tmp_path) as master,
        master.channel() as good,
        master.channel(None) as unauthenticated,
    ):
        every = [method for method in await methods(good, ()) if closed(method)]
        for metadata in BAD_TOKENS:
            attack = Attack(
                unauthenticated,
                RandomMessages(f"stranger {metadata} {seed}", Knowledge().by_field()),
                every,
                metadata=metadata,
                # After ten seconds the port closes a stranger's connection, with its calls.
                allowed=frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}),
            )
            await attack.run(inputs // 10 // len(BAD_TOKENS))
            assert not attack.problems, "\n".join(attack.problems)
        members = await JobServiceStub(good).GetMembers(job_pb2.GetMembersRequest())
        assert len(members.members) == 2, "a client without the token has become a member"
