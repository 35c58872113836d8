"""A job past a deadline fails with the field, the bound and the pod's own words."""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_operator.core.clock import format_time
from elasticjob_operator.core.deadlines import overdue
from elasticjob_operator.core.observed import Observed, Pod

START = 1_800_000_000.0


def seen(policy: dict[str, int], *pods: dict[str, object]) -> Observed:
    job = {
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": {"template": {}}}, "runPolicy": policy},
        "status": {"startTime": format_time(START)},
    }
    return Observed(job=msgspec.convert(job, ElasticJob), pods=tuple(msgspec.convert(pod, Pod) for pod in pods))


def pending(name: str, *, created: float, **status: object) -> dict[str, object]:
    metadata = {"name": name, "uid": name, "creationTimestamp": format_time(created)}
    return {"metadata": metadata, "status": {"phase": "Pending", **status}}


def test_without_a_deadline_nothing_is_due() -> None:
    assert overdue(seen({}, pending("a", created=START)), START + 1e6) == (None, None)


def test_a_job_is_not_active_for_longer_than_its_deadline() -> None:
    job = seen({"activeDeadlineSeconds": 60})
    assert overdue(job, START + 20) == (None, 40.0)
    message, _ = overdue(job, START + 60)
    assert message == "spec.runPolicy.activeDeadlineSeconds: active for more than 60 s"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]},
            "Unschedulable: 0/1",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ]
            },
            "ImagePullBackOff: no such image",
        ),
    ],
)
def test_a_pod_that_stays_pending_fails_the_job_with_its_own_words(status: dict[str, object], words: str) -> None:
    job = seen({"pendingDeadlineSeconds": 30}, pending("a", created=START), pending("b", created=START + 10, **status))
    assert overdue(job, START + 5) == (None, 25.0)
    late = seen({"pendingDeadlineSeconds": 30}, pending("b", created=START, **status))
    message, _ = overdue(late, START + 30)
    assert message == f"spec.runPolicy.pendingDeadlineSeconds: b is Pending for more than 30 s: {words}"
