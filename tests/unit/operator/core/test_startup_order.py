"""Tests that starting roles wait for the roles they depend on, and that the status says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS
from elasticjob_operator.core.manifests.validation import startup_order_error

from tests.support.simulator.cluster import JOB, Cluster, job_body, make_ready


def body(roles: dict[str, Json], **spec: Any) -> Json:
    """Return a job of framework custom with these roles, by default of one member each."""
    made = job_body(1, 1, None, framework="custom", **spec)
    template = made["spec"]["replicaSpecs"].pop("worker")["template"]
    for role, fields in roles.items():
        made["spec"]["replicaSpecs"][role] = {
            "replicas": 1,
            "minReplicas": 1,
            "template": template,
            **fields,
        }
    return made


async def created(roles: dict[str, Json], **spec: Any) -> Cluster:
    cluster = Cluster()
    await cluster.create(ELASTIC_JOBS, body(roles, **spec))
    return cluster


def pods(cluster: Cluster, role: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.kube.pods(role)]


CHAIN: dict[str, Json] = {
    "worker": {"replicas": 2, "dependsOn": ["ps"]},
    "ps": {"replicas": 2, "minReplicas": 2, "dependsOn": ["etcd"]},
    "etcd": {},
}


async def test_each_role_gets_its_pods_when_those_it_depends_on_are_ready() -> None:
    cluster = await created(CHAIN)
    await cluster.run_operator()
    assert (pods(cluster, "etcd"), pods(cluster, "ps"), pods(cluster, "worker")) == (
        ["job-etcd-0"],
        [],
        [],
    )
    assert cluster.job().status.message == (
        "waiting: 0 of 1 workers ready, 0 of 2 pss ready, 0 of 1 etcds ready; ps waits for etcd; "
        "worker waits for ps"
    )
    make_ready(cluster.kube, "job-etcd-0")
    await cluster.run_operator()
    assert (len(pods(cluster, "ps")), pods(cluster, "worker")) == (2, [])
    make_ready(cluster.kube, "job-ps-0")
    await cluster.run_operator()
    assert pods(cluster, "worker") == [], "one of two servers is not enough"
    await cluster.settle()
    assert len(pods(cluster, "worker")) == 2
    assert cluster.job().status.phase == "Running"
    assert not cluster.job().status.message


async def test_a_running_job_replaces_members_although_their_dependencies_are_lost() -> None:
    cluster = await created(CHAIN)
    await cluster.settle()
    for name in ("job-etcd-0", "job-worker-0"):
        cluster.kube.remove(PODS, name)
    await cluster.run_operator()
    assert len(pods(cluster, "worker")) == 2
    await cluster.settle()
    cluster.check_final_state()


async def test_after_a_suspension_they_wait_again() -> None:
    cluster = await created(CHAIN)
    await cluster.settle()
    cluster.edit_policy(suspend=True)
    await cluster.settle()
    assert cluster.job().status.phase == "Suspended"
    cluster.edit_policy(suspend=False)
    await cluster.run_operator()
    assert (len(pods(cluster, "etcd")), pods(cluster, "ps"), pods(cluster, "worker")) == (1, [], [])
    await cluster.settle()
    assert cluster.job().status.phase == "Running"


async def test_a_role_that_has_succeeded_is_ready() -> None:
    cluster = await created({"worker": {"dependsOn": ["prepare"]}, "prepare": {"agent": "None"}})
    await cluster.run_operator()
    cluster.end("job-prepare-0", 0)
    await cluster.run_operator()
    assert pods(cluster, "worker") == ["job-worker-0"]


@pytest.mark.parametrize(
    ("roles", "policy", "error"),
    [
        (
            {"worker": {"dependsOn": ["none"]}},
            {},
            "worker.dependsOn: 'none' is not one of replicaSpecs; name one of them",
        ),
        (
            {"a": {"dependsOn": ["b"]}, "b": {"dependsOn": ["a"]}, "c": {}},
            {},
            "a.dependsOn: a, b wait for each other; remove one of the references",
        ),
        (
            {"a": {"dependsOn": ["a"]}},
            {},
            "a.dependsOn: a wait for each other; remove one of the references",
        ),
        (
            {"a": {"dependsOn": ["b"]}, "b": {}},
            {"schedulingPolicy": {"gang": "volcano"}},
            "a.dependsOn: with schedulingPolicy.gang volcano no pod starts before all of them are "
            "there; remove one of "
            "the two",
        ),
        (CHAIN, {}, None),
    ],
)
async def test_an_order_in_which_the_job_could_never_start_is_refused(
    roles: dict[str, Json], policy: Json, error: str | None
) -> None:
    found = startup_order_error(msgspec.convert(body(roles, runPolicy=policy), ElasticJob))
    assert found == (error and f"spec.replicaSpecs.{error}")


@pytest.mark.guarantee("foreign-status-writes")
async def test_a_refused_order_creates_no_pod_even_if_another_client_sets_the_job_active() -> None:
    cluster = await created({"worker": {"dependsOn": ["ps"]}})
    await cluster.run_operator()
    cluster.kube.set_status(ELASTIC_JOBS, JOB, phase="Running")
    await cluster.run_operator()
    assert cluster.kube.pods("worker") == []
    assert cluster.job().status.message.endswith("worker waits for ps")
