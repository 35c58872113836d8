"""Checks progress and speed with pauses, bursts of reports, slow starts and changes of speed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from elasticjob_api.step_report import StepReport
from elasticjob_master.core.progress import Progress, format_eta, format_rate, format_steps
from hypothesis import given
from hypothesis import strategies as st

SAMPLES = 32.0


class Member:
    """A member that trains. A step takes `step_seconds`."""

    def __init__(self, uid: str = "a", process_round: int = 1) -> None:
        self.progress = Progress()
        self.uid = uid
        self.round = process_round
        self.now = 1000.0
        self.step = 0

    def train(self, step_seconds: Iterable[float]) -> None:
        """Finish a step after each of these times."""
        for seconds in step_seconds:
            self.report(1, seconds)

    def report(self, steps: int, seconds: float, *, late: float = 0.0) -> None:
        """StepReport several steps together, some time after they are done."""
        self.step += steps
        self.now += seconds + late
        report = StepReport(self.round, self.step, 1_000_000, SAMPLES * steps, seconds, steps=steps)
        self.progress.add_report(self.uid, report, now=self.now, wall=self.now)

    @property
    def rate(self) -> float:
        """The rate in samples per second."""
        return self.progress.samples_per_second(self.now)


@given(
    st.floats(0.002, 30.0),
    st.lists(st.tuples(st.integers(1, 100), st.floats(0, 60)), min_size=1, max_size=30),
)
def test_a_steady_rate_is_measured_exactly_from_merged_and_delayed_reports(
    step_seconds: float, reports: list[tuple[int, float]]
) -> None:
    member = Member()
    for steps, late in reports:
        member.report(steps, steps * step_seconds, late=late)
    now = member.now
    assert member.progress.samples_per_second(now) == pytest.approx(SAMPLES / step_seconds)
    assert member.progress.steps_per_second(now) == pytest.approx(1 / step_seconds)
    eta = member.progress.eta_seconds(now)
    if len(reports) == 1:
        assert eta is None, (
            "the first report contains the start-up, so it says nothing of the time to go"
        )
    else:
        assert eta == pytest.approx((1_000_000 - member.step) * step_seconds)


@given(st.floats(0.01, 2.0), st.floats(15.0, 100_000.0), st.integers(2, 50), st.integers(0, 50))
def test_a_pause_changes_neither_the_rate_nor_the_remaining_time(
    step_seconds: float, pause: float, before: int, after: int
) -> None:
    member = Member()
    member.train([step_seconds] * before)
    member.train([pause + step_seconds])
    member.train([step_seconds] * after)
    assert member.rate == pytest.approx(SAMPLES / step_seconds)
    eta = member.progress.eta_seconds(member.now)
    assert eta == pytest.approx((1_000_000 - member.step) * step_seconds)


@given(st.floats(0.01, 2.0), st.floats(20.0, 5000.0), st.integers(1, 20))
def test_the_second_step_replaces_a_slow_first_one(
    step_seconds: float, compiling: float, more: int
) -> None:
    member = Member()
    member.train([compiling, *[step_seconds] * more])
    assert member.rate == pytest.approx(SAMPLES / step_seconds)


@given(st.floats(0.01, 10.0), st.floats(0.01, 10.0))
def test_a_new_rate_is_measured_within_half_a_minute_of_training(
    before: float, after: float
) -> None:
    member = Member()
    member.train([before] * 30)
    steps = max(20, int(30 / after))
    member.train([after] * steps)
    assert member.rate == pytest.approx(SAMPLES / after, rel=0.05)


def test_a_much_lower_rate_is_measured_from_its_second_report() -> None:
    member = Member()
    member.train([0.1] * 100)
    member.train([60.0])
    assert member.rate == pytest.approx(SAMPLES / 0.1), "one may be a pause"
    member.train([60.0])
    assert member.rate == pytest.approx(SAMPLES / 60.0)


@given(st.lists(st.floats(0.002, 300.0), min_size=1, max_size=60))
def test_the_rate_stays_within_the_reported_rates(times: list[float]) -> None:
    member = Member()
    for seconds in times:
        member.report(1, seconds)
        if member.rate:
            assert SAMPLES / max(times) * 0.999 <= member.rate <= SAMPLES / min(times) * 1.001


def test_a_new_world_discards_the_old_rate() -> None:
    member = Member()
    member.train([0.1] * 50)
    member.round = 2
    member.step = 40
    member.train([45.0, 0.2, 0.2])
    assert member.rate == pytest.approx(SAMPLES / 0.2)


def test_a_burst_of_reports_without_seconds_does_not_raise_the_rate() -> None:
    progress = Progress()
    for second in range(30):
        progress.add_report("a", StepReport(1, second + 1, 0, SAMPLES), now=float(second), wall=0.0)
    for step in range(31, 51):  # twenty seconds of a cut network, reported at once
        progress.add_report("a", StepReport(1, step, 0, SAMPLES), now=49.0, wall=0.0)
    assert progress.samples_per_second(49.0) <= SAMPLES * 1.1


def test_only_a_new_step_of_a_member_counts_as_finished() -> None:
    progress = Progress()

    def counts(uid: str, step: int, process_round: int = 1) -> bool:
        return progress.add_report(
            uid, StepReport(process_round, step, seconds=1.0), now=1.0, wall=1.0
        )

    assert not counts("a", 0), "it has only begun"
    assert counts("a", 1)
    assert not counts("a", 1), "the same again"
    assert counts("b", 1), "a member with a count of its own"
    assert counts("a", 1, 2), "a world that went back to its checkpoint"
    assert not counts("b", 2, 1), "what is left of the world before"


def test_the_rate_is_the_sum_over_members_and_a_burst_counts_for_the_time_it_covers() -> None:
    progress = Progress()
    for step in range(1, 21):
        for uid in ("a", "b"):
            report = StepReport(round=1, step=step, total_steps=100, samples=50, seconds=0.5)
            progress.add_report(
                uid, report, now=7.0, wall=1.0
            )  # all at one moment, as after a reconnection
    assert progress.samples_per_second(7.0) == pytest.approx(200.0)
    assert progress.eta_seconds(7.0) == pytest.approx(40.0, rel=0.1)
    assert progress.samples == 2000


def test_silent_members_do_not_count() -> None:
    progress = Progress()
    progress.add_report("a", StepReport(1, 1, 10, 5, 0.5), now=0.0, wall=1.0)
    assert progress.samples_per_second(1.0) > 0
    assert progress.samples_per_second(100.0) == 0
    assert progress.eta_seconds(100.0) is None


def test_a_new_round_may_continue_from_an_earlier_step_and_late_reports_do_not_count() -> None:
    progress = Progress()
    progress.add_report("a", StepReport(1, 50, 100, 5, 0.5), now=0.0, wall=1.0)
    progress.add_report("a", StepReport(2, 41, 100, 5, 0.5), now=1.0, wall=2.0)
    progress.add_report("b", StepReport(1, 51, 100, 5, 0.5), now=1.0, wall=2.0)
    assert (progress.step, progress.samples) == (41, 15)


@given(st.floats(), st.floats(), st.integers(-1, 2**70))
def test_numbers_stay_finite_for_any_report(samples: float, seconds: float, step: int) -> None:
    progress = Progress()
    report = StepReport(1, step, 10, samples, seconds, {"loss": samples})
    if report.validation_error() is None:
        progress.add_report("a", report, now=1.0, wall=1.0)
    assert math.isfinite(progress.samples_per_second(2.0))
    assert all(math.isfinite(value) for value in progress.metrics.values())


def test_an_error_names_field_value_and_bound() -> None:
    assert StepReport(1, -1).validation_error() == f"step is -1; it must be between 0 and {2**53}"
    assert "samples is nan" in str(StepReport(1, 1, samples=math.nan).validation_error())
    assert "at most 64" in str(
        StepReport(1, 1, metrics={str(n): 1.0 for n in range(65)}).validation_error()
    )
    assert StepReport(1, 1, 2, 3.0, 4.0, {"loss": math.nan}).validation_error() is None


def test_rates_are_shown_as_short_numbers() -> None:
    assert [format_rate(x) for x in (0.25, 950.4, 1234.0, 5.6e6)] == [
        "0.2/s",
        "950/s",
        "1.2k/s",
        "5.6M/s",
    ]
    assert [format_steps(3, 0), format_steps(3, 9)] == ["3", "3/9"]


def test_the_remaining_time_fits_into_a_column() -> None:
    times = (0, 59, 60, 3599, 3600, 86_399, 86_400, 1_000_000_000)
    assert [format_eta(seconds) for seconds in times] == [
        "0s", "59s", "1m", "59m", "1h00m", "23h59m", "1d00h", "11574d01h",
    ]  # fmt: skip
