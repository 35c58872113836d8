"""Tests roles without an agent, such as a store or a dashboard.

Their containers run as written, and only Kubernetes ends them.
"""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS
from elasticjob_master.cluster.job_spec import sizes
from elasticjob_operator.core.manifests.validation import validation_error

from tests.support.job_cluster import (
    end_training,
    ending,
    new_cluster,
    pod_names,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import JOB, Cluster

CONTAINER: Json = {
    "name": "etcd",
    "image": "etcd:3",
    "args": ["--name", "store"],
    "ports": [{"containerPort": 2379}],
}


def store(**more: Any) -> Json:
    return {
        "replicas": 1,
        "agent": "None",
        "template": {"spec": {"containers": [CONTAINER]}},
        **more,
    }


async def started(**more: Any) -> Cluster:
    """Start a job of two workers and a store."""
    cluster = new_cluster(replicas=2)
    cluster._body["spec"]["replicaSpecs"]["store"] = store(**more)
    await cluster.start()
    return cluster


async def scale_store(cluster: Cluster, replicas: int) -> None:
    await cluster.apply(
        SCALE_PLANS, "sizes", replicaResourceSpecs={"store": {"replicas": replicas}}
    )
    await cluster.settle()


async def test_its_container_is_as_written_and_its_pod_is_addressable_by_role_and_index() -> None:
    cluster = await started()
    (pod,) = cluster.kube.pods("store")
    assert pod["spec"]["containers"] == [CONTAINER]
    assert "initContainers" not in pod["spec"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (
        names.member_hostname("store", 0),
        JOB,
    )
    assert status_of(cluster)["replicaStatuses"]["store"]["ready"] == 1


async def test_it_does_not_decide_the_end_of_the_job_unless_it_says_when() -> None:
    cluster = await started()
    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Succeeded"
    assert cluster.kube.pods("store") == [], "it ends with the job"
    cluster = await started(completion={"minSucceeded": 1})
    end_training(cluster, "job-store-0", 0)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Succeeded"


async def test_one_that_fails_gets_a_new_pod_and_the_workers_keep_theirs() -> None:
    cluster = await started()
    end_training(cluster, "job-store-0", 1)
    await cluster.settle()
    assert pod_names(cluster, "store") == ["job-store-0-1"]
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    assert status_of(cluster)["replicaStatuses"]["store"]["restarts"] == 1


async def test_no_drain_is_awaited_because_its_deletion_terminates_it() -> None:
    cluster = await started()
    await scale_store(cluster, 3)
    assert len(pod_names(cluster, "store")) == 3
    await cluster.apply(SCALE_PLANS, "fewer", replicaResourceSpecs={"store": {"replicas": 1}})
    await cluster.settle()
    status = cluster.kube.objects[SCALE_PLANS, "fewer"]["status"]
    assert (status["phase"], status.get("drainingPods", []), status.get("forcedPods", [])) == (
        "Succeeded",
        [],
        [],
    )
    assert len(pod_names(cluster, "store")) == 1


async def test_a_deleted_pod_that_exits_with_0_has_not_succeeded_and_is_replaced() -> None:
    cluster = await started(restartLimit=0)
    cluster.kube.mark_deleted(PODS, "job-store-0")
    end_training(cluster, "job-store-0", 0)
    await cluster.settle()
    assert pod_names(cluster, "store") == ["job-store-0-1"]
    replica = status_of(cluster)["replicaStatuses"]["store"]
    assert (replica["uncountedRestarts"], replica["restarts"], replica["succeeded"]) == (1, 0, 0)
    cluster.check_final_state()


@pytest.mark.guarantee("kept-processes")
async def test_a_suspended_job_stops_it_after_the_roles_that_may_save_data_to_it() -> None:
    cluster = await started()
    set_suspend(cluster, True)
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-0", "job-worker-1"]
    await cluster.settle()
    assert cluster.kube.all(PODS) == []


@pytest.mark.guarantee("roles-without-agent")
async def test_a_member_that_succeeded_restarts_uncounted_if_its_role_says_so() -> None:
    cluster = await started(restartOnSuccess=True, restartLimit=0)
    for number in range(3):
        (name,) = pod_names(cluster, "store")
        end_training(cluster, name, 0)
        await cluster.settle()
        assert pod_names(cluster, "store") == [f"job-store-0-{number + 1}"]
    replica = status_of(cluster)["replicaStatuses"]["store"]
    assert (replica["uncountedRestarts"], replica["restarts"], replica["succeeded"]) == (3, 0, 0)
    assert replica["backOff"]["0"]["failures"] == 3, "the waits grow, so that this is no busy loop"
    assert "failures" not in status_of(cluster)
    cluster.check_final_state()
    end_training(cluster, pod_names(cluster, "store")[0], 1)
    await cluster.settle()
    assert status_of(cluster)["replicaStatuses"]["store"]["failed"] == 1, "a failure counts as ever"


@pytest.mark.guarantee("roles-without-agent")
@pytest.mark.parametrize("write", range(1, 8))
async def test_a_success_to_repeat_is_counted_once_whenever_the_operator_dies(write: int) -> None:
    cluster = await started(restartOnSuccess=True)
    cluster.kube.crash_in = write
    end_training(cluster, "job-store-0", 0)
    await cluster.settle()
    cluster.kube.crash_in = None
    assert status_of(cluster)["replicaStatuses"]["store"]["uncountedRestarts"] == 1
    cluster.check_final_state()


async def test_a_role_whose_members_always_run_again_has_not_succeeded_by_a_suspension() -> None:
    cluster = await started(restartOnSuccess=True)
    end_training(cluster, "job-store-0", 0)
    set_suspend(cluster, True)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    assert len(pod_names(cluster, "store")) == 1
    cluster.check_final_state()


async def test_a_job_has_as_many_roles_as_there_may_be_and_one_edit_changes_all_of_them() -> None:
    cluster = new_cluster(replicas=1, framework="custom")
    others = [f"{number}".rjust(20, "r") for number in range(MAX_ROLES - 1)]
    cluster._body["spec"]["replicaSpecs"] |= {role: store() for role in others}
    await cluster.start()
    assert status_of(cluster)["phase"] == "Running"

    def double(spec: Json) -> None:
        for role in others:
            spec["replicaSpecs"][role]["replicas"] = 2

    cluster.kube.edit(ELASTIC_JOBS, JOB, double)
    await cluster.settle()
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert (plan["status"]["phase"], len(plan["spec"]["replicaResourceSpecs"])) == (
        "Succeeded",
        MAX_ROLES - 1,
    )
    assert all(len(pod_names(cluster, role)) == 2 for role in others)
    cluster.check_final_state()


async def test_the_master_forms_worlds_without_it() -> None:
    cluster = await started()
    assert set(sizes(cluster.job())) == {"worker"}


async def test_a_role_with_an_agent_needs_a_command_and_the_message_names_the_other_way() -> None:
    cluster = new_cluster()
    cluster._body["spec"]["replicaSpecs"]["store"] = store(agent="Managed")
    await cluster.start()
    job: ElasticJob = cluster.job()
    assert status_of(cluster)["phase"] == "Failed"
    error = validation_error(job)
    assert error is not None
    assert error.startswith(
        "spec.replicaSpecs.store.template.spec.containers[0].command: must be set"
    )
    assert error.endswith("for a role that needs no agent, set agent of the role to None")
    assert cluster.kube.objects[ELASTIC_JOBS, JOB]["status"]["message"] == error
