"""Checks when training counts as stalled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from elasticjob_master.core.stall import (
    MOST_RESTARTS,
    StallDetector,
    StallRule,
    StoredStall,
    TrainingActivity,
)
from hypothesis import given
from hypothesis import strategies as st

EPOCH = 1_700_000_000.0


class Training:
    """A world that finishes steps, and a master that checks every second."""

    def __init__(self, rule: StallRule | None = None) -> None:
        self.rule = rule or StallRule(factor=10, seconds=60)
        self.stall = StallDetector(round=1)
        self.now = 0.0
        self.round = 1
        self.activity: TrainingActivity = "training"
        self.restarted: list[float] = []

    @property
    def wall(self) -> float:
        return EPOCH + self.now

    def wait(self, seconds: float) -> None:
        """Let time pass without a step."""
        for _ in range(int(seconds)):
            self.now += 1.0
            due = self.stall.advance(
                self.now,
                self.wall,
                activity=self.activity,
                process_round=self.round,
                rule=self.rule,
            )
            if due:
                self.restarted.append(self.now)
                self.round += 1

    def step(self, seconds: float = 1.0) -> bool:
        """Finish a step; return whether it ends a stall."""
        return self.stall.step_finished(seconds, self.wall, process_round=self.round)

    def train(self, steps: int, seconds: float = 1.0) -> None:
        for _ in range(steps):
            self.wait(seconds)
            self.step(seconds)

    @property
    def stalled(self) -> bool:
        return self.stall.since is not None


def test_the_configured_time_without_a_step_is_a_stall_until_the_next_step() -> None:
    training = Training()
    training.train(20)
    last = training.wall
    training.wait(60)
    assert not training.stalled
    training.wait(1)
    assert training.stall.since == last
    training.wait(1000)
    assert training.stall.since == last, "it stays what it was"
    assert training.step()
    assert not training.stalled


def test_the_factor_decides_if_steps_take_long() -> None:
    training = Training()
    training.train(5, seconds=30)
    training.wait(300)
    assert not training.stalled
    training.wait(1)
    assert training.stalled


def test_time_before_a_step_is_not_counted_after_it() -> None:
    training = Training(StallRule(factor=2, seconds=1))
    training.train(20)
    training.now += 0.7
    training.step()
    training.now += 0.7
    training.stall.advance(
        training.now,
        training.wall,
        activity="training",
        process_round=training.round,
        rule=training.rule,
    )
    assert training.stall.idle == pytest.approx(0.7)
    assert not training.stalled


def test_a_job_cannot_stall_before_its_first_step() -> None:
    training = Training()
    training.wait(100_000)
    assert not training.stalled


def test_the_first_step_of_a_round_may_take_longer() -> None:
    training = Training()
    training.wait(100)
    training.train(10)
    training.round = 2
    training.wait(300)
    assert not training.stalled, "the first one took 100 s, so three times that are granted"
    training.wait(10)
    assert training.stalled


def test_a_step_before_the_first_look_at_a_new_world_is_its_first_step() -> None:
    training = Training()
    training.train(20)
    training.round = 2
    training.step()
    training.wait(61)
    assert training.stalled, "it is not the first step that is waited for"


@pytest.mark.guarantee("training-hangs")
@pytest.mark.parametrize("activity", ["paused", "finished"])
def test_time_in_which_no_member_could_finish_a_step_does_not_count(
    activity: TrainingActivity,
) -> None:
    training = Training()
    training.train(20)
    for _ in range(20):
        training.wait(50)
        training.activity = activity
        training.wait(500)
        training.activity = "training"
        training.step()
    assert not training.stalled


def test_interruptions_do_not_hide_a_stall() -> None:
    training = Training()
    training.train(20)
    for _ in range(7):
        training.wait(9)
        training.activity = "paused"
        training.wait(20)
        training.activity = "training"
    assert training.stalled


def test_time_in_which_the_master_was_suspended_does_not_count() -> None:
    training = Training()
    training.train(20)
    training.now += 10_000
    training.wait(50)
    assert not training.stalled


def test_the_end_of_the_training_is_not_a_stall() -> None:
    training = Training()
    training.train(20)
    training.wait(100)
    assert training.stalled
    training.activity = "finished"
    training.wait(1)
    assert not training.stalled


@given(st.lists(st.floats(0.1, 50.0), min_size=2, max_size=60))
def test_training_never_stalls_while_each_step_is_within_the_limit(times: list[float]) -> None:
    training = Training()
    for seconds in times:
        training.wait(seconds)
        assert not training.stalled
        training.step(seconds)


def test_a_pause_hardly_changes_the_usual_step_time() -> None:
    training = Training(StallRule(factor=10, seconds=1))
    training.train(50, seconds=2)
    before = training.stall.limit(training.rule)
    training.step(100_000.0)
    assert training.stall.limit(training.rule) <= 1.5 * before


@pytest.mark.guarantee("training-hangs")
def test_restarts_have_growing_pauses_and_a_limit() -> None:
    training = Training(StallRule(factor=10, seconds=60, restart=True))
    training.train(20)
    training.wait(20_000)
    assert len(training.restarted) == MOST_RESTARTS
    waits = [b - a for a, b in pairwise(training.restarted)]
    assert all(longer > shorter * 1.9 for shorter, longer in pairwise(waits)), waits
    assert training.stalled, "it still is: no step has come"


def test_a_long_time_of_training_resets_the_number_of_restarts() -> None:
    training = Training(StallRule(factor=10, seconds=60, restart=True))
    training.train(20)
    training.wait(61)
    assert training.stall.restarts == 1
    training.train(300)
    assert training.stall.restarts == 1, (
        "a job that hangs again and again is not restarted for ever"
    )
    training.train(400)
    assert training.stall.restarts == 0


@pytest.mark.parametrize("away", [0, 10_000])
def test_a_new_master_gives_members_time_to_report_earlier_steps(away: int) -> None:
    training = Training()
    training.train(20)
    training.wait(55)
    old = training.stall
    training.stall = StallDetector()
    training.now += away
    training.stall.restore(old.stored(), process_round=1, stepped_in_round=True, wall=training.wall)
    training.wait(9)
    assert not training.stalled
    training.wait(3)
    assert training.stalled


def test_a_new_master_knows_an_earlier_stall_and_its_restarts() -> None:
    stall = StallDetector()
    stored = StoredStall(EPOCH, since=EPOCH, restarts=MOST_RESTARTS, restarted_at=EPOCH)
    stall.restore(stored, process_round=3, stepped_in_round=False, wall=EPOCH + 100)
    rule = StallRule(restart=True)
    due = [
        stall.advance(float(n), EPOCH + n, activity="training", process_round=3, rule=rule)
        for n in range(5000)
    ]
    assert not any(due)
    assert stall.since == EPOCH
