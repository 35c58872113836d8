"""Node checks: which members wait for one, for how long, and which nodes fail it."""

from __future__ import annotations

import dataclasses

import pytest
from elasticjob_api.health import NodeCheck
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous import node_check
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import Check, Exit, Start
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    MemberDisconnected,
    MemberRegistered,
    NodeChecked,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity, Member, NodeCheckState
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.stored_state import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.changed_settings import changed_settings


class Job:
    """A rendezvous that checks nodes; agents answer when the test says so."""

    def __init__(self, count: int, *, desired: int | None = None, enabled: bool = True) -> None:
        self.now = 0.0
        check = NodeCheck(enabled=enabled, command=["gpu-test"], timeout_seconds=60)
        sizes = {"worker": RoleSize(1, count if desired is None else desired)}
        self.rendezvous = RendezvousState(node_check=check, sizes=sizes)
        self.members = self.rendezvous.members
        self.commands: list[object] = []
        for index in range(count):
            self.join(index)

    def join(self, index: int, incarnation: int = 0) -> Member:
        uid = f"u{index}.{incarnation}"
        identity = Identity(
            f"p{index}.{incarnation}",
            uid,
            "worker",
            index,
            incarnation,
            f"10.0.0.{index}",
            f"n{index}",
        )
        self.apply(MemberRegistered(identity))
        self.apply(MemberConnected(uid))
        member = self.members.get(uid)
        assert member is not None
        return member

    def apply(self, event: Event) -> None:
        advance(self.rendezvous, self.now, event)

    def advance(self, seconds: float = 0.0) -> list[object]:
        self.now += seconds
        for member in self.members:
            member.last_heard_at = self.now
        self.commands = list(advance(self.rendezvous, self.now))
        return self.commands

    def answer(self, member: Member, *, seconds: float = 0.1, problem: str = "") -> None:
        self.apply(NodeChecked(member.uid, member.order, seconds, problem))


def test_no_world_is_formed_before_all_members_that_joined_together_have_passed() -> None:
    job = Job(3)
    commands = job.advance()
    assert [c for c in commands if isinstance(c, Start)] == []
    assert [c.peers for c in commands if isinstance(c, Check)] == [
        ("10.0.0.1", "10.0.0.2"),
        ("10.0.0.2", "10.0.0.0"),
        ("10.0.0.0", "10.0.0.1"),
    ]
    assert all(
        c.command == ("gpu-test",) and c.timeout_seconds == 60
        for c in commands
        if isinstance(c, Check)
    )
    members = list(job.members)
    for member in members[:2]:
        job.answer(member)
    assert job.advance(1.0) == []
    job.answer(members[2])
    assert [type(c) for c in job.advance()] == [Start] * 3
    assert job.advance(10.0) == [], "each node is checked once"


def test_without_a_wish_for_it_nothing_is_checked() -> None:
    assert [type(c) for c in Job(3, enabled=False).advance()] == [Start] * 3


@pytest.mark.guarantee("unfit-node")
def test_a_node_whose_check_fails_leaves_with_the_reason_and_the_others_train() -> None:
    job = Job(3)
    job.advance()
    first, second, third = job.members
    job.answer(first)
    job.answer(second, problem="the check command ended with exit code 3: no GPU")
    job.answer(third)
    commands = job.advance(3.0)
    assert Exit("u1.0", problem="the check command ended with exit code 3: no GPU") in commands
    assert job.rendezvous.world == ("u0.0", "u2.0")
    assert job.rendezvous.unfit == {
        ("worker", 1): ("p1.0", "the check command ended with exit code 3: no GPU")
    }
    job.apply(MemberDisconnected("u1.0"))
    assert job.rendezvous.unfit, "it is still known when the pod is gone"
    again = job.join(1, incarnation=1)
    job.advance(1.5)
    assert again.node_check.stage == "running"
    job.answer(again)
    job.advance(2.0)
    assert job.rendezvous.unfit == {}, "another pod there is fit"


def test_a_node_twice_as_slow_as_the_others_is_not_fit() -> None:
    job = Job(4)
    job.advance()
    members = list(job.members)
    for member in members:
        job.answer(member, seconds=0.35 if member is members[2] else 0.1)
    job.advance()
    assert members[2].node_check.problem == (
        "its node took 0.350 s for the measured work, "
        "over 2 times the median of 4 members of role worker (0.100 s)"
    )
    assert [m.node_check.stage for m in members] == ["passed", "passed", "failed", "passed"]


def test_the_list_of_pods_that_are_not_fit_is_bounded_and_the_oldest_go_first() -> None:
    job = Job(node_check.MOST_UNFIT + 5)
    job.advance()
    for member in job.members:
        job.answer(member, problem="bad")
    job.advance()
    assert list(job.rendezvous.unfit) == [
        ("worker", index) for index in range(5, node_check.MOST_UNFIT + 5)
    ]


