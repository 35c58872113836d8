"""Tests the last failures in the job's status, which scripts can read field by field.

They stay valid when another client writes arbitrary values into a pod's status.
"""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api.elasticjob import MAX_FAILURES, ElasticJobStatus
from elasticjob_kube.resources import PODS

from tests.support.job_cluster import end_training, new_cluster, pod_names, reconcile_now, status_of


async def test_a_failure_has_role_index_container_code_signal_reason_action_and_times() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    end_training(cluster, "job-worker-1", 137, "OOMKilled", ran=5)
    await reconcile_now(cluster)
    (failure,) = status_of(cluster)["failures"]
    assert failure.pop("startedAt") < failure.pop("finishedAt")
    assert failure == {
        "role": "worker",
        "index": 1,
        "attempt": 0,
        "pod": "job-worker-1",
        "container": "train",
        "exitCode": 137,
        "signal": 9,
        "reason": "OOMKilled",
        "message": "last words",
        "action": "RestartWithMoreMemory",
    }


async def test_a_failure_of_the_master_is_one_without_an_index() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    end_training(cluster, pod_names(cluster, "master")[0], 1)
    await cluster.settle()
    (failure,) = status_of(cluster)["failures"]
    assert (failure["role"], failure.get("index"), failure["exitCode"]) == ("master", None, 1)


@pytest.mark.guarantee("log-of-ended-jobs")
async def test_the_newest_failures_stay_with_the_number_of_the_attempt() -> None:
    cluster = new_cluster(replicas=1, worker={"restartLimit": 100}, runPolicy={"backoffLimit": 100})
    await cluster.start()
    for number in range(MAX_FAILURES + 3):
        end_training(cluster, pod_names(cluster)[-1], number % 2 * 142 + 1)
        await cluster.settle()
    failures = status_of(cluster)["failures"]
    assert [failure["attempt"] for failure in failures] == [*range(MAX_FAILURES + 2, 2, -1)]
    assert {failure["action"] for failure in failures} == {"Restart", "Ignore"}


async def test_a_pod_that_never_ran_names_the_container_that_has_failed() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    terminated = {"exitCode": 2, "reason": "Error", "message": "first\nno such host\n"}
    init = [{"name": "fetch", "state": {"terminated": terminated}}]
    cluster.kube.set_status(
        PODS, "job-worker-0", phase="Failed", conditions=[], initContainerStatuses=init
    )
    await cluster.settle()
    failure = status_of(cluster)["failures"][0]
    assert (failure["container"], failure["exitCode"], failure["message"]) == (
        "fetch",
        2,
        "no such host",
    )


async def test_a_pod_without_any_report_of_a_container_has_the_pods_reason() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    cluster.kube.set_status(
        PODS, "job-worker-0", phase="Failed", reason="Evicted", message="low on disk", conditions=[]
    )
    await cluster.settle()
    failure = status_of(cluster)["failures"][0]
    assert (failure["reason"], failure["message"], failure["action"]) == (
        "Evicted",
        "low on disk",
        "Ignore",
    )
    assert {"exitCode", "container", "signal"} & failure.keys() == set()


@pytest.mark.guarantee("log-of-ended-jobs")
async def test_any_text_of_a_pod_fits_into_the_status_or_is_omitted() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    odd = {
        "exitCode": 2**40,
        "signal": 2**31,
        "reason": "R" * 5000,
        "message": "é" * 5000,
        "finishedAt": "yesterday",
    }
    container = {"name": "train", "state": {"terminated": odd}}
    cluster.kube.set_status(
        PODS, "job-worker-0", phase="Failed", conditions=[], containerStatuses=[container]
    )
    await cluster.settle()
    (failure,) = msgspec.convert(status_of(cluster), ElasticJobStatus).failures
    assert (failure.role, failure.exit_code, failure.signal) == ("worker", 2**31 - 1, 255)
    assert len(failure.reason) == len(failure.message) == 256
    assert failure.finished_at is not None
