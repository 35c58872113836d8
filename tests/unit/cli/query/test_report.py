"""Report and history are shown to people, and as CSV."""

from __future__ import annotations

import csv
import io

from elasticjob_api.v1 import job_pb2
from elasticjob_cli.query.report import history_csv, render_history, render_report

from tests.support.shown import shown_lines


def report() -> job_pb2.Report:
    found = job_pb2.Report(
        began=1.7e9, step=480, total_steps=480, samples=9600,
        mean_samples_per_second=4.0, goodput=0.8, member_hours=1.5, cpu_hours=2.25, gpu_hours=6.0,
        worlds=3, masters=2, metrics={"loss": 0.125},
    )  # fmt: skip
    found.time.training = 2400
    found.time.starting = 600
    found.time.suspended = 7200
    found.outcome.phase = "Succeeded"
    found.outcome.message = "all is trained"
    found.outcome.completed = 1.7e9 + 4000
    found.outcome.restarts = 1
    found.outcome.failures.add(
        time=1.7e9, pod="digits-worker-1", reason="OOMKilled", action="Restart", message="bye"
    )
    return found


def test_a_report_shows_the_spent_time_and_the_failures_of_pods() -> None:
    shown = shown_lines(render_report(report()))
    for line in (
        "Result Succeeded: all is trained",
        "Began 2023-11-14T22:13:20Z",
        "Ended 2023-11-14T23:20:00Z",
        "Steps 480/480",
        "Samples 9600, 4 a second of training",
        "Goodput 80 % of 50m 00s was training",
        "Hours 1.5 of members, 2.25 of CPUs used, 6 of GPUs",
        "Restarts 1, and 0 that do not count",
        "loss 0.125",
        "2023-11-14T22:13:20Z digits-worker-1 OOMKilled Restart bye",
    ):
        assert line in shown, shown
    assert (
        "Time 40m 00s training, 10m 00s starting and changing worlds, 2h 00m suspended"
        in " ".join(shown)
    )


def test_a_cost_is_shown_if_there_are_prices() -> None:
    found = report()
    assert not any(line.startswith("Cost") for line in shown_lines(render_report(found)))
    for amount, currency, shown in (
        (1234.567, "EUR", "Cost 1,234.57 EUR"),
        (0.00123456, "", "Cost 0.00123"),
        (0.0, "EUR", "Cost 0 EUR"),
    ):
        found.cost.amount = amount
        found.cost.currency = currency
        assert shown in shown_lines(render_report(found))


def test_advice_is_shown_if_there_is_some() -> None:
    assert "Advice" not in " ".join(shown_lines(render_report(report())))
    with_advice = report()
    with_advice.advice = "saving takes 9% of the training"
    assert "Advice saving takes 9% of the training" in shown_lines(render_report(with_advice))


def test_unknown_values_are_dashes() -> None:
    shown = shown_lines(render_report(job_pb2.Report(goodput=-1)))
    for line in (
        "Result -",
        "Began -",
        "Ended -",
        "Samples -",
        "Goodput -: no step was reported",
        "Time -",
    ):
        assert line in shown, shown


def test_a_program_that_reports_no_steps_is_not_shown_as_starting() -> None:
    without = job_pb2.Report(goodput=-1)
    without.time.starting = 600
    without.time.waiting = 60
    shown = " ".join(shown_lines(render_report(without)))
    assert "Time 10m 00s in worlds whose program reports no steps" in shown
    assert "1m 00s waiting for members" in shown
    assert "changing worlds" not in shown


def history() -> job_pb2.History:
    found = job_pb2.History()
    found.samples.add(
        time=10, round=1, world_size=2, step=5, samples_per_second=2.5, metrics={"loss": 0.5}
    )
    found.samples.add(
        time=30,
        round=2,
        world_size=3,
        step=9,
        samples_per_second=4,
        metrics={"loss": 0.25, "step": 7},
    )
    found.events.add(time=20, reason="WorldFormed", message='round 2, "larger"\x20[bold]')
    return found


def test_a_history_is_ordered_by_time_and_has_the_metrics() -> None:
    assert shown_lines(render_history(history())) == [
        "1970-01-01T00:00:10Z round 1, step 5, world of 2, 2.5 samples/s, loss 0.5",
        '1970-01-01T00:00:20Z WorldFormed round 2, "larger" [bold]',
        "1970-01-01T00:00:30Z round 2, step 9, world of 3, 4 samples/s, loss 0.25, step 7",
    ]


def test_a_history_as_csv_has_a_column_per_metric_with_unique_names() -> None:
    columns, *rows = csv.reader(io.StringIO(history_csv(history())))
    assert ",".join(columns) == (
        "time,round,worldSize,step,samplesPerSecond,loss,metric.step,event,message"
    )
    assert [row[1:] for row in rows] == [
        ["1", "2", "5", "2.5", "0.5", "", "", ""],
        ["", "", "", "", "", "", "WorldFormed", 'round 2, "larger" [bold]'],
        ["2", "3", "9", "4.0", "0.25", "7.0", "", ""],
    ]
    assert history_csv(job_pb2.History()).splitlines() == [
        "time,round,worldSize,step,samplesPerSecond,event,message"
    ]
