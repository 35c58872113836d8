"""The page about a job, and the tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from elasticjob_api.elasticjob import (
    ElasticJob,
    ElasticJobSpec,
    ElasticJobStatus,
    Failure,
    Progress,
    ReplicaSpec,
)
from elasticjob_api.meta import Condition, ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.common.formatting import format_age
from elasticjob_cli.jobs.describe import page as page_about
from elasticjob_cli.jobs.listing import jobs_table
from elasticjob_client.jobs import read
from elasticjob_client.members import JobPod
from elasticjob_client.related import Event, Regarding
from msgspec.structs import replace

from tests.support.shown import shown

NOW = 1_800_000_000.0
TIME = "2027-01-15T07:58:00Z"
"""Two minutes before."""
JOB = ElasticJob(
    metadata=ObjectMeta(name="digits", namespace="ml", creation_timestamp=TIME),
    spec=ElasticJobSpec(
        framework="pytorch",
        replica_specs={"worker": ReplicaSpec(template={}, replicas=2, max_replicas=4)},
    ),
    status=ElasticJobStatus(
        phase="Running",
        workers="1/2",
        restarts=3,
        message="waits for 1 worker",
        progress=Progress(
            step=120,
            steps="120/1000",
            rate="35.1/s",
            eta_seconds=61,
            eta="1m",
            metrics={"loss": 0.25},
        ),
        failures=[
            Failure(
                pod="digits-worker-1",
                reason="Error",
                exit_code=1,
                message="no luck",
                finished_at=TIME,
            )
        ],
    ),
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "creationTimestamp": TIME}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, ""),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1",
                    }
                ]
            },
            "Unschedulable: 0/1",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no\n such"}}}
                ]
            },
            "ImagePullBackOff: no\n such",
        ),
        (
            {
                "initContainerStatuses": [
                    {"state": {"terminated": {"reason": "Error", "exitCode": 2}}}
                ]
            },
            "Error, exit code 2",
        ),
        ({"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, ""),
        ({"reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        ({}, ""),
    ],
)
def test_a_pod_that_does_not_run_says_why_in_the_clusters_words(
    status: dict[str, Any], why: str
) -> None:
    assert read(pod(**status), JobPod).why_not_running == why


def test_a_pod_that_the_scheduler_holds_for_its_gang_says_how_many_there_must_be() -> None:
    held = pod(phase="Pending")
    ended = pod(phase="Failed")
    for each in (held, ended):
        each["spec"] = {"schedulingGroup": {"podGroupName": "digits"}}
    role = replace(JOB.spec.replica_specs["worker"], min_replicas=2)
    job = replace(JOB, spec=replace(JOB.spec, replica_specs={"worker": role}))
    why = "waits for its gang: the scheduler starts 3 pods of the job together, and 1 exist"
    assert shown(page_about(job, [held, ended], [], [], NOW), width=200).count(why) == 1
    seen = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    held["status"]["conditions"] = [seen]
    page = shown(page_about(job, [held], [], [], NOW), width=200)
    assert "waits for its gang" not in page
    assert "Unschedulable: full" in page


def test_a_page_has_plans_failures_and_events() -> None:
    wanted = ScalePlanSpec(job_name="digits", reason="faster")
    plans = [
        ScalePlan(metadata=ObjectMeta(name=name), spec=wanted, status=status)
        for name, status in (
            ("grow", ScalePlanStatus(phase="Executing", waiting_for="1 new pod")),
            ("past", ScalePlanStatus(phase="Succeeded")),
        )
    ]
    about = Regarding(kind="Pod", name="digits-worker-1")
    events = [
        Event(
            type="Warning", reason="BackOff", note=f"number {n}.", event_time=TIME, regarding=about
        )
        for n in range(30)
    ]
    member = pod(phase="Pending")
    member["metadata"]["uid"] = "u-1"
    page = shown(page_about(JOB, [member], plans, events, NOW, ranks={"u-1": 17}), width=120)
    assert re.search(r"^a +17 +Pending", page, re.MULTILINE), page
    for text in (
        "ml/digits",
        "Running: waits for 1 worker",
        "120/1000, 35.1/s, 1m 01s to go",
        "loss 0.25",
        "1 to 4",
    ):
        assert text in page, page
    for text in (
        "grow",
        "1 new pod",
        "faster",
        "no luck",
        "Error, exit code 1",
        "Restart",
        "number 29.",
    ):
        assert text in page, page
    assert "past" not in page
    assert "number 9." not in page, "only the last events are shown"


@pytest.mark.guarantee("cause-comes-first")
@pytest.mark.parametrize("error_first", [True, False], ids=["today's", "of 0.1.0"])
def test_a_page_has_each_traceback_once_and_elsewhere_only_its_error(error_first: bool) -> None:
    error = "ValueError: no luck"
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{error}'
    why = f"worker 0 failed: exit code 1: {f'{error}{chr(10)}' if error_first else ''}{trace}"
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": trace}}
    members = [pod(phase="Failed", containerStatuses=[{"state": ended}]) for _ in range(2)]
    job = replace(
        JOB,
        status=replace(
            JOB.status,
            phase="Failed",
            message=why,
            conditions=[Condition(type="Failed", status="True", reason="Failed", message=why)],
            failures=[Failure(pod="digits-worker-0", message=error, finished_at=TIME)],
        ),
    )
    cut = " ".join(why[-80:].split())
    events = [Event(note=f"{note}; restartLimit 0 is used up") for note in (why, cut)]
    page = shown(page_about(job, members, [], events, NOW), width=1000)
    assert page.count("Traceback") == page.count("File ") == 1, page
    if error_first:
        assert "Failed: worker 0 failed: exit code 1: ValueError: no luck Traceback" in page
    else:
        assert page.count(f"exit code 1: {error}") == 4, page
        assert page.count(f"{error}; restartLimit 0 is used up") == 2, page


@pytest.mark.guarantee("cause-comes-first")
def test_an_error_with_the_rest_of_a_cut_traceback_is_shown_without_that_rest() -> None:
    error = "ValueError: no luck"
    words = f'{error}\n    raise ValueError("no luck")\n{error}'
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": words}}
    member = pod(phase="Failed", containerStatuses=[{"state": ended}])
    failures = [Failure(pod="digits-worker-0", message=error, finished_at=TIME)]
    job = replace(JOB, status=replace(JOB.status, failures=failures))
    events = [Event(note=f"{error} was all"), Event(note="elsewhere")]
    page = shown(page_about(job, [member], [], events, NOW), width=1000)
    assert f"Error, exit code 1: {error}" in page
    assert "raise" not in page
    assert f"{error} was all" in page
    assert "elsewhere" in page


def test_totals_and_progress_have_the_time_of_which_they_are() -> None:
    reported = Progress(step=120, steps="120/1000", last_report_time=TIME)
    job = replace(JOB, status=replace(JOB.status, progress=reported))
    stored = job_pb2.StoredAnswers(time=NOW - 12, report=job_pb2.Report(member_hours=1.5))
    page = shown(page_about(job, [], [], [], NOW, stored), width=120)
    assert re.search(r"^Progress .* as of 2m ago *$", page, re.MULTILINE), page
    assert re.search(r"^Totals +as of 12s ago *\nGoodput ", page, re.MULTILINE), page


def test_the_list_fits_80_columns_without_cutting_words() -> None:
    text = shown(jobs_table([JOB], NOW, all_namespaces=True, wide=False), width=80)
    assert text.split() == [
        "NAMESPACE", "NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE",
        "ml", "digits", "Running", "1/2", "120/1000", "35.1/s", "1m", "3", "2m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (200_000, "2d"),
        (-5, "0s"),
    ],
)
def test_an_age_has_two_digits_or_three(seconds: float, age: str) -> None:
    assert format_age("2027-01-15T08:00:00Z", NOW + seconds) == age
