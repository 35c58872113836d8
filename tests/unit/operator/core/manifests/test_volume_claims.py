"""Tests that each member has its own volume claims, which stay when its pods are deleted."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    VOLUME_CLAIMS,
    Resource,
)
from elasticjob_operator import pod_executor
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import Retry

from tests.support.job_cluster import new_cluster
from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}


def with_claims(cluster: Cluster, *claims: str, volumes: tuple[Json, ...] = ()) -> Cluster:
    worker = cluster._body["spec"]["replicaSpecs"]["worker"]
    labels = {"labels": {"tier": "fast", names.LABEL_ROLE: "mine"}, "annotations": {"note": "x"}}
    worker["volumeClaimTemplates"] = [
        {"metadata": {"name": name} | labels, "spec": SPEC} for name in claims
    ]
    worker["template"]["spec"]["volumes"] = list(volumes)
    return cluster


def claims(cluster: Cluster) -> list[str]:
    return sorted(claim["metadata"]["name"] for claim in cluster.kube.all(VOLUME_CLAIMS))


def claim_of(cluster: Cluster, pod: str) -> str:
    """Return the claim that a pod mounts as `data`."""
    (volume,) = [
        each
        for each in cluster.kube.objects[PODS, pod]["spec"]["volumes"]
        if each["name"] == "data"
    ]
    name: str = volume["persistentVolumeClaim"]["claimName"]
    return name


async def works(cluster: Cluster) -> None:
    """Let the operator decide some times, with the pauses after a refusal, and pods start."""
    for _ in range(6):
        cluster.now += 60
        await cluster.operator.watch()
        with suppress(Retry):
            await cluster.operator.reconciler.reconcile(JobKey(NAMESPACE, JOB))
        cluster.run_pods()


@pytest.mark.guarantee("volume-claims-of-members")
async def test_a_member_keeps_its_claim_when_its_pod_is_replaced() -> None:
    cluster = with_claims(new_cluster(replicas=2), "data", "scratch")
    await cluster.start()
    assert claims(cluster) == [
        f"{name}-job-worker-{n}" for name in ("data", "scratch") for n in (0, 1)
    ]
    made = cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-1"]
    uid = cluster.job().metadata.uid
    assert made["spec"] == SPEC
    assert made["metadata"]["labels"] == {
        "tier": "fast",
        names.LABEL_JOB_NAME: JOB,
        names.LABEL_JOB_UID: uid,
        names.LABEL_ROLE: "worker",
        names.LABEL_INDEX: "1",
    }
    assert made["metadata"]["annotations"] == {"note": "x"}
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [uid], (
        "it goes with the job"
    )
    cluster.kube.remove(PODS, "job-worker-1")
    await cluster.settle()
    assert claim_of(cluster, "job-worker-1-1") == claim_of(cluster, "job-worker-0")[:-1] + "1"
    assert (
        cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-1"]["metadata"]["uid"]
        == made["metadata"]["uid"]
    )


@pytest.mark.guarantee("volume-claims-of-members")
async def test_a_claim_stays_when_the_role_is_made_smaller_and_is_used_again() -> None:
    cluster = with_claims(new_cluster(replicas=2, least=1), "data")
    await cluster.start()
    uid = cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-1"]["metadata"]["uid"]
    await cluster.apply(SCALE_INS, "fewer", count=1)
    await cluster.settle()
    assert claims(cluster) == ["data-job-worker-0", "data-job-worker-1"]
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await cluster.settle()
    assert claims(cluster) == ["data-job-worker-0", "data-job-worker-1", "data-job-worker-2"]
    assert cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-1"]["metadata"]["uid"] == uid


async def test_a_claim_that_is_retained_is_used_by_the_next_job_of_the_name() -> None:
    cluster = with_claims(new_cluster(replicas=1), "data")
    retained = {"whenDeleted": "Retain"}
    cluster._body["spec"]["replicaSpecs"]["worker"]["persistentVolumeClaimRetentionPolicy"] = (
        retained
    )
    await cluster.start()
    first = cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-0"]
    assert not first["metadata"]["ownerReferences"], (
        "the garbage collector deletes what has an owner"
    )
    another = with_claims(new_cluster(replicas=1), "data")
    await another.create(VOLUME_CLAIMS, first)
    await another.start()
    assert claim_of(another, "job-worker-0") == "data-job-worker-0"
    assert another.kube.objects[VOLUME_CLAIMS, "data-job-worker-0"]["spec"] == first["spec"]


async def test_a_claim_takes_the_place_of_a_volume_of_its_name_and_others_stay() -> None:
    other = {"name": "shared", "hostPath": {"path": "/shared"}}
    cluster = with_claims(
        new_cluster(replicas=1), "data", volumes=({"name": "data", "emptyDir": {}}, other)
    )
    await cluster.start()
    volumes = {
        each["name"]: each for each in cluster.kube.objects[PODS, "job-worker-0"]["spec"]["volumes"]
    }
    assert volumes["shared"] == other
    assert volumes["data"] == {
        "name": "data",
        "persistentVolumeClaim": {"claimName": "data-job-worker-0"},
    }
    (master,) = cluster.kube.pods("master")
    assert not any("persistentVolumeClaim" in each for each in master["spec"].get("volumes") or ())


async def test_a_claim_created_by_a_user_is_used_unchanged() -> None:
    cluster = with_claims(new_cluster(replicas=1), "data")
    mine = {
        "metadata": {"name": "data-job-worker-0", "namespace": NAMESPACE},
        "spec": {"volumeName": "filled"},
    }
    await cluster.create(VOLUME_CLAIMS, mine)
    await cluster.start()
    found = cluster.kube.objects[VOLUME_CLAIMS, "data-job-worker-0"]
    assert (found["spec"], "ownerReferences" in found["metadata"]) == (
        {"volumeName": "filled"},
        False,
    )
    assert claim_of(cluster, "job-worker-0") == "data-job-worker-0"


def owned(name: str) -> Json:
    """Return the metadata of a claim that another job owns."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": name,
        "uid": "u",
        "controller": True,
    }
    return {
        "ownerReferences": [owner],
        "labels": {names.LABEL_JOB_NAME: name, names.LABEL_JOB_UID: "u"},
    }


