"""The page about a job, and the tables."""

from __future__ import annotations

import io
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
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_cli.jobs.description import describe
from elasticjob_cli.jobs.tables import format_age, jobs_table
from elasticjob_client.jobs import read
from elasticjob_client.members import JobPod
from elasticjob_client.related import Event, Regarding
from rich.console import Console, RenderableType

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


def shown(what: RenderableType, width: int = 80) -> str:
    screen = Console(width=width, file=io.StringIO())
    with screen.capture() as captured:
        screen.print(what)
    return captured.get()


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
            "ImagePullBackOff: no such",
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
    page = shown(describe(JOB, [member], plans, events, NOW, ranks={"u-1": 17}), width=120)
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


def test_the_list_fits_80_columns_without_cutting_words() -> None:
    text = shown(jobs_table([JOB], NOW, all_namespaces=True, wide=False))
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
