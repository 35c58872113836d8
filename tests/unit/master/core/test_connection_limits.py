"""Checks which connections the master closes."""

from __future__ import annotations

import pytest
from elasticjob_master.core.connection_limits import (
    SPARE_CONNECTIONS,
    STRANGER_SECONDS,
    Connection,
    Kind,
    connections_to_close,
    most_connections,
)
from elasticjob_master.server.callers import Callers, normalized, peer_of


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
