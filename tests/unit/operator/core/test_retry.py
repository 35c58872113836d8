"""Tests that a retried job gets new pods for all members after its old pods are deleted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, Retry
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.retry import begin_to_retry

from tests.support.job_cluster import (
    condition,
    end_training,
    new_cluster,
    pod_names,
    reconcile_now,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import JOB, Cluster, job_body


def cluster_with(retry: Json, **policy: Any) -> Cluster:
    """Return a cluster whose job has this retry policy."""
    return new_cluster(replicas=2, runPolicy={"retry": retry, **policy})


def live(cluster: Cluster, role: str = "worker") -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in cluster.kube.pods(role)
        if pod["status"]["phase"] == "Running"
    ]


@pytest.mark.guarantee("job-retry")
async def test_after_a_failure_all_pods_are_deleted_and_after_the_delay_all_members_restart() -> (
    None
):
    cluster = cluster_with({"minDelaySeconds": 60})
    await cluster.start()
    end_training(cluster, "job-worker-0", 210)
    await reconcile_now(cluster)
    status = status_of(cluster)
    assert status["phase"] == "Retrying"
    assert status["retries"] == 1
    assert status["message"].startswith(
        f"retry 1 begins at {status['retryTime']}, as the job has failed: worker 0 failed"
    )
    assert condition(cluster, "Running") == ("False", "Retrying")
    assert live(cluster) == live(cluster, "master") == []
    assert pod_names(cluster) == ["job-worker-0"], "the failed pod stays for kubectl logs"
    assert 0 < parse_time(status["retryTime"]) - cluster.now <= 60
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert "retryTime" not in status_of(cluster)
    assert len(live(cluster)) == 2
    assert len(live(cluster, "master")) == 1
    assert not {"job-worker-0", "job-worker-1"} & set(live(cluster)), "no name is used twice"
    cluster.check_final_state()


@pytest.mark.guarantee("job-retry")
async def test_every_attempt_has_all_its_restarts() -> None:
    cluster = cluster_with({"minDelaySeconds": 0}, backoffLimit=1)
    await cluster.start()
    for _ in range(2):
        for _ in range(2):
            end_training(cluster, live(cluster)[0], 1)
            await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert status_of(cluster)["retries"] == 2
    assert status_of(cluster)["restarts"] == 0


@pytest.mark.guarantee("job-retry")
async def test_at_its_limit_the_job_fails() -> None:
    cluster = cluster_with({"limit": 1, "minDelaySeconds": 0})
    await cluster.start()
    end_training(cluster, "job-worker-0", 210)
    await cluster.settle()
    assert status_of(cluster)["retries"] == 1
    end_training(cluster, live(cluster)[0], 210)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Failed"
    assert "retryTime" not in status_of(cluster)
    assert live(cluster) == live(cluster, "master") == []


@pytest.mark.parametrize(("code", "phase"), [(210, "Failed"), (1, "Running")])
async def test_on_transient_a_failure_that_would_come_again_is_final(code: int, phase: str) -> None:
    cluster = cluster_with({"policy": "OnTransient", "minDelaySeconds": 0}, backoffLimit=0)
    await cluster.start()
    end_training(cluster, "job-worker-0", code)
    await cluster.settle()
    assert status_of(cluster)["phase"] == phase


@pytest.mark.parametrize(("policy", "phase"), [("OnFailure", "Succeeded"), ("Always", "Running")])
async def test_only_always_retries_after_success_also_members_that_had_succeeded(
    policy: str, phase: str
) -> None:
    cluster = cluster_with({"policy": policy, "minDelaySeconds": 0, "limit": 1})
    await cluster.start()
    for name in live(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    assert status_of(cluster)["phase"] == phase
    assert len(live(cluster)) == (2 if policy == "Always" else 0)
    cluster.check_final_state()


async def test_the_time_a_job_may_be_active_is_that_of_all_attempts_together() -> None:
    cluster = cluster_with({"minDelaySeconds": 100}, activeDeadlineSeconds=60)
    await cluster.start()
    started = status_of(cluster)["startTime"]
    end_training(cluster, "job-worker-0", 210)
    await reconcile_now(cluster)
    assert status_of(cluster)["phase"] == "Retrying"
    assert status_of(cluster)["startTime"] == started
    cluster.now += 60
    await reconcile_now(cluster)
    assert status_of(cluster)["phase"] == "Failed"
    assert "activeDeadlineSeconds" in status_of(cluster)["message"]


async def test_a_suspended_job_is_retried_when_it_is_resumed() -> None:
    cluster = cluster_with({"minDelaySeconds": 60})
    await cluster.start()
    end_training(cluster, "job-worker-0", 210)
    await reconcile_now(cluster)
    set_suspend(cluster, True)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Suspended"
    cluster.now += 100
    await cluster.run_operator()
    assert live(cluster) == []
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert condition(cluster, "Suspended") == ("False", "Resumed")
    assert len(live(cluster)) == 2


async def test_a_job_whose_retry_policy_is_removed_continues_with_its_remaining_restarts() -> None:
    cluster = cluster_with({"minDelaySeconds": 60})
    await cluster.start()
    end_training(cluster, "job-worker-0", 210)
    await reconcile_now(cluster)
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["runPolicy"].pop("retry"))
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert "retryTime" not in status_of(cluster)
    cluster.check_final_state()


@pytest.mark.guarantee("job-retry")
@pytest.mark.parametrize("time", ["2999-01-01T00:00:00Z", "2026-02-31T00:00:00Z"])
@pytest.mark.parametrize("policy", [{}, {"retry": {}}])
async def test_a_retry_time_written_by_another_client_does_not_delay_a_job(
    time: str, policy: Json
) -> None:
    cluster = new_cluster(replicas=2, runPolicy=policy)
    await cluster.start()
    pods = live(cluster)
    cluster.kube.set_status(ELASTIC_JOBS, JOB, retryTime=time)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert "retryTime" not in status_of(cluster)
    assert policy or live(cluster) == pods, "without a policy nothing is ended by it"
    cluster.check_final_state()


async def test_a_plan_that_runs_is_undone_and_requests_that_wait_end_with_the_reason() -> None:
    cluster = cluster_with({"minDelaySeconds": 0})
    await cluster.start()
    await cluster.apply(SCALE_PLANS, "more", replicaResourceSpecs={"worker": {"replicas": 4}})
    await cluster.run_operator()
    await cluster.apply(SCALE_OUTS, "later", count=1)
    assert status_of(cluster)["currentPlan"] == "more"
    end_training(cluster, "job-worker-0", 210)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert len(live(cluster)) == 2
    assert cluster.kube.objects[SCALE_PLANS, "more"]["status"]["phase"] == "Cancelled"
    said = cluster.kube.objects[SCALE_OUTS, "later"]["status"]
    assert said["phase"] == "ScaleFailed"
    assert "begins anew" in said["message"]
    cluster.check_final_state()


def delay(uid: str, retries: int) -> float:
    """Return the delay before the next attempt of a job."""
    policy = Retry(min_delay_seconds=100, max_delay_seconds=900)
    body = job_body(2, 1, 6) | {
        "metadata": {"name": JOB, "uid": uid},
        "status": {"retries": retries},
    }
    observed = Observed(job=msgspec.convert(body, ElasticJob))
    time = begin_to_retry(observed, observed.job.status, policy, 1_800_000_000.0).retry_time
    assert time is not None
    return parse_time(time) - 1_800_000_000.0


def test_the_delays_of_jobs_that_fail_together_differ_within_their_bounds() -> None:
    delays = {delay(f"uid-{job}", retries) for job in range(10) for retries in range(3)}
    assert len(delays) > 20
    assert min(delays) >= 100
    assert max(delays) <= 900
    assert delay("uid-1", 1) == delay("uid-1", 1), "the same for an operator that takes over"


async def test_a_program_can_know_by_its_pods_annotations_which_attempt_it_is() -> None:
    cluster = cluster_with({"minDelaySeconds": 0})
    await cluster.start()

    async def numbers(*codes: int) -> list[tuple[str, str]]:
        """Return (retry, attempt) of the first worker's pods; each ends with the next code."""
        found = []
        for code in codes:
            (pod,) = [
                pod for pod in cluster.kube.pods("worker") if pod["status"]["phase"] == "Running"
            ][:1]
            annotations = pod["metadata"]["annotations"]
            found.append(
                (annotations[names.ANNOTATION_RETRY], annotations[names.ANNOTATION_ATTEMPT])
            )
            end_training(cluster, pod["metadata"]["name"], code)
            await cluster.settle()
        return found

    end_training(cluster, "job-worker-1", 0)
    await cluster.settle()
    assert await numbers(1, 143, 210) == [("0", "0"), ("0", "1"), ("0", "2")]
    end_training(cluster, live(cluster)[-1], 0)
    await cluster.settle()
    assert await numbers(1, 1) == [("1", "0"), ("1", "1")]
