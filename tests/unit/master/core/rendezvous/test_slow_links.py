"""Which members fail the node check because of a slow network, by two rounds of pairs."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from elasticjob_api.health import NodeCheck
from elasticjob_master.core.rendezvous import node_check
from elasticjob_master.core.rendezvous.member_events import NodeChecked
from elasticjob_master.core.rendezvous.members import Identity, Link, Member
from hypothesis import given
from hypothesis import strategies as st

FAST = Link(0.0001, 1e9)
SLOW = Link(0.0001, 1e8)
LATE = Link(0.05, 1e9)


def checked(
    count: int, bad: Collection[int] = (), *, link: Link = SLOW, nodes: int = 100
) -> list[Member]:
    """Return members after a check, in which each connection from or to a bad one is measured as
    this link.
    """
    members = [
        Member(
            Identity(f"p{n}", f"u{n}", "worker", n, 0, f"a{n}", f"node{n % nodes}"),
            n,
            disconnected_since=None,
        )
        for n in range(count)
    ]
    node_check.begin_checks(members, members, NodeCheck(enabled=True), 0.0)
    for n, member in enumerate(members):
        links = {
            peer: link if n in bad or int(peer[1:]) in bad else FAST
            for peer in member.node_check.peers
        }
        node_check.record_answer(member, NodeChecked(member.uid, n, 0.1, links=links))
    return members


def failed(members: list[Member]) -> set[int]:
    node_check.evaluate_group(members, members)
    return {m.identity.index for m in members if m.node_check.stage == "failed"}


@pytest.mark.guarantee("slow-network")
@pytest.mark.parametrize("link", [SLOW, LATE])
@pytest.mark.parametrize("count", [3, 4, 8, 9])
def test_the_one_member_with_a_slow_network_is_found(count: int, link: Link) -> None:
    for slow in range(count):
        assert failed(checked(count, {slow}, link=link)) == {slow}


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        (
            SLOW,
            "its node sends and receives at most 95.4 MiB/s, "
            "under 1/4 of the median of 4 members (954 MiB/s)",
        ),
        (
            LATE,
            "a round trip from its node takes at least 50 ms, the median of 4 members is 0.1 ms",
        ),
    ],
)
def test_the_problem_has_the_numbers(link: Link, problem: str) -> None:
    members = checked(4, {2}, link=link)
    failed(members)
    assert members[2].node_check.problem == problem


def test_of_two_members_neither_is_slower() -> None:
    assert failed(checked(2, {0})) == set()
    members = checked(2)
    members[0].node_check.links = {"a1": SLOW}
    assert failed(members) == set(), "it is the same connection"


def test_a_fit_member_among_slow_partners_passes() -> None:
    assert failed(checked(11, {2, 3, 5, 6})) == {2, 3, 5, 6}, "4 has only them as partners"


def test_a_member_that_has_measured_nothing_is_judged_by_what_its_partners_measured() -> None:
    members = checked(6, {2})
    members[2].node_check.links = {}
    assert failed(members) == {2}


@pytest.mark.guarantee("slow-network")
@given(st.integers(2, 14), st.data())
def test_no_fit_member_fails_and_never_more_than_half(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1)))
    found = failed(checked(count, bad, link=data.draw(st.sampled_from([SLOW, LATE]))))
    assert found <= bad
    assert 2 * len(found) <= count


def test_connections_within_a_node_are_not_compared_with_those_between_nodes() -> None:
    members = checked(8, {0}, nodes=1)
    assert failed(members) == set()
    assert failed(checked(8, {0}, nodes=8)) == {0}


def test_members_that_train_are_not_compared() -> None:
    members = checked(6, {0, 1, 2})
    assert failed(members[3:]) == set(), "their partners are busy"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_measurements_that_cannot_be_are_ignored(value: float) -> None:
    members = checked(4)
    strange = {"a1": Link(value, 1.0), "a2": Link(1.0, value), "unknown": SLOW}
    members[0].node_check.stage = "running"
    answer = NodeChecked("u0", 0, 0.1, links=strange, device="x" * 5000, device_seconds=value)
    node_check.record_answer(members[0], answer)
    check = members[0].node_check
    assert (check.links, check.device_seconds, len(check.device)) == (
        {},
        0.0,
        node_check.LONGEST_DEVICE,
    )


@pytest.mark.guarantee("unfit-node")
def test_the_seconds_of_a_matrix_product_are_compared_for_equal_devices_only() -> None:
    members = checked(6)
    for member, seconds in zip(members, (0.1, 0.1, 0.1, 0.3, 0.3, 0.3), strict=True):
        member.node_check.device_seconds = seconds
        member.node_check.device = "H100" if member.order < 4 else "T4"
    assert failed(members) == {3}
    assert members[3].node_check.problem == (
        "its node took 0.300 s for a matrix product (H100), "
        "over 2 times the median of 4 members of role worker (0.100 s)"
    )
