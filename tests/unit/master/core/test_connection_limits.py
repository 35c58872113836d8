"""Checks which connections the master closes, and what open calls may hold."""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import LimitReached
from elasticjob_master.core.connection_limits import (
    CALL_BYTES,
    SPARE_CONNECTIONS,
    STRANGER_SECONDS,
    Call,
    Connection,
    HeldCalls,
    Holder,
    Kind,
    connections_to_close,
    most_connections,
)
from elasticjob_master.server.callers import Callers, normalized, peer_of

MEBIBYTE = 1024 * 1024


def connections(
    count: int, kind: Kind, *, first: int = 0, since: float = 100.0
) -> list[Connection]:
    return [
        Connection(first + n, ("10.0.0.1", first + n), since + n * 1e-3, kind) for n in range(count)
    ]


@pytest.mark.guarantee("flood-of-connections")
def test_the_oldest_of_too_many_strangers_are_closed() -> None:
    most = most_connections(3)
    there = connections(most + 5, "stranger")
    assert connections_to_close(there, members=3, now=101.0) == there[:5]
    assert connections_to_close(there[:most], members=3, now=101.0) == []
    assert connections_to_close(there, members=8, now=101.0) == [], "a larger job may have more"


@pytest.mark.guarantee("flood-of-connections")
def test_strangers_are_closed_after_a_time_and_callers_are_not() -> None:
    late = connections(2, "stranger")
    early = connections(2, "stranger", first=10, since=105.0)
    callers = connections(2, "caller", first=20, since=0.0)
    assert (
        connections_to_close([*callers, *late, *early], members=0, now=100.5 + STRANGER_SECONDS)
        == late
    )


@pytest.mark.guarantee("flood-of-connections")
def test_strangers_displace_no_caller_and_callers_are_bounded_too() -> None:
    strangers = connections(SPARE_CONNECTIONS + 10, "stranger", first=1000)
    callers = connections(SPARE_CONNECTIONS + 1, "caller")
    closed = connections_to_close([*callers, *strangers], members=0, now=101.0)
    assert closed == [*strangers[:10], callers[0]]


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("ipv4:10.0.0.1:80", ("10.0.0.1", 80)),
        ("ipv6:%5B::1%5D:80", ("::1", 80)),
        ("ipv6:[::ffff:10.0.0.1]:80", ("10.0.0.1", 80)),
        ("unix:", ("", 0)),
    ],
)
def test_each_notation_of_a_client_gives_the_same_address(text: str, peer: tuple[str, int]) -> None:
    assert peer_of(text) == peer
    assert normalized("::ffff:10.0.0.1", 7) == ("10.0.0.1", 7)


def test_clients_whose_connections_ended_are_forgotten() -> None:
    callers = Callers(lambda: 0)
    callers._callers = {"ipv4:10.0.0.1:80": None, "ipv4:10.0.0.2:80": None}
    callers._streams = {"ipv4:10.0.0.2:80": ["uid"]}
    kinds = callers.kinds()
    ends = [("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)]
    assert [kinds(end) for end in ends] == ["caller", "agent", "stranger"]
    callers.forget_all_but({ends[1]})
    assert [callers.kinds()(end) for end in ends] == ["stranger", "agent", "stranger"]


def held_by(held: HeldCalls, holder: Holder, *connections: str, each: int) -> list[Call]:
    """Let calls of connections hold bytes until one is refused."""
    calls = []
    while True:
        for connection in connections:
            calls.append(held.begin(holder, connection))
            try:
                held.hold(calls[-1], each)
            except LimitReached:
                return calls


@pytest.mark.guarantee("unread-answers-are-bounded")
@pytest.mark.parametrize("holder", ["reader", "caller", "agent", "stranger"])
def test_calls_of_a_kind_of_client_are_bounded_and_each_connection_keeps_its_share(
    holder: Holder,
) -> None:
    held = HeldCalls(lambda: 3)
    held_by(held, holder, "greedy", "another", each=CALL_BYTES)
    assert held.total(holder) <= held.most(holder) + CALL_BYTES
    modest = held.begin(holder, "modest")
    held.hold(modest, held.share(holder) - CALL_BYTES)
    with pytest.raises(LimitReached, match="read the answers"):
        held.hold(modest, 1)
    other: Holder = "caller" if holder == "reader" else "reader"
    held.hold(held.begin(other, "a connection of another kind"), MEBIBYTE)


@pytest.mark.guarantee("unread-answers-are-bounded")
def test_the_connections_with_the_oldest_calls_are_closed_and_no_others() -> None:
    held = HeldCalls(lambda: 0)
    modest = held.begin("reader", "modest")
    calls = held_by(held, "reader", "first", "second", each=MEBIBYTE)
    held_by(held, "agent", "agent", each=MEBIBYTE)
    assert held.connections_to_close() == {"first"}
    assert held.connections_to_close() == set(), "no call was refused since"
    for call in (modest, *calls):
        held.end(call)
        held.end(call)
    assert held.total("reader") == 0


def test_a_connection_that_holds_too_much_is_closed_whatever_its_age() -> None:
    hoarder = Connection(1, ("10.0.0.1", 1), 100.0, "hoarder")
    caller = Connection(2, ("10.0.0.1", 2), 50.0, "caller")
    assert connections_to_close([caller, hoarder], members=2, now=100.0) == [hoarder]


def test_a_larger_job_may_hold_more() -> None:
    assert HeldCalls(lambda: 10_000).most("agent") > HeldCalls(lambda: 10).most("agent")


def test_a_call_that_is_counted_no_longer_holds_nothing() -> None:
    held = HeldCalls(lambda: 0)
    stream = held.begin("caller", "a new agent")
    held.end(stream)
    held.hold(stream, 1000 * MEBIBYTE)
    held.release(stream, 1000 * MEBIBYTE)
    assert held.total("caller") == 0