def test_two_measurements_are_too_few_to_call_one_slow() -> None:
    job = Job(2)
    job.advance()
    for seconds, member in zip((0.1, 9.0), job.members, strict=True):
        job.answer(member, seconds=seconds)
    assert [type(c) for c in job.advance()] == [Start] * 2


def test_a_node_that_does_not_answer_is_not_fit_after_its_time() -> None:
    job = Job(3)
    job.advance()
    members = list(job.members)
    for member in members[1:]:
        job.answer(member)
    job.advance(60.0 + node_check.ANSWER_SECONDS - 1)
    assert job.rendezvous.round == 0
    job.advance(2.0)
    assert members[0].node_check.problem == "the node check was not answered in time"
    assert job.rendezvous.world == ("u1.0", "u2.0")


def test_a_member_that_joins_a_running_world_is_checked_while_it_trains() -> None:
    job = Job(2, desired=3)
    job.advance(3.0)
    for member in job.members:
        job.answer(member)
    job.advance()
    for member in job.members:
        job.apply(ProcessStarted(member.uid, 1))
    late = job.join(2)
    assert [type(c) for c in job.advance(2.0)] == [Check]
    phase = job.rendezvous.phase
    assert phase == "training"
    job.answer(late)
    job.advance()
    assert job.rendezvous.phase == "reforming"


def test_a_check_is_sent_again_to_an_agent_that_comes_back_and_not_to_one_that_trains() -> None:
    job = Job(2)
    job.advance()
    first = next(iter(job.members))
    job.apply(MemberDisconnected(first.uid))
    job.apply(MemberConnected(first.uid))
    assert [type(c) for c in job.advance()] == [Check]
    job.apply(MemberConnected(first.uid, running_round=4))
    job.advance()
    assert first.node_check.stage == "none", (
        "it trains already, as a restarted master has just learned"
    )


def test_members_start_when_the_check_is_switched_off() -> None:
    job = Job(2)
    job.advance()
    job.apply(changed_settings(job.rendezvous, node_check=NodeCheck()))
    assert [type(c) for c in job.advance()] == [Start] * 2


def test_a_late_or_foreign_answer_changes_nothing() -> None:
    job = Job(2)
    job.advance()
    first, second = job.members
    job.apply(NodeChecked(first.uid, 77, 1.0, "not mine"))
    assert first.node_check.stage == "running"
    job.answer(second, seconds=float("nan"), problem="x" * 5000)
    job.answer(second, problem="")
    assert (second.node_check.seconds, len(second.node_check.problem)) == (
        0.0,
        node_check.LONGEST_PROBLEM,
    )


def test_results_of_node_checks_survive_the_master() -> None:
    before = Controller(framework="jax")
    after = Controller(framework="jax")
    for index, stage in enumerate(("passed", "failed", "running")):
        identity = Identity(f"p{index}", f"u{index}", "worker", index, 0, f"10.0.0.{index}")
        problem = "bad" if index == 1 else ""
        before.members.add(identity, 0.0).node_check = NodeCheckState(
            stage,  # type: ignore[arg-type]
            seconds=0.1,
            problem=problem,
        )
    before.rendezvous.unfit = {("worker", 1): ("p1", "bad")}
    before.keyvalue.begin_round(3, {"k": bytes(range(256))}, {"request": 7})
    before.barriers.begin_round({"b": 2})
    snapshot.restore(after, decode(encode(snapshot.take(before, job_uid="uid"))))
    checks = [(m.node_check.stage, m.node_check.problem) for m in after.members]
    assert checks == [("passed", ""), ("failed", "bad"), ("none", "")]
    assert dict(after.rendezvous.unfit.values()) == {"p1": "bad"}
    assert (after.keyvalue.round, after.keyvalue.values) == (3, {"k": bytes(range(256))})
    assert (after.keyvalue.addition_results, after.barriers.passed) == (
        {"request": 7},
        {"b": 2},
    )


class Broken(Job):
    """A job without checks, whose program says on every node that the node is broken."""

    def fail(self, index: int, incarnation: int, node: str) -> tuple[Member, list[object]]:
        member = self.members.get(f"u{index}.{incarnation}") or self.join(index, incarnation)
        self.apply(MemberRegistered(dataclasses.replace(member.identity, node_name=node)))
        self.advance(3.0)
        for each in self.members:
            self.apply(ProcessStarted(each.uid, self.rendezvous.round))
        for each in reversed(list(self.members)):
            broken = "GPU lost" if each is member else ""
            ago = 0.0 if broken else 1.0
            self.apply(
                ProcessExited(
                    each.uid,
                    self.rendezvous.round,
                    1,
                    failed_seconds_ago=ago,
                    node_problem=broken,
                )
            )
        return member, self.advance(30.0)


