"""Tests that the operator creates and corrects a job's infrastructure.

The PodGroup and the pods must have the fields that gang schedulers read.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.query_token import query_token
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    ELASTIC_JOBS,
    NATIVE_POD_GROUPS,
    PODS,
    ROLES,
    SCALE_PLANS,
    SECRETS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from elasticjob_operator.core.manifests import gang, infrastructure, pods
from elasticjob_operator.core.manifests.infrastructure import correction_patch
from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.ensure_infrastructure import ensure_infrastructure
from elasticjob_operator.errors import COLLECTION_SECONDS
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import Retry

from tests.support.job_cluster import pod_names
from tests.support.simulator.cluster import DEFAULTS, JOB, NAMESPACE, Cluster, Operator, job_body

KEY = JobKey(NAMESPACE, JOB)
GROUPS = {
    "volcano": VOLCANO_POD_GROUPS,
    "coscheduling": COSCHEDULING_POD_GROUPS,
    "native": NATIVE_POD_GROUPS,
}


def policy(kind: str, **more: Any) -> Json:
    return {"runPolicy": {"schedulingPolicy": {"gang": kind, **more}}}


def job(body: Json) -> ElasticJob:
    body["metadata"] |= {"uid": "u"}
    return msgspec.convert(body, ElasticJob)


def made(of: ElasticJob) -> tuple[Json, Json]:
    """Return the manifests of a member's and the master's pod."""
    member = pods.member_pod(of, "worker", 0, 0, resources={}, restarts=0, defaults=DEFAULTS)
    return member, master_pod(of, 0, restarts=0, defaults=DEFAULTS)


def test_the_gang_is_the_master_and_every_role_at_its_least() -> None:
    containers = [
        {
            "command": ["t"],
            "resources": {
                "limits": {"nvidia.com/gpu": 2, "cpu": "2"},
                "requests": {"cpu": "1500m"},
            },
        },
        {"resources": {"requests": {"memory": "512Mi"}}},
    ]
    init = [{"resources": {"requests": {"memory": "1Gi", "cpu": "100m"}}}, {"resources": {}}]
    template = {"spec": {"containers": containers, "initContainers": init}}
    body = job_body(
        8,
        3,
        16,
        worker={"template": template},
        **policy("volcano", queue="q", priorityClassName="high"),
    )
    body["spec"]["replicaSpecs"]["ps"] = {
        "minReplicas": 2,
        "template": {"spec": {"containers": [{}]}},
    }
    body["spec"]["master"] = {"resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    assert gang.pod_group_spec(job(body)) == {
        "minMember": 6,
        "minResources": {
            "cpu": "4.6",
            "memory": str(3 * 1024**3 + 128 * 1024**2),
            "nvidia.com/gpu": "6",
        },
        "queue": "q",
        "priorityClassName": "high",
    }
    body["spec"]["runPolicy"]["schedulingPolicy"] = {
        "gang": "coscheduling",
        "priorityClassName": "high",
    }
    group = gang.pod_group_spec(job(body))
    assert group is not None
    assert set(group) == {"minMember", "minResources"}, (
        "coscheduling knows no queue and no priority of a group"
    )
    body["spec"]["runPolicy"]["schedulingPolicy"] = {"gang": "none"}
    assert gang.pod_group_spec(job(body)) is None


def test_the_pods_of_a_native_gang_name_it_in_their_spec_and_have_its_priority() -> None:
    of = job(job_body(2, 1, 4, **policy("native", priorityClassName="high")))
    assert gang.pod_group_spec(of) == {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "priorityClassName": "high",
    }
    for pod in made(of):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": JOB}
        assert pod["spec"]["priorityClassName"] == "high"
        assert pod["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("field", "where", "said"),
    [
        ({"priorityClassName": "high"}, "worker", "schedulingPolicy.priorityClassName instead"),
        ({"schedulerName": "mine"}, "worker", "'mine' in the templates of all roles"),
        ({"preemptionPolicy": "Never"}, "master", "'Never' in the templates of all roles"),
    ],
)
async def test_a_pod_that_would_keep_its_native_gang_from_being_scheduled_is_refused(
    field: Json, where: str, said: str
) -> None:
    cluster = Cluster(**policy("native"))
    spec = cluster._body["spec"]
    of = spec["replicaSpecs"]["worker"] if where == "worker" else spec.setdefault("master", {})
    of.setdefault("template", {}).setdefault("spec", {}).update(field)
    await cluster.start()
    path = "spec.replicaSpecs.worker" if where == "worker" else "spec.master"
    message = cluster.job().status.message
    assert cluster.job().status.phase == "Failed"
    assert message.startswith(f"{path}.template.spec.{next(iter(field))}: with")
    assert said in message


@pytest.mark.parametrize("kind", ["volcano", "coscheduling"])
def test_members_and_master_say_that_they_belong_to_the_gang(kind: str) -> None:
    for pod in made(job(job_body(2, 1, 4, **policy(kind, priorityClassName="high")))):
        marks = {**pod["metadata"]["labels"], **pod["metadata"]["annotations"]}
        key = {
            "volcano": "scheduling.k8s.io/group-name",
            "coscheduling": "scheduling.x-k8s.io/pod-group",
        }[kind]
        assert marks[key] == JOB
        expected = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}[kind]
        assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == (
            expected,
            "high",
        )


def test_a_scheduler_that_the_template_names_is_kept_and_without_a_gang_none_is_named() -> None:
    container = {"name": "train", "command": ["t"]}
    template = {"spec": {"containers": [container], "schedulerName": "mine"}}
    member, master = made(
        job(job_body(2, 1, 4, worker={"template": template}, **policy("volcano")))
    )
    assert (member["spec"]["schedulerName"], master["spec"]["schedulerName"]) == ("mine", "volcano")
    for pod in made(job(job_body(2, 1, 4))):
        assert "schedulerName" not in pod["spec"]
        assert all(
            names.GROUP in key or "safe-to-evict" in key
            for key in {**pod["metadata"]["labels"], **pod["metadata"]["annotations"]}
        )


def test_the_queue_label_of_kueue_is_passed_on_unless_the_template_has_its_own() -> None:
    body = job_body(2, 1, 4)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team", "other": "x"}
    for pod in made(job(body)):
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert "other" not in pod["metadata"]["labels"]
    body["spec"]["replicaSpecs"]["worker"]["template"]["metadata"] = {
        "labels": {"kueue.x-k8s.io/queue-name": "own"}
    }
    assert made(job(body))[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "own"


@pytest.mark.parametrize("kind", ["none", "coscheduling"])
async def test_a_queue_that_no_scheduler_would_read_is_refused(kind: str) -> None:
    cluster = Cluster(**policy(kind, queue="q"))
    await cluster.start()
    assert cluster.job().status.phase == "Failed"
    assert (
        "spec.runPolicy.schedulingPolicy.queue: 'q' is a queue of Volcano"
        in cluster.job().status.message
    )


def test_a_member_is_ready_when_its_agent_says_so_unless_the_user_knows_better() -> None:
    def container(**template_spec: Any) -> Json:
        found = {"name": "train", "command": ["t"], **template_spec.pop("container", {})}
        template = {"spec": {"containers": [found], **template_spec}}
        first: Json = made(job(job_body(2, 1, 4, worker={"template": template})))[0]["spec"][
            "containers"
        ][0]
        return first

    assert container()["readinessProbe"]["tcpSocket"] == {"port": names.AGENT_READY_PORT}
    assert container(container={"readinessProbe": {"exec": {"command": ["x"]}}})[
        "readinessProbe"
    ] == {"exec": {"command": ["x"]}}
    assert "readinessProbe" not in container(hostNetwork=True), (
        "the port would be the node's, and taken by another"
    )


def test_a_correction_is_the_difference_and_does_not_change_unknown_fields() -> None:
    manifest = {
        "kind": "X",
        "metadata": {"labels": {"a": "b"}},
        "spec": {"a": 1, "in": {"b": [1], "c": 2}},
        "rules": [],
    }
    found: Json = {
        "spec": {"a": 1, "in": {"b": [1], "c": 2, "theirs": 3}, "theirs": 4},
        "rules": [],
        "status": {},
    }
    assert correction_patch(manifest, found) == {}
    found["spec"]["in"]["b"] = [2]
    found["rules"] = [{}]
    assert correction_patch(manifest, found) == {"spec": {"in": {"b": [1]}}, "rules": []}
    assert correction_patch(manifest, {}) == {"spec": manifest["spec"], "rules": []}


# --- with the engine


async def _again(cluster: Cluster) -> None:
    """Let another process of the operator take over."""
    cluster.operator = Operator(cluster.kube)
    await cluster.settle()


async def test_the_pod_group_comes_before_the_pods_and_follows_min_replicas() -> None:
    cluster = Cluster(replicas=3, least=2, **policy("volcano"))
    await cluster.start()
    group = cluster.kube.objects[VOLCANO_POD_GROUPS, JOB]
    assert group["spec"]["minMember"] == 3
    assert group["metadata"]["ownerReferences"][0]["uid"] == cluster.job().metadata.uid
    later = [*cluster.kube.pods(), *cluster.kube.pods(names.ROLE_MASTER)]
    made = "creationTimestamp"
    assert all(group["metadata"][made] < pod["metadata"][made] for pod in later)
    cluster.edit_role(minReplicas=1)
    await cluster.settle()
    assert cluster.kube.objects[VOLCANO_POD_GROUPS, JOB]["spec"]["minMember"] == 2
    cluster.kube.edit(
        ELASTIC_JOBS,
        JOB,
        lambda spec: spec.update(runPolicy={**spec["runPolicy"], "suspend": True}),
    )
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    assert (VOLCANO_POD_GROUPS, JOB) in cluster.kube.objects, "a suspended job keeps its PodGroup"


@pytest.mark.guarantee("native-gang")
async def test_a_native_gang_is_as_large_as_the_job_needs_it_now() -> None:
    cluster = Cluster(replicas=4, least=2, **policy("native"))

    def count() -> int:
        group = cluster.kube.objects[NATIVE_POD_GROUPS, JOB]
        return int(group["spec"]["schedulingPolicy"]["gang"]["minCount"])

    cluster._body["spec"]["runPolicy"]["startPolicy"] = "AllReady"
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.operator.watch()
    await cluster.operator.reconciler.reconcile(KEY)
    assert count() == 5, "all replicas start together"
    await cluster.settle()
    assert count() == 3, "minReplicas, while it runs"
    cluster.end("job-worker-0", 0)
    await cluster.settle()
    assert count() == 2, "an ended pod does not count any more"


async def test_changes_by_other_clients_are_reported_as_restored_and_not_those_of_the_job() -> None:
    cluster = Cluster(replicas=3, least=2, **policy("volcano"))
    role = (ROLES, names.master_service(JOB))
    await cluster.start()
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec.update(autoscaling={"enabled": True}))
    await cluster.settle()
    cluster.edit_role(minReplicas=1)
    await cluster.settle()
    rules = cluster.kube.objects[role]["rules"]
    assert names.profile_config_map(JOB) in str(rules), "the master may write the profile now"
    assert cluster.kube.objects[VOLCANO_POD_GROUPS, JOB]["spec"]["minMember"] == 2
    assert [text for text in await cluster.events() if "Restored" in text] == []
    cluster.kube._store(ROLES, {**cluster.kube.objects[role], "rules": []})
    cluster.operator.store.infrastructure(cluster.job()).invalidate()  # the watch has noticed it
    await cluster.settle()
    assert cluster.kube.objects[role]["rules"] == rules
    assert [text for text in await cluster.events() if "Restored" in text] == [
        f"Restored: Role {names.master_service(JOB)} had other contents and is corrected"
    ]


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize(
    "answer",
    [
        NotFound(404, "", "404 page not found"),
        NotFound(404, "NotFound", "the server could not find the requested resource"),
    ],
    ids=["no group", "no kind"],
)
async def test_without_the_definition_the_job_says_which_one_and_starts_when_it_appears(
    kind: str, answer: NotFound
) -> None:
    cluster = Cluster(replicas=2, **policy(kind))
    tries = list[str]()

    def unknown_kind(resource: Resource, body: Json) -> None:
        if resource == GROUPS[kind]:
            tries.append(body["metadata"]["name"])
            raise answer

    cluster.kube.before_create = unknown_kind
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.operator.watch()
    for _ in range(3):
        with pytest.raises(Retry, match=f"podgroups.{GROUPS[kind].group}"):
            await cluster.operator.reconciler.reconcile(KEY)
    assert len(tries) == 3, "one for each pause of the queue"
    message = cluster.job().status.message
    assert f"{kind} needs podgroups.{GROUPS[kind].group}" in message
    assert gang.SCHEDULERS[kind].remedy in message
    assert cluster.kube.all(PODS) == []
    before = cluster.kube.raw[ELASTIC_JOBS, JOB]
    with pytest.raises(Retry):
        await cluster.operator.reconciler.reconcile(KEY)
    assert cluster.kube.raw[ELASTIC_JOBS, JOB] == before, "reported once"
    cluster.kube.before_create = None
    await cluster.settle()
    cluster.check_final_state()
    assert pod_names(cluster) == [
        "job-worker-0",
        "job-worker-1",
    ]
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master"], "no name is used up"
    assert cluster.job().status.message == ""


async def test_a_deleted_namespace_is_not_taken_for_a_missing_definition() -> None:
    cluster = Cluster(replicas=1, **policy("volcano"))

    def gone(resource: Resource, body: Json) -> None:
        if resource == VOLCANO_POD_GROUPS:
            raise NotFound(404, "NotFound", 'namespaces "ns" not found')

    cluster.kube.before_create = gone
    with pytest.raises(NotFound, match="namespaces"):
        await ensure_infrastructure(cluster.operator.session, job(cluster._body))


@pytest.mark.guarantee("upgrade-while-jobs-run")
async def test_what_an_operator_of_another_version_has_made_is_corrected_by_the_next_one() -> None:
    cluster = Cluster()
    await cluster.start()
    name = names.master_service(JOB)
    rules = cluster.kube.objects[ROLES, name]["rules"]
    secret = cluster.kube.objects[SECRETS, name]["data"]
    cluster.kube.objects[ROLES, name] |= {"rules": rules[:1]}
    cluster.kube._store(ROLES, cluster.kube.objects[ROLES, name])
    cluster.kube.objects[SERVICES, name]["spec"] |= {"ports": [], "clusterIP": "10.0.0.7"}
    cluster.kube._store(SERVICES, cluster.kube.objects[SERVICES, name])
    await _again(cluster)
    assert cluster.kube.objects[ROLES, name]["rules"] == rules
    service = cluster.kube.objects[SERVICES, name]["spec"]
    assert [port["port"] for port in service["ports"]] == [names.GRPC_PORT, names.HTTP_PORT]
    assert service["clusterIP"] == "10.0.0.7", "what the API server has chosen stays"
    assert cluster.kube.objects[SECRETS, name]["data"] == secret
    writes = cluster.kube.writes
    await _again(cluster)
    assert cluster.kube.writes == writes, "what is as it should be is only read"


async def test_before_another_master_is_made_it_is_checked_that_it_can_run() -> None:
    cluster = Cluster()
    await cluster.start()
    cluster.kube.remove(SERVICES, names.master_service(JOB))
    cluster.end("job-master", 1)
    await cluster.settle()
    assert (SERVICES, names.master_service(JOB)) in cluster.kube.objects
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]


@pytest.mark.parametrize("resource", [SECRETS, SERVICES, VOLCANO_POD_GROUPS])
@pytest.mark.parametrize("incarnations", [0, 1])
async def test_an_object_of_another_owner_is_not_changed_but_named(
    resource: Resource, incarnations: int
) -> None:
    cluster = Cluster(**policy("volcano"))
    name = JOB if resource == VOLCANO_POD_GROUPS else names.master_service(JOB)
    foreign = {
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"theirs": 1},
    }
    await cluster.kube.create(resource, NAMESPACE, foreign)
    before = dict(cluster.kube.raw)
    body = {**cluster._body, "status": {"master": {"incarnations": incarnations}}}
    with pytest.raises(
        Refused,
        match=f"{resource.kind} {name} exists and does not belong to this job; "
        "delete it, or rename",
    ):
        await ensure_infrastructure(cluster.operator.session, job(body))
    assert cluster.kube.raw[resource, name] == before[resource, name]


def of_earlier_job(
    name: str, kind: str = ELASTIC_JOBS.kind, api_version: str = names.API_VERSION
) -> Json:
    """Return the metadata of an object of a job that had the same name."""
    owner = {
        "apiVersion": api_version,
        "kind": kind,
        "name": JOB,
        "uid": "earlier",
        "controller": True,
    }
    labels = {names.LABEL_JOB_NAME: JOB, names.LABEL_JOB_UID: "earlier"}
    return {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}


@pytest.mark.guarantee("job-recreated-under-its-name")
@pytest.mark.parametrize("resource", [SECRETS, SERVICES, SCALE_PLANS])
async def test_a_job_made_again_says_nothing_while_the_old_ones_objects_are_being_collected(
    resource: Resource,
) -> None:
    cluster = Cluster()
    name = names.master_service(JOB)
    cluster.kube.now = time.time
    if resource == SCALE_PLANS:
        await cluster.start()
        name = f"{JOB}-spec-{cluster.job().metadata.generation + 1}"
        cluster.edit_role(replicas=3)
    else:
        await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.kube.create(
        resource, NAMESPACE, {"metadata": of_earlier_job(name), "spec": {"jobName": JOB}}
    )
    await cluster.operator.watch()
    for _ in range(3):
        with pytest.raises(
            Retry, match=f"{resource.kind} {name} belongs to an earlier ElasticJob {JOB} until"
        ) as retry:
            await cluster.operator.reconciler.reconcile(KEY)
        assert retry.value.longest <= 10
    assert name not in cluster.job().status.message
    assert not [text for text in await cluster.events() if "Refused" in text]
    cluster.kube.remove(resource, name)
    await cluster.settle()
    cluster.check_final_state()
    assert len(cluster.kube.pods("worker")) == cluster.job().spec.replica_specs["worker"].replicas


async def test_objects_of_an_earlier_job_that_stay_for_long_are_reported() -> None:
    cluster = Cluster()
    name = names.master_service(JOB)
    cluster.kube.now = lambda: time.time() - COLLECTION_SECONDS - 1
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.kube.create(SECRETS, NAMESPACE, {"metadata": of_earlier_job(name)})
    await cluster.operator.watch()
    with pytest.raises(Retry):
        await cluster.operator.reconciler.reconcile(KEY)
    owner = f"an earlier ElasticJob {JOB} until the garbage collector has deleted it"
    assert f"Refused: Secret {name} belongs to {owner}" in await cluster.events()


@pytest.mark.parametrize(
    ("kind", "group"), [("ElasticJob", "else.example/v1"), ("Other", names.API_VERSION)]
)
async def test_an_object_owned_by_another_kind_of_object_is_refused(kind: str, group: str) -> None:
    cluster = Cluster()
    name = names.master_service(JOB)
    await cluster.kube.create(SECRETS, NAMESPACE, {"metadata": of_earlier_job(name, kind, group)})
    with pytest.raises(Refused, match=f"Secret {name} exists and does not belong to this job"):
        await ensure_infrastructure(cluster.operator.session, job(cluster._body))


async def test_a_request_of_the_master_s_that_is_no_quantity_is_refused_with_the_field() -> None:
    master: Json = {"master": {"resources": {"requests": {"cpu": "many"}}}}
    cluster = Cluster(**policy("volcano"), **master)
    await cluster.start()
    assert "spec.master: 'many' is not a quantity" in cluster.job().status.message
    with pytest.raises(Refused, match=r"spec\.master\.resources: 'many' is not a quantity"):
        await ensure_infrastructure(cluster.operator.session, job(cluster._body))


def test_nothing_but_what_the_manifests_depend_on_makes_them_checked_again() -> None:
    body = job_body(2, 1, 4, **policy("volcano"))
    before = infrastructure.manifest_inputs(job(body))
    body["spec"]["replicaSpecs"]["worker"]["replicas"] = 4
    assert infrastructure.manifest_inputs(job(body)) == before
    body["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 2
    assert infrastructure.manifest_inputs(job(body)) != before


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_token_that_reads_follows_the_jobs_own_and_is_made_for_older_jobs() -> None:
    cluster = Cluster()
    await cluster.start()
    own = names.master_service(JOB)
    reading = names.query_config_map(JOB)

    def content() -> dict[str, str]:
        data = cluster.kube.objects[SECRETS, own]["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def readable() -> Any:
        return cluster.kube.objects[CONFIG_MAPS, reading]["data"]

    def follows() -> bool:
        token = query_token(content()[names.SECRET_TOKEN])
        authority = content()[names.SECRET_CA]
        return bool(readable() == {names.SECRET_TOKEN: token, names.SECRET_CA: authority})

    assert follows()
    assert readable()[names.SECRET_TOKEN] not in content().values()
    first = content()
    del cluster.kube.objects[CONFIG_MAPS, reading]  # as of a job that an earlier operator has made
    await _again(cluster)
    assert follows()
    assert content() == first
    await cluster.kube.patch(
        CONFIG_MAPS, NAMESPACE, reading, {"binaryData": {names.REPORT_KEY: "AAAA"}}
    )
    del cluster.kube.objects[SECRETS, own]
    await _again(cluster)
    assert content() != first
    assert follows()
    assert cluster.kube.objects[CONFIG_MAPS, reading]["binaryData"] == {names.REPORT_KEY: "AAAA"}, (
        "the master's"
    )
