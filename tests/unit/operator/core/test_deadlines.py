"""Tests that a job that misses a deadline fails.

The message has the field, its value and why a pod is pending.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_operator.core.deadlines import check_deadlines
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods

START = 1_800_000_000.0


def deadline_result(
    policy: Json, *pods: Json, now: float, ready: int = 0, running: bool = False
) -> tuple[str | None, float | None]:
    """Return the message about a missed deadline, and the seconds until the next deadline.

    The job has two workers, of which one is enough, and `ready` of them are ready.
    """
    started = [{"type": "Running", "status": str(running)}]
    worker = {"template": {}, "replicas": 2, "minReplicas": 1}
    job = msgspec.convert(
        {
            "metadata": {"name": "j", "uid": "u"},
            "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}, "runPolicy": policy},
            "status": {
                "startTime": format_time(START),
                "conditions": started,
                "replicaStatuses": {"worker": {"desired": 2, "indices": "0-1", "ready": ready}},
            },
        },
        ElasticJob,
    )
    observed = Observed(job=job, pods=Pods(msgspec.convert(pod, Pod) for pod in pods))
    failure, left = check_deadlines(observed, job.status, now)
    return failure.message if failure else None, left


def pending(name: str, *, created: float, role: str = "worker", **status: Any) -> Json:
    metadata = {"name": name, "uid": name, "labels": {names.LABEL_ROLE: role}}
    return {
        "metadata": {**metadata, "creationTimestamp": format_time(created)},
        "status": {"phase": "Pending", **status},
    }


def test_without_a_deadline_nothing_is_due() -> None:
    assert deadline_result({}, pending("a", created=START), now=START + 1e6) == (None, None)


def test_a_job_is_not_active_for_longer_than_its_deadline() -> None:
    assert deadline_result({"activeDeadlineSeconds": 60}, now=START + 20) == (None, 40.0)
    message, _ = deadline_result({"activeDeadlineSeconds": 60}, now=START + 60)
    assert message == "spec.runPolicy.activeDeadlineSeconds: active for more than 60 s"


UNSCHEDULABLE: Json = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    ]
}
NO_IMAGE: Json = {
    "containerStatuses": [
        {
            "name": "c",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }
    ]
}
POLICY = {"pendingDeadlineSeconds": 30}


@pytest.mark.guarantee("pods-that-cannot-start")
@pytest.mark.parametrize("role", ["worker", "master"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [(UNSCHEDULABLE, "Unschedulable: 0/1"), (NO_IMAGE, "ImagePullBackOff: no such image")],
)
def test_a_pod_that_stays_pending_fails_the_job_with_its_message(
    status: Json, reason: str, role: str
) -> None:
    waiting = pending("b", created=START + 10, role=role, **status)
    assert deadline_result(POLICY, pending("a", created=START), waiting, now=START + 5) == (
        None,
        25.0,
    )
    message, _ = deadline_result(POLICY, waiting, now=START + 40)
    assert (
        message
        == f"spec.runPolicy.pendingDeadlineSeconds: b is Pending for more than 30 s: {reason}"
    )


def test_a_pod_the_job_can_do_without_does_not_fail_it() -> None:
    late = pending("b", created=START, **UNSCHEDULABLE)
    assert deadline_result(POLICY, late, now=START + 99, ready=1) == (None, None)
    assert deadline_result(POLICY, late, now=START + 99, ready=1, running=True) == (None, None)
    assert deadline_result(POLICY, late, now=START + 99, ready=0, running=True)[0] is not None


def test_a_job_that_starts_with_all_its_members_needs_every_one_of_them_until_then() -> None:
    late = pending("b", created=START, **UNSCHEDULABLE)
    policy = POLICY | {"startPolicy": "AllReady"}
    assert deadline_result(policy, late, now=START + 99, ready=1)[0] is not None
    assert deadline_result(policy, late, now=START + 99, ready=1, running=True) == (None, None)
