"""Tests the start, the deadlines, the success or failure, and the clean-up of a job."""

from __future__ import annotations

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time, parse_time
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from tests.support.job_cluster import (
    end_training,
    new_cluster,
    pod_names,
    reconcile_now,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster, make_ready

WITH_SIDECAR = {
    "spec": {
        "containers": [
            {"name": "train", "image": "digits", "command": ["train"]},
            {"name": "logs", "image": "logs"},
        ]
    }
}

# --- the start and the deadlines


@pytest.mark.parametrize(
    ("policy", "phases"),
    [
        ("AnyMin", ["Starting", "Running", "Running"]),
        ("AllReady", ["Starting", "Starting", "Running"]),
    ],
)
async def test_a_job_runs_when_enough_members_are_ready(policy: str, phases: list[str]) -> None:
    cluster = new_cluster(replicas=2, least=1, runPolicy={"startPolicy": policy})
    await cluster.kube.create(ELASTIC_JOBS, NAMESPACE, cluster._body)
    await cluster.run_operator()
    await cluster.run_operator()
    found = []
    for name in ("job-master", "job-worker-1", "job-worker-0"):
        make_ready(cluster.kube, name)
        await cluster.run_operator()
        found.append(status_of(cluster)["phase"])
    assert found == phases


async def test_a_job_fails_when_its_time_is_over_and_its_pods_are_cleaned_up() -> None:
    cluster = new_cluster(replicas=2, runPolicy={"activeDeadlineSeconds": 300})
    await cluster.start()
    await cluster.operator.watch()
    wait = await cluster.operator.work(cluster.now)
    assert wait is not None
    assert parse_time(status_of(cluster)["startTime"]) + 300 == pytest.approx(cluster.now + wait)
    cluster.now += wait
    await cluster.settle()
    assert (
        status_of(cluster)["message"]
        == "spec.runPolicy.activeDeadlineSeconds: active for more than 300 s"
    )
    assert cluster.kube.all(PODS) == []


# --- completion


async def test_a_member_succeeds_with_its_training_container_despite_its_sidecars() -> None:
    cluster = new_cluster(replicas=1, worker={"template": WITH_SIDECAR})
    await cluster.start()
    done = {"name": "train", "state": {"terminated": {"exitCode": 0}}}
    cluster.kube.set_status(
        PODS, "job-worker-0", conditions=[], containerStatuses=[done, {"name": "logs"}]
    )
    await cluster.settle()
    assert (cluster.job().status.phase, cluster.job().status.workers) == ("Succeeded", "")


async def test_a_member_whose_training_has_failed_is_replaced_although_a_sidecar_runs_on() -> None:
    cluster = new_cluster(replicas=1, worker={"template": WITH_SIDECAR})
    await cluster.start()
    failed = {"name": "train", "state": {"terminated": {"exitCode": 1}}}
    cluster.kube.set_status(
        PODS, "job-worker-0", conditions=[], containerStatuses=[failed, {"name": "logs"}]
    )
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-1"]


def inject_sidecars(cluster: Cluster) -> None:
    """Let a webhook put another container in front of those of each pod, as Istio does."""

    def injecting(resource: Resource, body: Json) -> None:
        if resource is PODS:
            body["spec"]["containers"].insert(0, {"name": "proxy"})

    cluster.kube.before_create = injecting


def end_beside_sidecar(cluster: Cluster, name: str, container: str, code: int) -> None:
    """End one container of a pod, in which the injected container runs on."""
    now = format_time(cluster.now)
    end = {"exitCode": code, "startedAt": now, "finishedAt": now}
    statuses = [
        {"name": "proxy", "state": {"running": {}}},
        {"name": container, "state": {"terminated": end}},
    ]
    cluster.kube.set_status(PODS, name, conditions=[], containerStatuses=statuses)


@pytest.mark.guarantee("injected-container")
async def test_a_job_succeeds_although_a_container_was_injected_in_front_of_its_training() -> None:
    cluster = new_cluster(replicas=2)
    inject_sidecars(cluster)
    await cluster.start()
    for name in pod_names(cluster):
        end_beside_sidecar(cluster, name, "train", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


@pytest.mark.guarantee("injected-container")
@pytest.mark.parametrize(
    ("role", "container"), [(names.ROLE_WORKER, "train"), (names.ROLE_MASTER, "master")]
)
async def test_a_pod_that_fails_beside_an_injected_container_is_replaced_after_its_wait(
    role: str, container: str
) -> None:
    cluster = new_cluster(replicas=1)
    inject_sidecars(cluster)
    await cluster.start()
    for _ in range(2):
        (name,) = pod_names(cluster, role)
        end_beside_sidecar(cluster, name, container, 1)
        await reconcile_now(cluster)
        if pod_names(cluster, role) == [name]:
            await cluster.operator.watch()
            wait = await cluster.operator.work(cluster.now)
            assert wait is not None
            assert wait <= 10, "the operator decides again when the wait is over"
            cluster.now += 10
        await reconcile_now(cluster)
        assert pod_names(cluster, role) not in ([], [name])


@pytest.mark.guarantee("success-during-scale-in")
async def test_a_member_that_has_succeeded_is_never_started_again() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    cluster.kube.remove(PODS, "job-worker-0")
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-1"]
    assert status_of(cluster).get("uncountedRestarts", 0) == 0
    end_training(cluster, "job-worker-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_enough_successes_end_the_job() -> None:
    cluster = new_cluster(replicas=3, worker={"completion": {"minSucceeded": 2}})
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Running"
    end_training(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"
    assert pod_names(cluster) == ["job-worker-0", "job-worker-2"], "cleanPodPolicy Running"


async def test_a_role_can_do_without_some_members_and_the_job_succeeds_with_the_others() -> None:
    cluster = new_cluster(replicas=3, worker={"restartLimit": 0, "completion": {"minFailed": 2}})
    await cluster.start()
    end_training(cluster, "job-worker-1", 1)
    await cluster.settle()
    assert cluster.job().status.phase == "Running"
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1", "job-worker-2"], (
        "what is lost is kept for its logs"
    )
    end_training(cluster, "job-worker-0", 0)
    end_training(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_the_job_fails_when_no_member_is_left_that_could_succeed() -> None:
    cluster = new_cluster(replicas=2, worker={"restartLimit": 0, "completion": {"minFailed": 5}})
    await cluster.start()
    end_training(cluster, "job-worker-0", 1)
    end_training(cluster, "job-worker-1", 1)
    await cluster.settle()
    assert cluster.job().status.phase == "Failed"
    assert (
        cluster.job().status.message
        == "no worker is left: 0 have succeeded, 2 have failed for good"
    )


async def test_a_job_without_members_waits_for_some() -> None:
    cluster = new_cluster(replicas=0, least=0)
    await cluster.start()
    assert (cluster.job().status.phase, cluster.job().status.workers) == ("Running", "0/0")
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


@pytest.mark.guarantee("success-during-scale-in")
@pytest.mark.parametrize("write", range(1, 12))
async def test_members_that_succeed_during_a_drain_neither_end_the_job_early_nor_run_again(
    write: int,
) -> None:
    cluster = new_cluster(replicas=3)
    await cluster.start()
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-2"])
    cluster.kube.crash_in = write
    await cluster.run_operator()
    end_training(cluster, "job-worker-0", 0)
    await cluster.run_operator()
    end_training(cluster, "job-worker-2", 0)  # it ends well while it is being removed
    await cluster.settle()
    cluster.kube.crash_in = None
    assert cluster.job().status.phase == "Running"
    assert "job-worker-0" in pod_names(cluster)
    assert len(cluster.kube.created_names) == 4, "three workers and the master, each once"
    end_training(cluster, "job-worker-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"
    assert len(cluster.kube.created_names) == 4


@pytest.mark.guarantee("success-during-scale-in")
async def test_a_job_does_not_succeed_while_its_only_busy_worker_drains() -> None:
    cluster = new_cluster(replicas=3)
    await cluster.start()
    for name in ("job-worker-0", "job-worker-1"):
        end_training(cluster, name, 0)
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-2"])
    await cluster.run_operator()
    await cluster.run_operator()
    assert status_of(cluster)["phase"] == "Scaling"
    end_training(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


@pytest.mark.guarantee("success-during-scale-in")
async def test_of_a_number_members_those_leave_first_that_have_succeeded() -> None:
    cluster = new_cluster(replicas=3)
    await cluster.start()
    for name in ("job-worker-0", "job-worker-1"):
        end_training(cluster, name, 0)
    await cluster.apply(SCALE_INS, "less", count=1)
    await cluster.settle()
    assert status_of(cluster)["replicaStatuses"]["worker"]["indices"] == "0,2"
    assert cluster.job().status.phase == "Running"
    end_training(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_where_a_number_of_successes_is_needed_none_is_taken_away() -> None:
    cluster = new_cluster(replicas=3, worker={"completion": {"minSucceeded": 2}})
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.apply(SCALE_INS, "less", count=1)
    await cluster.settle()
    assert status_of(cluster)["replicaStatuses"]["worker"]["indices"] == "0-1"


# --- the end


async def finish(cluster: Cluster) -> None:
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    cluster.kube.set_status(PODS, "job-worker-1", phase="Running")
    await cluster.settle()


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("Running", ["job-worker-0"]),
        ("All", []),
        ("None", ["job-worker-0", "job-worker-1"]),
    ],
)
async def test_at_the_end_pods_are_deleted_as_the_policy_says_and_the_master_always(
    policy: str, kept: list[str]
) -> None:
    cluster = new_cluster(
        replicas=2, worker={"completion": {"minSucceeded": 1}}, runPolicy={"cleanPodPolicy": policy}
    )
    await finish(cluster)
    assert cluster.job().status.phase == "Succeeded"
    assert pod_names(cluster) == kept
    assert pod_names(cluster, names.ROLE_MASTER) == []


async def test_a_job_that_has_ended_never_starts_anything_again() -> None:
    cluster = new_cluster(
        replicas=2, worker={"completion": {"minSucceeded": 1}}, runPolicy={"cleanPodPolicy": "None"}
    )
    await finish(cluster)
    created = set(cluster.kube.created_names)
    end_training(cluster, "job-worker-1", 1)
    await cluster.settle()
    cluster.kube.remove(PODS, "job-worker-1")
    set_suspend(cluster, True)
    await cluster.settle()
    set_suspend(cluster, False)
    cluster.edit_role(replicas=5)
    await cluster.settle()
    assert cluster.kube.created_names == created
    assert cluster.job().status.phase == "Succeeded"
    assert cluster.kube.all(SCALE_PLANS) == []


@pytest.mark.guarantee("status-conflicts")
async def test_conditions_of_an_ended_job_hold_for_its_edited_spec() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    foreign = {
        "type": "Audited",
        "status": "True",
        "lastTransitionTime": format_time(0),
        "reason": "R",
        "message": "m",
        "observedGeneration": 1,
    }
    conditions = status_of(cluster)["conditions"]
    cluster.kube.set_status(ELASTIC_JOBS, JOB, conditions=[*conditions, foreign])
    set_suspend(cluster, True)
    await cluster.settle()
    assert status_of(cluster)["observedGeneration"] == 2
    edited = [each | {"observedGeneration": 2} for each in conditions]
    assert status_of(cluster)["conditions"] == [*edited, foreign]


@pytest.mark.guarantee("finished-objects-are-pruned")
async def test_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    cluster = new_cluster(replicas=1, runPolicy={"ttlSecondsAfterFinished": 100})
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    completed = status_of(cluster)["completionTime"]
    await cluster.operator.watch()
    wait = await cluster.operator.work(cluster.now)
    assert wait is not None
    assert cluster.now + wait == pytest.approx(parse_time(completed) + 100)
    cluster.now += wait
    await cluster.run_operator()
    assert (ELASTIC_JOBS, JOB) not in cluster.kube.objects


@pytest.mark.guarantee("status-conflicts")
async def test_conditions_of_others_stay_and_ours_name_the_generation() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    foreign = {
        "type": "Audited",
        "status": "True",
        "lastTransitionTime": format_time(0),
        "reason": "R",
        "message": "m",
    }
    status = status_of(cluster)
    cluster.kube.set_status(ELASTIC_JOBS, JOB, conditions=[*status["conditions"], foreign])
    set_suspend(cluster, True)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    end_training(cluster, pod_names(cluster)[0], 0)
    await cluster.settle()
    assert foreign in status_of(cluster)["conditions"]
    generation = cluster.kube.objects[ELASTIC_JOBS, JOB]["metadata"]["generation"]
    assert status_of(cluster)["observedGeneration"] == generation == 3
    assert {c["type"]: c["status"] for c in status_of(cluster)["conditions"]} == {
        "Audited": "True",
        "MasterReady": "False",
        "Ready": "True",
        "Running": "False",
        "Suspended": "False",
        "Complete": "True",
    }
    assert all(
        c["observedGeneration"] == 3
        for c in status_of(cluster)["conditions"]
        if c["type"] != "Audited"
    )


async def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    cluster = new_cluster(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    await cluster.start()
    assert cluster.kube.writes == 1, "the user's own"
    ours = new_cluster(runPolicy={"managedBy": "elasticjob.dev/operator"})
    await ours.start()
    assert ours.job().status.phase == "Running"


async def test_counts_are_shown_also_when_they_are_zero() -> None:
    cluster = Cluster(replicas=2)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.run_operator()
    counts = {
        "active": 2,
        "ready": 0,
        "succeeded": 0,
        "failed": 0,
        "restarts": 0,
        "uncountedRestarts": 0,
    }
    status = cluster.kube.objects[ELASTIC_JOBS, JOB]["status"]
    assert {**status["replicaStatuses"]["worker"], **counts} == status["replicaStatuses"]["worker"]
    assert (status["restarts"], status["uncountedRestarts"]) == (0, 0)
    await cluster.settle()
    cluster.edit_policy(suspend=True)
    await cluster.settle()
    worker = cluster.kube.objects[ELASTIC_JOBS, JOB]["status"]["replicaStatuses"]["worker"]
    assert (worker["active"], worker["ready"]) == (0, 0)
