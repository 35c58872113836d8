"""Tests that the operator restores the objects of a running job after changes by other clients."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from elasticjob_operator import infrastructure_watch
from elasticjob_operator.core.manifests.infrastructure import (
    infrastructure_manifests,
    metadata_correction,
)
from elasticjob_operator.infrastructure_watch import InfrastructureWatch, Metadata
from elasticjob_operator.job_keys import JobKey

from tests.support.job_cluster import ending, pod_names
from tests.support.simulator.cluster import JOB, Cluster, Operator, job_body
from tests.support.wait import until

MASTER = names.master_service(JOB)


async def running(**spec: Any) -> Cluster:
    cluster = Cluster(**spec)
    await cluster.start()
    return cluster


def watch(
    cluster: Cluster, changed: list[JobKey], *, check_seconds: float = 600.0
) -> InfrastructureWatch:
    return InfrastructureWatch(
        cluster.operator.session,
        cluster.operator.store,
        changed.append,
        check_seconds=check_seconds,
    )


def metadata_of(cluster: Cluster, resource: Resource, name: str) -> Metadata:
    return msgspec.convert(cluster.kube.objects[resource, name], Metadata)


@pytest.mark.guarantee("infrastructure-deleted-or-changed")
async def test_no_member_is_created_before_deleted_objects_are_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await running(replicas=2)
    service = metadata_of(cluster, SERVICES, MASTER)
    cluster.kube.remove(SERVICES, MASTER)
    cluster.kube.remove(PODS, "job-worker-0")
    changed: list[JobKey] = []
    watch(cluster, changed)._handler(SERVICES)(service, None)
    assert [key.name for key in changed] == [JOB]
    created: list[str] = []

    def recorded(resource: Resource, body: Json) -> None:
        created.append(body["metadata"]["name"])

    cluster.kube.before_create = recorded
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-1", "job-worker-1"]
    assert created.index(MASTER) < created.index("job-worker-0-1")


async def test_a_lost_service_whose_address_another_has_taken_is_restored_at_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(replicas=2)
    asked = []

    def allocating(resource: Resource, body: Json) -> None:
        if (resource, body["metadata"]["name"]) == (SERVICES, MASTER):
            asked.append(address := body["spec"].get("clusterIP"))
            if address is not None:
                raise Refused(422, "Invalid", "spec.clusterIPs: the IP is already allocated")
            body["spec"]["clusterIP"] = f"10.0.0.{len(asked)}"

    cluster.kube.before_create = allocating
    await cluster.start()
    service = metadata_of(cluster, SERVICES, MASTER)
    cluster.kube.remove(SERVICES, MASTER)
    watch(cluster, [])._handler(SERVICES)(service, None)
    await cluster.settle()
    assert asked == [None, "10.0.0.1", None]
    assert (SERVICES, MASTER) in cluster.kube.objects


@pytest.mark.guarantee("service-account-recreated")
async def test_a_master_whose_account_was_made_again_is_replaced_at_once_and_not_counted() -> None:
    cluster = await running(replicas=2)
    before = metadata_of(cluster, SERVICE_ACCOUNTS, MASTER)
    cluster.kube.remove(SERVICE_ACCOUNTS, MASTER)
    cluster.kube.version += 10  # each is a second of the API server's clock
    watch(cluster, [])._handler(SERVICE_ACCOUNTS)(before, None)
    await cluster.settle()
    await cluster.settle()
    masters = [
        name for resource, name in cluster.kube.objects if resource == PODS and "master" in name
    ]
    assert masters == ["job-master-1"], "which has a token of the new account"
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"], "the training goes on"
    assert cluster.job().status.master.restarts == 0


@pytest.mark.guarantee("secret-lost-for-good")
async def test_a_lost_secret_replaces_all_pods_members_first() -> None:
    cluster = await running(replicas=2)
    cluster.kube.remove(SECRETS, MASTER)
    cluster.kube.version += 10  # each is a second of the API server's clock
    cluster.operator = Operator(cluster.kube)  # a new process, which has never seen the contents
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-0", "job-worker-1"], (
        "the master they save through goes last"
    )
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-1", "job-worker-1-2"]
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]
    assert "MadeAnew: Secret job-master was deleted" in str(await cluster.events())
    assert cluster.job().status.restarts == cluster.job().status.master.restarts == 0
    cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-1", "job-worker-1-2"], "no pod is replaced again"


@pytest.mark.guarantee("infrastructure-deleted-or-changed")
async def test_a_change_by_another_client_is_noticed_and_the_operators_own_is_not() -> None:
    cluster = await running()
    changed: list[JobKey] = []
    on_change = watch(cluster, changed)._handler(SERVICES)
    before = metadata_of(cluster, SERVICES, MASTER)
    on_change(None, before)
    assert changed == [], "it is as the operator has made it"
    cluster.kube.objects[SERVICES, MASTER]["spec"]["ports"] = []
    cluster.kube._store(SERVICES, cluster.kube.objects[SERVICES, MASTER])
    on_change(before, metadata_of(cluster, SERVICES, MASTER))
    assert len(changed) == 1
    await cluster.settle()
    corrected = metadata_of(cluster, SERVICES, MASTER)
    assert len(cluster.kube.objects[SERVICES, MASTER]["spec"]["ports"]) == 2
    on_change(before, corrected)
    assert len(changed) == 1
    stranger = msgspec.structs.replace(
        corrected.metadata, labels={**corrected.metadata.labels, names.LABEL_JOB_UID: "x"}
    )
    on_change(Metadata(stranger), None)
    assert len(changed) == 1, "a label does not make an object the job's"


@pytest.mark.guarantee("infrastructure-deleted-or-changed")
async def test_repeated_deletions_are_answered_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(infrastructure_watch, "CORRECTION_SECONDS", 0.2)
    cluster = await running()
    changed: list[JobKey] = []
    on_change = watch(cluster, changed)._handler(SERVICES)
    for _ in range(100):
        on_change(metadata_of(cluster, SERVICES, MASTER), None)
    assert len(changed) == 1
    await until("the last deletion is answered, too", lambda: len(changed) == 2)


@pytest.mark.guarantee("infrastructure-deleted-or-changed")
async def test_a_lost_secret_is_restored_as_it_was_while_pods_have_its_contents() -> None:
    cluster = await running()
    contents = cluster.kube.objects[SECRETS, MASTER]["data"]
    assert cluster.kube.objects[SECRETS, MASTER]["immutable"] is True
    job = cluster.operator.store.job(JobKey("ns", JOB))
    assert job is not None
    for _ in range(2):
        cluster.kube.remove(SECRETS, MASTER)
        cluster.operator.store.infrastructure(job).invalidate()
        await cluster.settle()
        assert cluster.kube.objects[SECRETS, MASTER]["data"] == contents
    cluster.edit_policy(suspend=True)
    await cluster.settle()
    cluster.kube.remove(SECRETS, MASTER)
    cluster.edit_policy(suspend=False)
    await cluster.settle()
    assert cluster.kube.objects[SECRETS, MASTER]["data"] != contents, (
        "how a token that has leaked is replaced"
    )


@pytest.mark.guarantee("infrastructure-deleted-or-changed")
@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (SECRETS, MASTER),
        (CONFIG_MAPS, names.query_config_map(JOB)),
        (CONFIG_MAPS, names.state_config_map(JOB)),
        (VOLCANO_POD_GROUPS, JOB),
    ],
)
async def test_what_cannot_be_watched_is_asked_for(
    resource: Resource, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await running(runPolicy={"schedulingPolicy": {"gang": "volcano"}})
    changed: list[JobKey] = []
    checked: list[ElasticJob] = []
    watching = watch(cluster, changed, check_seconds=0.01)
    check = watching._check

    async def recorded(job: ElasticJob) -> None:
        await check(job)
        checked.append(job)

    monkeypatch.setattr(watching, "_check", recorded)
    checking = asyncio.create_task(watching._check_for_ever())
    try:
        await until("two checks", lambda: len(checked) >= 2)
        assert changed == [], "all is as the operator has made it"
        cluster.kube.remove(resource, name)
        await until("the loss is noticed", lambda: changed)
        await cluster.settle()
        assert (resource, name) in cluster.kube.objects
    finally:
        checking.cancel()
        await asyncio.wait([checking])


def test_labels_and_owner_come_back_and_those_of_others_stay() -> None:
    body = job_body(2, 1, 4)
    body["metadata"] |= {"uid": "u"}
    manifest = infrastructure_manifests(msgspec.convert(body, ElasticJob))[0]
    theirs = {"uid": "other", "kind": "Other"}
    labels = {"theirs": "1", **manifest["metadata"]["labels"]}
    del labels[names.LABEL_ROLE]
    found = {"metadata": {"labels": labels, "ownerReferences": [theirs]}}
    assert metadata_correction(manifest, found) == {
        "labels": {names.LABEL_ROLE: names.ROLE_MASTER},
        "ownerReferences": [theirs, *manifest["metadata"]["ownerReferences"]],
    }
    assert metadata_correction(manifest, manifest) == {}


@pytest.mark.guarantee("connections-from-other-pods")
@pytest.mark.parametrize(("wanted", "host_network"), [(True, False), (True, True), (False, False)])
def test_only_pods_of_the_job_may_connect_to_its_pods(wanted: bool, host_network: bool) -> None:
    template = {
        "spec": {"hostNetwork": host_network, "containers": [{"name": "train", "command": ["t"]}]}
    }
    body = job_body(2, 1, 4, worker={"template": template})
    body["metadata"] |= {"uid": "u"}
    manifests = infrastructure_manifests(msgspec.convert(body, ElasticJob), network_policies=wanted)
    policies = [
        manifest["spec"] for manifest in manifests if manifest["kind"] == NETWORK_POLICIES.kind
    ]
    own = {"podSelector": {"matchLabels": {names.LABEL_JOB_UID: "u"}}}
    expected = [{**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}]
    assert policies == (expected if wanted and not host_network else []), (
        "nodes' addresses say nothing of a job"
    )
