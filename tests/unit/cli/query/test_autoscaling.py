"""The auto-scaler's measurements and pauses are shown to people."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.query.autoscaling import render_autoscaling
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic
from elasticjob_client.answers import Master

from tests.support.shown import shown_lines

STATUS = TOPIC_QUERIES[Topic.STATUS]
YEAR_2030 = "2030-01-01T00:00:00Z"


def snapshot(known: job_pb2.Autoscaling) -> job_pb2.StoredAnswers:
    status = job_pb2.JobStatus(job_name="digits")
    return job_pb2.StoredAnswers(status=status, autoscaling=known)


def known(**more: Any) -> job_pb2.Autoscaling:
    sizes = [
        job_pb2.SizeBelief(
            size=4, samples_per_second=390.0, windows=3.5, relative_error=0.012, expected=391.0,
            expected_from=380.0, expected_to=400.0, too_small=0.98,
        ),
        job_pb2.SizeBelief(
            size=8, samples_per_second=700.0, windows=1.0, relative_error=0.03, expected=701.0,
            expected_from=690.0, expected_to=710.0, too_small=0.2, too_large=0.1,
        ),
        job_pb2.SizeBelief(
            size=64, expected=900.0, expected_from=500.0, expected_to=1200.0, too_large=0.99
        ),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "enabled": True, "role": "worker", "size": 8, "minimum": 1, "maximum": 64,
        "limit": "worker.maxReplicas", "window_part": 0.4, "decision_seconds": 180.0,
        "best_from": 7, "best_to": 12, "sizes": sizes, "decided": 1893456000.0,
        "node_members": 4,
        "reason": "8 members: 700.0 samples/s; unclear, measuring 8 again",
    }  # fmt: skip
    return job_pb2.Autoscaling(**values | more)


def test_people_see_what_each_size_means_for_the_objective() -> None:
    shown = known(objective="Deadline: finishTime 2030-01-01T02:00Z needs 612.3 samples/s")
    shown.sizes[1].means = "ends 2030-01-01T01:40Z, 20 min before finishTime"
    text = shown_lines(render_autoscaling(shown))
    assert "Objective Deadline: finishTime 2030-01-01T02:00Z needs 612.3 samples/s" in text
    assert "SIZE MEASURED WINDOWS ERROR EXPECTED BELIEVED TO BE MEANS" in text
    row = next(line for line in text if line.startswith("8 *"))
    assert row.endswith("about right (70 %) ends 2030-01-01T01:40Z, 20 min before finishTime")
    assert "MEANS" not in "".join(shown_lines(render_autoscaling(known()))), (
        "without an objective that means anything"
    )


def test_people_see_measurements_expectations_and_the_next_decision() -> None:
    shown = shown_lines(render_autoscaling(known()))
    for line in (
        "Auto-scaling on",
        "Sizes worker has 8, may have 1 to 64 (worker.maxReplicas)",
        "Best size 7 to 12, with a likelihood of at least 90 %",
        "Nodes have room for 4 members each, as the pods show",
        "Now measuring 8 members: 40 % of the window, the next decision in at most 3m 00s",
        "Decided 2030-01-01T00:00:00Z: 8 members: 700.0 samples/s; unclear, measuring 8 again",
        "4 390 samples/s 3.5 1.2 % 380 to 400 too small (98 %)",
        "8 * 700 samples/s 1.0 3.0 % 690 to 710 about right (70 %)",
        "64 - - - 500 to 1200 too large (99 %)",
    ):
        assert line in shown, shown


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_people_see_why_the_auto_scaler_waits() -> None:
    pauses = known(
        waiting_for="the end of the present ScalePlan", had_size=20,
        retry_time=1893456000.0, settled_size=8,
        resources_retry_time=1893456000.0, rescale_seconds=12.3, best_from=8, best_to=8,
        roles=[
            job_pb2.RoleUse(
                role="ps", cpu_cores=1.5, memory_bytes=1 << 30, remark="more CPU did not help"
            ),
            job_pb2.RoleUse(role="worker", cpu_cores=1.5),
        ],
    )  # fmt: skip
    shown = shown_lines(render_autoscaling(pauses))
    for line in (
        "Auto-scaling on, settled at 8",
        "Best size 8, with a likelihood of at least 90 %",
        "Now waits for the end of the present ScalePlan",
        f"Pause no more than 20 members could start; more are requested from {YEAR_2030} on",
        f"Pause a plan for CPU or memory has failed; the next one may follow from {YEAR_2030} on",
        "Rescale costs 12s of training",
        "ps 1.50 1Gi more CPU did not help",
    ):
        assert line in shown, shown
    assert not [line for line in shown if line.startswith("worker")], "nothing of it was changed"


def test_a_single_measured_size_has_no_expectation() -> None:
    one = job_pb2.SizeBelief(size=8, samples_per_second=700.0, windows=1.0, relative_error=0.03)
    shown = shown_lines(render_autoscaling(known(sizes=[one], best_from=0, best_to=0)))
    assert "8 * 700 samples/s 1.0 3.0 % - -" in shown
    assert not [line for line in shown if line.startswith("Best size")]


@pytest.mark.parametrize(
    "nothing", [job_pb2.Autoscaling(), job_pb2.Autoscaling(role="worker", size=2)]
)
def test_a_job_without_measurements_is_shown_without_the_auto_scaler(
    nothing: job_pb2.Autoscaling,
) -> None:
    assert not [
        line for line in shown_lines(STATUS.render(snapshot(nothing))) if "uto-scaling" in line
    ]
    assert shown_lines(render_autoscaling(nothing)) == [
        "Auto-scaling is off, and no size has been measured."
    ]


def test_an_auto_scaler_that_only_measures_is_shown() -> None:
    shown = shown_lines(STATUS.render(snapshot(known(enabled=False, decision_seconds=-1.0))))
    assert "Auto-scaling off, measures only" in shown
    assert "Now measuring 8 members: 40 % of the window" in shown
    found = json.loads(STATUS.as_json(snapshot(known())))["autoscaling"]
    assert (found["size"], found["windowPart"], len(found["sizes"])) == (8, 0.4, 3)


async def test_a_master_of_an_earlier_version_has_no_auto_scaler() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            endpoint: Any = SimpleNamespace(metadata=(), address="here")
            answer = await Master(endpoint, channel, "ns/job").autoscaling()
    finally:
        await server.stop(None)
    assert answer == job_pb2.Autoscaling()
