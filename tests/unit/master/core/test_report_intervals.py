"""Checks that the rate of heartbeats and reports is bounded for any number of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.commands import Command, Configure
from elasticjob_master.core.rendezvous.member_events import MemberConnected
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.report_intervals import (
    MESSAGES_PER_SECOND,
    Intervals,
    differ_much,
    intervals_for,
)
from elasticjob_master.job_facts import JobFacts
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.integers(min_value=0, max_value=20_000)
LOST = st.floats(min_value=5, max_value=3600)


def test_the_intervals_grow_with_the_number_of_agents() -> None:
    assert intervals_for(1, lost=30) == Intervals(2.0, 0.2)
    assert intervals_for(200, lost=30) == Intervals(2.0, 0.2)
    assert intervals_for(2_000, lost=30) == Intervals(2.0, 2.0)
    assert intervals_for(10_000, lost=30) == Intervals(10.0, 5.0)


@given(agents=SIZES, lost=LOST)
def test_a_member_is_lost_only_after_three_missing_heartbeats(agents: int, lost: float) -> None:
    assert 3 * intervals_for(agents, lost=lost).heartbeat <= lost + 1e-9


@given(agents=st.integers(min_value=1, max_value=10_000))
def test_all_agents_together_send_at_most_a_thousand_heartbeats_a_second(agents: int) -> None:
    assert agents / intervals_for(agents, lost=30).heartbeat <= MESSAGES_PER_SECOND + 1e-6


@given(agents=st.integers(min_value=1, max_value=5_000))
def test_all_agents_together_send_at_most_a_thousand_reports_a_second(agents: int) -> None:
    assert agents / intervals_for(agents, lost=30).report <= MESSAGES_PER_SECOND + 1e-6


@given(fewer=SIZES, more=SIZES, lost=LOST)
def test_more_agents_never_report_more_often(fewer: int, more: int, lost: float) -> None:
    fewer, more = sorted((fewer, more))
    before = intervals_for(fewer, lost=lost)
    after = intervals_for(more, lost=lost)
    assert before.heartbeat <= after.heartbeat
    assert before.report <= after.report


def test_only_a_change_by_more_than_half_is_sent() -> None:
    last = intervals_for(2_000, lost=30)
    assert not differ_much(last, last)
    assert not differ_much(last, intervals_for(2_900, lost=30))
    assert differ_much(last, intervals_for(3_100, lost=30))
    assert differ_much(intervals_for(3_100, lost=30), last)
    assert differ_much(last, intervals_for(2_000, lost=3))


@given(st.lists(SIZES, min_size=2, max_size=50))
def test_no_agents_intervals_differ_by_more_than_half_from_the_current_ones(
    sizes: list[int],
) -> None:
    last = intervals_for(sizes[0], lost=30)
    for agents in sizes:
        now = intervals_for(agents, lost=30)
        if differ_much(last, now):
            last = now
        assert now.heartbeat / 1.5 <= last.heartbeat <= now.heartbeat * 1.5
        assert now.report / 1.5 <= last.report <= now.report * 1.5


async def test_connected_agents_get_new_intervals_after_many_more_have_joined() -> None:
    controller = Controller(framework="jax", facts=JobFacts(sizes={"worker": RoleSize(1000, 1000)}))
    sent: list[Command] = []
    join(controller, 0, sent.append)
    assert controller.intervals == Intervals(2.0, 0.2)
    for index in range(1, 400):
        join(controller, index, lambda _: None)
    async with asyncio.timeout(20):
        while not sent:
            await asyncio.sleep(0.005)
    assert sent == [Configure("uid-0", 2.0, 0.4)]


def join(controller: Controller, index: int, send: Callable[[Command], None]) -> None:
    identity = Identity(f"job-worker-{index}", f"uid-{index}", "worker", index, address="10.0.0.1")
    controller.register(identity)
    assert controller.connect(MemberConnected(identity.pod_uid), send) is not None
