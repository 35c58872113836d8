"""Step reports that wait for the master are merged."""

from __future__ import annotations

from random import Random

import pytest
from elasticjob_agent.step_reports import MAX_ROUNDS, PendingReports
from elasticjob_api.limits import MAX_METRICS
from elasticjob_api.step_report import StepReport
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1000), st.floats(0, 10)), max_size=50))
def test_merged_reports_keep_the_newest_step_and_all_samples(
    reports: list[tuple[int, int, float]],
) -> None:
    pending = PendingReports()
    for round_, step, samples in reports:
        pending.add(StepReport(round=round_, step=step, samples=samples))
    taken = {}
    while (report := pending.take()) is not None:
        taken[report.round] = report
    assert {n: report.step for n, report in taken.items()} == {
        n: max(step for round_, step, _ in reports if round_ == n)
        for n in {round_ for round_, _, _ in reports}
    }
    assert sum(report.samples for report in taken.values()) == pytest.approx(
        sum(samples for _, _, samples in reports)
    )


def test_waiting_reports_are_bounded_and_the_newest_round_stays() -> None:
    pending = PendingReports()
    for round_ in range(100):
        pending.add(StepReport(round=round_, step=round_))
    assert len(pending) == MAX_ROUNDS
    assert [pending.take() for _ in range(MAX_ROUNDS)][-1] == StepReport(round=99, step=99)


@given(
    st.lists(
        st.dictionaries(st.integers(0, 200).map(str), st.floats(0, 1), max_size=64), max_size=6
    )
)
def test_merged_reports_keep_a_bounded_number_of_metrics_and_all_of_the_newest(
    reports: list[dict[str, float]],
) -> None:
    pending = PendingReports()
    for metrics in reports:
        pending.add(StepReport(round=1, step=1, metrics=metrics))
    report = pending.take()
    if report is not None:
        assert len(report.metrics) <= MAX_METRICS
        assert report.metrics.items() >= reports[-1].items()


def train(
    pending: PendingReports, step: int, process: int, *, compute: float = 0.0, steps: int = 1
) -> None:
    pending.add(
        StepReport(
            round=1,
            step=step,
            samples=8.0 * steps,
            seconds=0.5 * steps,
            steps=steps,
            compute_seconds=compute,
            local_rank=process,
            metrics={"process": process},
        )
    )


def take_all(pending: PendingReports) -> list[StepReport]:
    return list(iter(pending.take, None))


@pytest.mark.guarantee("several-processes-per-pod")
@given(st.integers(1, 4), st.integers(1, 20), st.data())
def test_samples_of_a_members_processes_add_up_and_its_steps_and_seconds_count_once(
    processes: int, steps: int, data: st.DataObject
) -> None:
    pending = PendingReports()
    taken = []
    for step in range(1, steps + 1):
        for process in range(processes):
            train(pending, step, process)
            if data.draw(st.booleans(), label="sent now"):
                taken += take_all(pending)
    pending.processes_ended()
    taken += take_all(pending)
    assert max(report.step for report in taken) == steps
    assert sum(report.samples for report in taken) == 8 * steps * processes
    assert sum(report.steps for report in taken) == steps
    assert sum(report.seconds for report in taken) == steps / 2


@given(st.integers(2, 4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_steps_count_once_in_every_order_of_the_processes(
    processes: int, steps: int, random: Random
) -> None:
    pending = PendingReports()
    taken = []
    reported = dict.fromkeys(range(processes), 0)
    while ahead := [process for process, step in reported.items() if step < steps]:
        process = random.choice(ahead)
        reported[process] += 1
        train(pending, reported[process], process)
        if random.random() < 0.5:
            taken += take_all(pending)
    pending.processes_ended()
    taken += take_all(pending)
    assert sum(report.steps for report in taken) == steps
    assert sum(report.samples for report in taken) == 8 * steps * processes


def test_a_process_that_reports_rarely_changes_neither_steps_nor_time() -> None:
    pending = PendingReports()
    for step in range(1, 10):
        train(pending, step, 1)
    train(pending, 10, 0, steps=10)
    train(pending, 10, 1)
    report = pending.take()
    assert report is not None
    assert (report.steps, report.seconds, report.samples) == (10, 5.0, 160)


def test_the_time_of_saves_adds_up_whichever_process_leads() -> None:
    pending = PendingReports()
    train(pending, 1, 1)
    pending.add(StepReport(round=1, step=1, save_seconds=2.0, saved_bytes=7, local_rank=0))
    pending.add(StepReport(round=1, step=2, save_seconds=3.0, local_rank=0))
    report = pending.take()
    assert report is not None
    assert (report.save_seconds, report.saved_bytes) == (5.0, 7)


def test_another_process_leads_when_the_leader_is_silent() -> None:
    pending = PendingReports()
    train(pending, 1, 0)
    assert pending.take() is not None
    for step in range(2, 5):
        assert pending.take() is None
        train(pending, step, 1)
    report = pending.take()
    assert report is not None
    assert (report.step, report.steps, report.samples) == (4, 3, 24)


def test_the_slowest_process_says_how_long_a_member_computes() -> None:
    pending = PendingReports()
    train(pending, 1, 1, compute=0.4)
    train(pending, 1, 0, compute=0.1)
    report = pending.take()
    assert report is not None
    assert report.compute_seconds == 0.4
    assert report.metrics == {"process": 1}, "of one metric the leading process' value counts"


def test_a_report_that_could_not_be_sent_is_merged_with_what_follows() -> None:
    pending = PendingReports()
    for process in (0, 1):
        train(pending, 1, process)
    lost = pending.take()
    assert lost is not None
    pending.add(lost)
    for process in (0, 1):
        train(pending, 2, process)
    report = pending.take()
    assert report is not None
    assert (report.step, report.steps, report.samples, report.seconds) == (2, 2, 32, 1.0)
