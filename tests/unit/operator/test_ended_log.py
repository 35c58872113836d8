"""Tests that the operator logs a JSON line for each ended pod and job, even a deleted one."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.ended_log import EndedLog

OWNER = {
    "apiVersion": names.API_VERSION,
    "kind": "ElasticJob",
    "name": "job",
    "uid": "j",
    "controller": True,
}


def pod(name: str = "job-worker-1-4", **ends: Any) -> Pod:
    """Return a pod whose training container runs, or has ended."""
    state = {"terminated": ends} if ends else {"running": {}}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ns", "uid": "p", "ownerReferences": [OWNER],
                "labels": {names.LABEL_ROLE: "edited"},
                "annotations": {names.ANNOTATION_RESTARTS: "2"},
            },
            "spec": {"containers": [{"name": "train"}], "nodeName": "node-1"},
            "status": {"containerStatuses": [{"name": "train", "state": state}]},
        },
        Pod,
    )  # fmt: skip


def job(phase: str | None, retries: int = 0, **status: Any) -> ElasticJob:
    body = {
        "metadata": {
            "name": "job",
            "namespace": "ns",
            "uid": "j",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"phase": phase, "retries": retries, **status},
    }
    return msgspec.convert(body, ElasticJob)


class Written:
    """A log and its lines."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.log = EndedLog(self.stream, time.time)

    @property
    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_the_line_of_a_pod_has_its_member_node_times_and_end() -> None:
    written = Written()
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z"}
    written.log.pod_changed(
        pod(), pod(exitCode=139, reason="Error", message="first\nlast\n", **times)
    )
    assert written.lines == [
        {
            "kind": "Pod", "namespace": "ns", "job": "job", "jobUid": "j", "uid": "p",
            "role": "worker", "index": 1, "attempt": 2, "pod": "job-worker-1-4",
            "node": "node-1", "container": "train", "exitCode": 139, "signal": 11,
            "reason": "Error", "message": "first\nlast", **times,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, pod(), []),
        (pod(), pod(), []),
        (pod(), pod(exitCode=0, reason="Completed"), [(0, "Completed")]),
        (None, pod(exitCode=1, reason="Error"), [(1, "Error")]),
        (pod(exitCode=1, reason="Error"), pod(exitCode=1, reason="Error"), []),
        (pod(exitCode=1, reason="Error"), None, []),
        (pod(), None, [(None, "Deleted")]),
        (None, pod("stranger", exitCode=1), []),
    ],
)
def test_a_pod_has_one_line_when_it_ends(
    before: Pod | None, after: Pod | None, said: list[Any]
) -> None:
    written = Written()
    written.log.pod_changed(before, after)
    assert [(line.get("exitCode"), line["reason"]) for line in written.lines] == said


STOPPED = {
    "type": "Failed",
    "status": "True",
    "reason": "Stopped",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, job("Running"), []),
        (job("Running"), job("Succeeded"), [("Succeeded", "Succeeded")]),
        (job("Running"), job("Stopped", conditions=[STOPPED]), [("Stopped", "Stopped")]),
        (job("Failed"), job("Failed"), []),
        (None, job("Failed"), [("Failed", "Failed")]),
        (job("Running"), job("Retrying", 1), [("Retrying", "Retrying")]),
        (job("Retrying", 1), job("Retrying", 1), []),
        (job("Retrying", 1), job("Pending", 1), []),
        (job("Retrying", 1), job("Stopped", 1, conditions=[STOPPED]), [("Stopped", "Stopped")]),
        (job("Running"), None, [("Running", "Deleted")]),
        (job(None), None, [("New", "Deleted")]),
        (job("Succeeded"), None, []),
    ],
)
def test_a_job_has_one_line_when_it_or_one_of_its_attempts_ends(
    before: ElasticJob | None, after: ElasticJob | None, said: list[Any]
) -> None:
    written = Written()
    written.log.custom_changed(before, after)
    assert [(line["phase"], line["reason"]) for line in written.lines] == said


def test_the_line_of_a_job_has_steps_restarts_and_members() -> None:
    written = Written()
    after = job(
        "Succeeded", restarts=3, progress={"step": 70, "totalSteps": 70}, message="x" * 5000,
        startTime="2026-01-01T00:00:01Z", completionTime="2026-01-01T02:00:00Z",
        replicaStatuses={"worker": {"desired": 2, "succeeded": 2}},
    )  # fmt: skip
    written.log.custom_changed(job("Running"), after)
    (line,) = written.lines
    assert len(line.pop("message")) == 1024
    assert line == {
        "kind": "Job", "namespace": "ns", "job": "job", "uid": "j",
        "phase": "Succeeded", "reason": "Succeeded", "createdAt": "2026-01-01T00:00:00Z",
        "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T02:00:00Z",
        "restarts": 3, "uncountedRestarts": 0, "retries": 0, "step": 70, "totalSteps": 70,
        "members": {"worker": {"desired": 2, "succeeded": 2, "failed": 0}},
    }  # fmt: skip


@pytest.mark.guarantee("log-of-ended-jobs")
def test_a_closed_output_ends_the_log_without_an_error() -> None:
    written = Written()
    written.stream.close()
    for _ in range(2):
        written.log.pod_changed(pod(), pod(exitCode=1))
    assert written.log.stream is None