@pytest.mark.guarantee("volume-claims-of-members")
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "data-job-worker-0 is being deleted"),
        (
            owned("another"),
            "data-job-worker-0 exists and does not belong to this job; the member waits until it "
            "is deleted",
        ),
    ],
)
async def test_no_pod_is_created_with_a_claim_that_is_being_deleted(
    metadata: Json, message: str
) -> None:
    cluster = with_claims(new_cluster(replicas=1), "data")
    await cluster.create(
        VOLUME_CLAIMS, {"metadata": {"name": "data-job-worker-0"} | metadata, "spec": SPEC}
    )
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await works(cluster)
    assert message in cluster.job().status.message
    assert cluster.kube.pods() == []
    cluster.kube.remove(VOLUME_CLAIMS, "data-job-worker-0")
    await cluster.settle()
    (pod,) = cluster.kube.pods()
    assert claim_of(cluster, pod["metadata"]["name"]) == "data-job-worker-0"
    assert cluster.job().status.message == ""


@pytest.mark.guarantee("job-recreated-under-its-name")
async def test_a_job_made_again_waits_for_claims_of_the_earlier_one_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_executor, "_CREATE_RETRY_SECONDS", ())
    cluster = with_claims(Cluster(replicas=1), "data")
    cluster.kube.now = time.time
    await cluster.create(
        VOLUME_CLAIMS, {"metadata": {"name": "data-job-worker-0"} | owned(JOB), "spec": SPEC}
    )
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await works(cluster)
    assert cluster.kube.pods() == []
    assert cluster.job().status.message == "waiting: 0 of 1 workers ready"
    assert "Refused" not in str(await cluster.events())
    cluster.kube.remove(VOLUME_CLAIMS, "data-job-worker-0")
    await cluster.settle()
    assert len(cluster.kube.pods()) == 1
    cluster.check_final_state()


@pytest.mark.guarantee("volume-claims-of-members")
async def test_a_claim_that_is_refused_keeps_its_member_waiting_with_the_reason() -> None:
    cluster = with_claims(new_cluster(replicas=2), "data")

    def over_quota(resource: Resource, body: Json) -> None:
        if resource == VOLUME_CLAIMS and body["metadata"]["name"].endswith("-1"):
            raise Refused(403, "Forbidden", "exceeded quota: requests.storage=10Gi")

    cluster.kube.before_create = over_quota
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await works(cluster)
    assert "exceeded quota" in cluster.job().status.message
    assert [pod["metadata"]["labels"][names.LABEL_INDEX] for pod in cluster.kube.pods()] == ["0"]
    cluster.kube.remove(PODS, cluster.kube.pods()[0]["metadata"]["name"])
    await works(cluster)
    assert [pod["metadata"]["labels"][names.LABEL_INDEX] for pod in cluster.kube.pods()] == ["0"], (
        "a claim that exists is not made again, which the quota would refuse"
    )
