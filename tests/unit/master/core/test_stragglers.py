"""Checks which members are marked as stragglers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from elasticjob_api.step_report import StepReport
from elasticjob_master.core import stragglers
from elasticjob_master.core.rendezvous.members import Identity, Member
from hypothesis import given
from hypothesis import strategies as st

SECONDS = 60.0


class Workers:
    """Workers that report once a second."""

    def __init__(self, count: int, *, alone: bool = False) -> None:
        """Create workers. If `alone`, they wait for the slowest and report their own work."""
        self.alone = alone
        self.now = 0.0
        self.round = 1
        self.changes = 0
        self.members = [
            Member(Identity(f"worker-{n}", f"u{n}", "worker", n), n + 1, disconnected_since=None)
            for n in range(count)
        ]

    def train(
        self, seconds: int, times: Mapping[int, float] | None = None, silent: tuple[int, ...] = ()
    ) -> list[str]:
        """Let the workers train with these step times (default: 1 s); return the stragglers."""
        took = {n: (times or {}).get(n, 1.0) for n in range(len(self.members))}
        for _ in range(seconds):
            self.now += 1.0
            for n, member in enumerate(self.members):
                if n not in silent:
                    whole = max(took.values()) if self.alone else took[n]
                    own = took[n] if self.alone else 0.0
                    report = StepReport(self.round, 1, seconds=whole, steps=1, compute_seconds=own)
                    member.step_times.add(report, 1, self.now)
            self.changes += len(
                stragglers.update_stragglers(
                    self.members, factor=2.0, seconds=SECONDS, now=self.now
                )
            )
        return [member.identity.pod_name for member in self.members if member.step_times.straggler]


def test_a_member_is_a_straggler_while_it_is_slow() -> None:
    workers = Workers(4)
    assert workers.train(55, {2: 3.0}) == []
    assert workers.train(30, {2: 3.0}) == ["worker-2"]
    assert workers.train(55) == ["worker-2"], "not at once"
    assert workers.train(40) == []


def test_a_member_that_is_slow_for_a_short_time_is_not_a_straggler() -> None:
    workers = Workers(4)
    for _ in range(10):
        assert workers.train(30, {1: 5.0}) == []
        assert workers.train(60) == []


@pytest.mark.guarantee("straggler-reported")
def test_members_that_wait_for_each_other_are_distinguished_by_their_own_work() -> None:
    assert Workers(4, alone=True).train(90, {3: 2.5}) == ["worker-3"]


def test_no_member_is_marked_if_none_reports_its_own_work() -> None:
    workers = Workers(4)
    assert workers.train(200, dict.fromkeys(range(4), 2.5)) == []


def test_neither_of_two_members_is_marked() -> None:
    assert Workers(2).train(200, {1: 10.0}) == []


def test_members_of_different_roles_are_not_compared() -> None:
    workers = Workers(6)
    for member in workers.members[4:]:
        member.identity = Identity(member.identity.pod_name, member.uid, "evaluator", 0)
    assert workers.train(200, {4: 10.0, 5: 10.0}) == []


def test_the_start_of_a_new_round_marks_no_member_and_keeps_marks() -> None:
    workers = Workers(4)
    assert workers.train(90, {0: 3.0}) == ["worker-0"]
    for process_round in range(2, 8):
        workers.round = process_round
        assert workers.train(1, {3: 500.0}) == ["worker-0"]
        assert workers.train(20, {0: 3.0}) == ["worker-0"]


def test_silence_changes_no_mark() -> None:
    workers = Workers(4)
    assert workers.train(40, {1: 3.0}) == []
    assert workers.train(200, {1: 3.0}, silent=(1,)) == []
    assert workers.train(90, {1: 3.0}) == ["worker-1"]
    assert workers.train(200, silent=(1,)) == ["worker-1"]


@pytest.mark.guarantee("straggler-reported")
@given(st.lists(st.lists(st.floats(0.1, 20.0), min_size=5, max_size=5), min_size=1, max_size=40))
def test_marks_change_at_most_once_in_the_configured_time(times: list[list[float]]) -> None:
    workers = Workers(5)
    for turn in times:
        workers.train(10, dict(enumerate(turn)))
    assert workers.changes <= 5 * (10 * len(times) / SECONDS)


@given(st.lists(st.floats(1.0, 1.9), min_size=3, max_size=20), st.integers(1, 20))
def test_differences_within_the_factor_mark_no_member(times: list[float], turns: int) -> None:
    workers = Workers(len(times))
    for _ in range(turns):
        assert workers.train(20, dict(enumerate(times))) == []
