"""Which members are marked as stragglers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from elasticjob_master.core import stragglers
from elasticjob_master.core.progress import Report
from elasticjob_master.core.rendezvous.members import Identity, Member
from hypothesis import given
from hypothesis import strategies as st

SECONDS = 60.0


class Workers:
    """Workers that report once a second; how long their steps take is said every time."""

    def __init__(self, count: int, *, alone: bool = False) -> None:
        """Make some.

        `alone`: they report the time of their own work, and all wait for the slowest.
        """
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
        """Let them train; a step takes 1 s unless `times` says otherwise.

        Return who is a straggler then.
        """
        took = {n: (times or {}).get(n, 1.0) for n in range(len(self.members))}
        for _ in range(seconds):
            self.now += 1.0
            for n, member in enumerate(self.members):
                if n not in silent:
                    whole = max(took.values()) if self.alone else took[n]
                    own = took[n] if self.alone else 0.0
                    report = Report(self.round, 1, seconds=whole, steps=1, compute_seconds=own)
                    member.step_times.add(report, 1, self.now)
            self.changes += len(
                stragglers.update_stragglers(
                    self.members, factor=2.0, seconds=SECONDS, now=self.now
                )
            )
        return [member.identity.pod_name for member in self.members if member.step_times.straggler]


def test_who_is_slow_for_long_is_a_straggler_and_one_that_recovers_is_none() -> None:
    workers = Workers(4)
    assert workers.train(55, {2: 3.0}) == []
    assert workers.train(30, {2: 3.0}) == ["worker-2"]
    assert workers.train(55) == ["worker-2"], "not at once"
    assert workers.train(40) == []


def test_a_short_slowness_is_none() -> None:
    workers = Workers(4)
    for _ in range(10):
        assert workers.train(30, {1: 5.0}) == []
        assert workers.train(60) == []


@pytest.mark.guarantee("straggler-reported")
def test_members_that_wait_for_each_other_are_distinguished_by_their_own_work() -> None:
    assert Workers(4, alone=True).train(90, {3: 2.5}) == ["worker-3"]


def test_where_nobody_reports_its_own_work_all_take_as_long_as_the_slowest_and_nobody_is_blamed() -> (
    None
):
    workers = Workers(4)
    assert workers.train(200, dict.fromkeys(range(4), 2.5)) == []


def test_of_two_nobody_can_say_which_is_the_slow_one() -> None:
    assert Workers(2).train(200, {1: 10.0}) == []


def test_another_roles_members_are_not_compared_with() -> None:
    workers = Workers(6)
    for member in workers.members[4:]:
        member.identity = Identity(member.identity.pod_name, member.uid, "evaluator", 0)
    assert workers.train(200, {4: 10.0, 5: 10.0}) == []


def test_the_start_up_of_a_new_round_makes_nobody_a_straggler_and_keeps_who_is_one() -> None:
    workers = Workers(4)
    assert workers.train(90, {0: 3.0}) == ["worker-0"]
    for process_round in range(2, 8):
        workers.round = process_round
        assert workers.train(1, {3: 500.0}) == ["worker-0"]
        assert workers.train(20, {0: 3.0}) == ["worker-0"]


def test_silence_neither_makes_a_straggler_nor_ends_one() -> None:
    workers = Workers(4)
    assert workers.train(40, {1: 3.0}) == []
    assert workers.train(200, {1: 3.0}, silent=(1,)) == []
    assert workers.train(90, {1: 3.0}) == ["worker-1"]
    assert workers.train(200, silent=(1,)) == ["worker-1"]


@pytest.mark.guarantee("straggler-reported")
@given(st.lists(st.lists(st.floats(0.1, 20.0), min_size=5, max_size=5), min_size=1, max_size=40))
def test_marks_change_at_most_once_in_the_time_the_job_says(times: list[list[float]]) -> None:
    workers = Workers(5)
    for turn in times:
        workers.train(10, dict(enumerate(turn)))
    assert workers.changes <= 5 * (10 * len(times) / SECONDS)


@given(st.lists(st.floats(1.0, 1.9), min_size=3, max_size=20), st.integers(1, 20))
def test_differences_within_the_factor_are_nobodys_fault(times: list[float], turns: int) -> None:
    workers = Workers(len(times))
    for _ in range(turns):
        assert workers.train(20, dict(enumerate(times))) == []
