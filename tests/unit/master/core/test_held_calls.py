"""Checks what the open calls of the master's clients may hold, by kind of client."""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import LimitReached
from elasticjob_master.core.connection_limits import Connection, connections_to_close
from elasticjob_master.core.held_calls import CALL_BYTES, Call, HeldCalls, Holder

MEBIBYTE = 1024 * 1024


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