@pytest.mark.guarantee("broken-node")
def test_a_member_on_a_broken_node_leaves_with_the_reason_and_not_the_first_that_failed() -> None:
    job = Broken(2, enabled=False)
    member, commands = job.fail(0, 0, "n0")
    assert Exit(member.uid, problem="GPU lost") in commands
    assert [c.uid for c in commands if isinstance(c, Exit)] == [member.uid]
    assert job.rendezvous.unfit == {("worker", 0): ("p0.0", "GPU lost")}
    job.apply(MemberDisconnected(member.uid))
    after = job.join(0, 1)
    job.advance(3.0)
    job.apply(ProcessExited("u1.0", job.rendezvous.round, 0, requested=True))
    job.advance(3.0)
    job.apply(ProcessStarted(after.uid, job.rendezvous.round))
    assert job.rendezvous.unfit == {}, "another pod trains in its place"


@pytest.mark.guarantee("broken-node")
def test_a_program_that_calls_every_node_broken_fails_like_any_other_in_the_end() -> None:
    job = Broken(1, enabled=False)
    excused = []
    for incarnation in range(2 * node_check.MOST_BROKEN_NODES):
        node = f"n{incarnation // 2}" if incarnation < 4 else f"n{incarnation}"
        member, commands = job.fail(0, incarnation, node)
        excused += [bool(c.problem) for c in commands if isinstance(c, Exit)]
        job.apply(MemberDisconnected(member.uid))
    assert excused[:5] == [True, False, True, False, True], "each node counts once"
    assert len(excused) == 2 * node_check.MOST_BROKEN_NODES
    assert excused.count(True) == node_check.MOST_BROKEN_NODES
    later = Controller(framework="jax")
    before = Controller(framework="jax")
    before.rendezvous.broken_nodes = job.rendezvous.broken_nodes
    snapshot.restore(later, decode(encode(snapshot.take(before, job_uid="uid"))))
    assert later.rendezvous.broken_nodes == job.rendezvous.broken_nodes


def members_after_check(count: int, broken: set[int]) -> list[Member]:
    """Return members that each have connected to the next two.

    A broken member and the others do not reach each other.
    """
    members = [
        Member(Identity(f"p{n}", f"u{n}", "worker", n, 0, f"a{n}"), n, disconnected_since=None)
        for n in range(count)
    ]
    for n, member in enumerate(members):
        peers = [(n + step) % count for step in (1, 2) if (n + step) % count != n]
        bad = tuple(f"a{p}" for p in dict.fromkeys(peers) if n in broken or p in broken)
        member.node_check = NodeCheckState(
            "answered",
            peers=tuple(f"a{p}" for p in dict.fromkeys(peers)),
            unreached=bad,
            seconds=0.1,
        )
    return members


@given(st.integers(3, 12), st.data())
def test_an_unreachable_node_is_found_and_no_other(count: int, data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, count - 1))
    members = members_after_check(count, {broken})
    node_check.evaluate_group(members, members)
    assert [m.node_check.stage == "failed" for m in members] == [n == broken for n in range(count)]


@pytest.mark.guarantee("unfit-node")
@given(st.integers(2, 12), st.data())
def test_some_node_passes_and_all_connections_among_the_fit_nodes_work(
    count: int, data: st.DataObject
) -> None:
    broken = set(data.draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count)))
    members = members_after_check(count, broken)
    node_check.evaluate_group(members, members)
    fit = [m for m in members if m.node_check.stage == "passed"]
    assert len(fit) >= 1
    addresses = {m.identity.address for m in fit}
    for member in fit:
        failed = [p for p in member.node_check.unreached if p in addresses]
        assert 2 * len(failed) <= max(2, len(member.node_check.peers)), (
            "at most one of its two connections"
        )


def test_of_two_that_do_not_reach_each_other_the_younger_is_to_blame() -> None:
    members = members_after_check(2, {0, 1})
    node_check.evaluate_group(members, members)
    assert [m.node_check.stage for m in members] == ["passed", "failed"]
    assert (
        members[1].node_check.problem
        == "2 of 2 connections between its node and other members failed"
    )


def test_members_at_work_are_never_to_blame() -> None:
    members = members_after_check(2, set())
    worker, newcomer = members
    worker.node_check = NodeCheckState("passed", seconds=0.1)
    newcomer.node_check = NodeCheckState("answered", peers=("a0",), unreached=("a0",), seconds=0.1)
    node_check.evaluate_group([newcomer], members)
    assert (worker.node_check.stage, newcomer.node_check.stage) == ("passed", "failed")


@pytest.mark.parametrize("nodes", [["a", "a", "b", "b"], ["a", "a", "a", "b"]])
def test_peers_on_other_nodes_come_first(nodes: list[str]) -> None:
    members = [
        Member(
            Identity(f"p{n}", f"u{n}", "worker", n, 0, f"10.0.0.{n}", node),
            n,
            disconnected_since=None,
        )
        for n, node in enumerate(nodes)
    ]
    node_check.begin_checks(members, members, NodeCheck(enabled=True), 0.0)
    by_address = {m.identity.address: m.identity.node_name for m in members}
    for member in members:
        assert by_address[member.node_check.peers[0]] != member.identity.node_name
        assert len(member.node_check.peers) == node_check.PEERS
