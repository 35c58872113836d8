"""Vanished nodes: found within seconds, and no outage of two seconds removes a member."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from elasticjob_master.core.rendezvous import vanished_nodes, watches
from elasticjob_master.core.rendezvous.commands import MemberRemoved
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.watches import Suspicion

from tests.support.master.simulated_nodes import FOREVER, MASTER, START, SimulatedNodes

FAULT = START + 10.0
FREEZES_OF_A_JOB = 50


def nodes(size: int, seed: int = 0, per_node: int = 1) -> SimulatedNodes:
    return SimulatedNodes(size, random.Random(seed), per_node)


@pytest.mark.guarantee("node-vanishes")
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_node_that_vanishes_is_removed_within_four_seconds(size: int) -> None:
    for seed in range(50):
        job = nodes(size, seed)
        job.cut(1, (FAULT, FOREVER))
        job.run(20.0)
        assert list(job.removed) == [1], seed
        assert 2.0 < job.removed[1] - FAULT < 4.0, seed


@pytest.mark.guarantee("node-vanishes")
def test_nodes_that_vanish_together_cost_one_new_world() -> None:
    for seed in range(50):
        job = nodes(12, seed)
        for index in (3, 4, 5, 6):
            job.cut(index, (FAULT, FOREVER))
        job.run(20.0)
        assert sorted(job.removed) == [3, 4, 5, 6], seed
        assert job.state.round == 2, seed


def test_all_members_of_a_node_are_removed() -> None:
    job = nodes(12, per_node=3)
    for index in (3, 4, 5):
        job.cut(index, (FAULT, FOREVER))
    job.run(20.0)
    assert sorted(job.removed) == [3, 4, 5]


@pytest.mark.parametrize("reached_by", [2, 3, 4])
def test_a_member_that_one_of_three_others_reaches_is_never_removed(reached_by: int) -> None:
    for seed in range(20):
        job = nodes(5, seed)
        job.cut(1, (FAULT, FOREVER))
        for pair in ((reached_by, 1), (1, reached_by)):
            job.lost[pair].clear()
        job.run(60.0)
        assert job.removed == {}


def test_a_member_that_the_master_hears_is_never_removed() -> None:
    job = nodes(2)
    for pair in ((0, 1), (1, 0)):
        job.lost[pair].append((FAULT, FOREVER))
    job.run(60.0)
    assert job.removed == {}


def test_a_master_that_is_cut_off_from_most_members_removes_none() -> None:
    for left in (1, 2):
        job = nodes(7)
        for index in range(left, 7):
            job.cut(index, (FAULT, FOREVER))
        job.run(60.0)
        assert job.removed == {}


def test_members_that_never_reached_each_other_are_not_suspected() -> None:
    job = nodes(3)
    vanished_nodes.suspect(job.state, "0", "10.0.0.9", job.now, job.now)
    assert job.state.suspicions.by_address == {}, "no member is there"


def test_a_pod_that_was_removed_wrongly_is_not_removed_so_again() -> None:
    job = nodes(3)
    job.cut(1, (FAULT, FAULT + 8.0))
    job.run(20.0)
    assert list(job.removed) == [1]
    job.join(1)
    job.run(30.0)
    assert "1" in job.state.world
    job.removed.clear()
    job.cut(1, (job.now, FOREVER))
    job.run(60.0)
    assert job.removed == {}


def test_probes_are_few_whatever_vanishes() -> None:
    job = nodes(100)
    for index in range(40):
        job.cut(index, (FAULT, FOREVER))
    job.run(20.0)
    assert sorted(job.removed) == list(range(40))
    assert job.probes <= 3 * 5 * 4, "at most 15 a second, for a few seconds"


def test_nothing_is_asked_while_all_is_well() -> None:
    job = nodes(10)
    job.run(60.0)
    assert (job.probes, job.removed) == (0, {})


# --- each question


def suspicion(began: float, asked: str = "", unreached_by: str = "") -> Suspicion:
    """Return a suspicion of member 1, of which others were asked after 1.6 s, if any."""
    asked_at = began + 1.6 if asked else None
    return Suspicion(("1",), began, set(), frozenset(asked), asked_at, 1, set(unreached_by))


@pytest.mark.parametrize(
    ("suspected", "heard_at", "now", "expected"),
    [
        (suspicion(10.0), 9.9, 11.5, "wait"),  # the outage may be short
        (suspicion(10.0), 9.9, 11.7, "ask"),
        (suspicion(10.0, "abc", "ab"), 9.9, 12.5, "wait"),
        (suspicion(10.0, "abc", "abc"), 9.9, 12.5, "vanished"),
        (suspicion(10.0, "abc", "ab"), 9.9, 13.2, "vanished"),  # one of those asked is away, too
        (suspicion(10.0, "abc", "a"), 9.9, 13.2, "ask"),
        (suspicion(10.0, "abc", ""), 9.9, 13.2, "ask"),
        (suspicion(10.0, "abc", "abc"), 10.1, 12.5, "there"),  # the master has heard of it
        (suspicion(10.0, "abc", "abc"), 9.9, 20.1, "there"),  # the report is too old
    ],
)
def test_a_verdict_follows_from_what_is_known(
    suspected: Suspicion, heard_at: float, now: float, expected: str
) -> None:
    assert vanished_nodes.verdict(suspected, heard_at, now) == expected


def removed_by(job: SimulatedNodes, after: float, **suspicions: Suspicion) -> list[str]:
    """Return who is removed if these nodes are suspected, after a time since the last decision."""
    job.state.suspicions.by_address = {
        f"10.0.0.{each[-1]}": suspicions[each] for each in suspicions
    }
    job.state.suspicions.checked_at = job.now
    commands = vanished_nodes.advance(job.state, job.now + after)
    return [each.uid for each in commands if isinstance(each, MemberRemoved)]


def test_a_master_that_was_held_up_asks_again() -> None:
    found = []
    for seconds in (0.1, 1.5):
        job = nodes(4)
        job.run(10.0)
        asked = suspicion(job.now - 2.4, "02", "02")
        asked.began = job.state.members.get("1").last_heard_at = job.now - 2.4  # type: ignore[union-attr]
        found.append(removed_by(job, seconds, of_1=asked))
    assert found == [["1"], []]


def test_others_that_are_suspected_are_waited_for_but_not_for_long() -> None:
    found = []
    for began in (2.4, 3.6):
        job = nodes(6)
        job.run(10.0)
        for uid in ("1", "2"):
            job.state.members.get(uid).last_heard_at = job.now - began  # type: ignore[union-attr]
        asked = suspicion(job.now - began, "03", "03")
        later = Suspicion(("2",), job.now - 1.0)
        found.append(removed_by(job, 0.0, of_1=asked, of_2=later))
    assert found == [[], ["1"]]


# --- freezes, none of which is a loss

Freeze = Callable[[SimulatedNodes, int, float, random.Random], None]


def collector(job: SimulatedNodes, index: int, time: float, _: random.Random) -> None:
    """A garbage collector stops an agent for 2 s."""
    job.frozen[index].append((time, time + 2.0))


def starved(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """An agent gets no CPU for long."""
    job.frozen[index].append((time, time + rng.uniform(2.0, 8.0)))


def machine(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """A virtual machine is paused."""
    span = (time, time + rng.uniform(0.1, 2.0))
    job.cut(index, span)
    job.frozen[index].append(span)


def partition(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """Some nodes are cut off from the others, or from all, for a second."""
    inside = {index, *rng.sample(range(job.size), rng.randrange(job.size))}
    for a in (MASTER, *range(job.size)):
        for b in (MASTER, *range(job.size)):
            if (a in inside) != (b in inside):
                job.lost[a, b].append((time, time + 1.0))


def one_way(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """What a node sends is lost for 2 s, or what it is sent for ever."""
    if rng.random() < 0.5:
        job.lose_from(index, (time, time + rng.uniform(0.1, 2.0)))
    else:
        job.lose_to(index, (time, FOREVER))


def one_path(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """Nothing gets from one node to another, or in both directions, for ever."""
    other = rng.choice([i for i in range(job.size) if i != index])
    job.lost[index, other].append((time, FOREVER))
    if rng.random() < 0.5:
        job.lost[other, index].append((time, FOREVER))


def master_asleep(job: SimulatedNodes, index: int, time: float, rng: random.Random) -> None:
    """The master does nothing for a while, during another fault."""
    begin = time + rng.uniform(-2.0, 4.0)
    job.frozen[MASTER].append((begin, begin + rng.uniform(0.5, 10.0)))
    rng.choice([collector, machine, partition])(job, index, time, rng)


FREEZES: list[Freeze] = [
    collector,
    starved,
    machine,
    partition,
    one_way,
    one_path,
    master_asleep,
]


@pytest.mark.guarantee("node-vanishes")
def test_no_freeze_and_no_short_outage_removes_a_member() -> None:
    check_freezes(5_000)


@pytest.mark.thorough
def test_no_freeze_of_many_removes_a_member() -> None:
    check_freezes(100_000)


def check_freezes(number: int) -> None:
    suspicions = 0
    for seed in range(number // FREEZES_OF_A_JOB):
        rng = random.Random(seed)
        size = rng.choice([2, 3, 4, 6])
        job = SimulatedNodes(size, rng)
        for _ in range(FREEZES_OF_A_JOB):
            freeze = rng.choice(FREEZES)
            freeze(job, rng.randrange(size), job.now + rng.uniform(2.0, 4.0), rng)
            job.run(11.0)
            assert job.removed == {}, f"seed {seed}: {freeze.__name__} of {size}"
            job.heal()
            job.run(2.0)
        suspicions += job.state.suspicions.probes
    assert suspicions > number / 20, "the freezes raise suspicions"


# --- who watches whom


def world(*names: str) -> list[Member]:
    """Return members on nodes, in the order of ranks."""
    return [
        Member(Identity(f"p{i}", f"u{i}", "worker", i, 0, f"10.0.0.{i}", node), i, None)
        for i, node in enumerate(names)
    ]


@pytest.mark.parametrize(
    "of", ["ab", "abc", "abcdefgh", "aabb", "aabbccdd", "aaabbbccc", "aaab", "abcabc"]
)
def test_each_member_is_watched_from_other_nodes(of: str) -> None:
    members = world(*of)
    watched = watches.of_world(members)
    by_address = {m.identity.address: m.identity for m in members}
    for member in members:
        for address in watched[member.uid]:
            assert by_address[address].node_name != member.identity.node_name
    if len(set(of)) > 1 and len({of.count(node) for node in of}) == 1:
        found = {address for addresses in watched.values() for address in addresses}
        assert found == by_address.keys()


def test_on_one_node_nothing_is_watched() -> None:
    assert {*watches.of_world(world("a", "a", "a")).values()} == {()}


def test_members_of_one_address_are_one_node() -> None:
    members = [
        Member(Identity(f"p{i}", f"u{i}", "worker", i, 0, "10.0.0.1"), i, None) for i in range(3)
    ]
    assert {*watches.of_world(members).values()} == {()}
