"""Tests that labels and host names of other operators' pods become those of the members."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from elasticjob_api.names import LABEL_INDEX, LABEL_JOB_NAME, LABEL_ROLE
from elasticjob_cli.convert.converters import convert
from elasticjob_cli.convert.peers import jobs_of
from elasticjob_cli.convert.report import Kind

from tests.support.convert import (
    container_of,
    converted,
    notes_of,
    role_of,
    sample,
    spec_of,
    told,
    written,
)
from tests.support.peer_documents import minimal

KUBEFLOW = "training.kubeflow.org/"
DLROVER = "elasticjob.dlrover/"
JOB_SET = "jobset.sigs.k8s.io/"
NAME = "A_b"
"""A job whose name is another one here."""


def pytorch(*, master: bool = True) -> Any:
    document = minimal("kubeflow.org/v1", "PyTorchJob")
    if master:
        groups = document["spec"]["pytorchReplicaSpecs"]
        groups["Master"] = groups["Worker"] | {"replicas": 1}
    return document


def tensorflow(*kinds: str) -> Any:
    document = minimal("kubeflow.org/v1", "TFJob")
    group = document["spec"]["tfReplicaSpecs"].pop("Worker") | {"replicas": 1}
    document["spec"]["tfReplicaSpecs"] = dict.fromkeys(kinds, group)
    return document


def service(selector: dict[str, str]) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "labels": selector},
        "spec": {"selector": selector | {"app": "mine"}},
    }


def member(role: str | None = None, index: int | None = None) -> Any:
    """Return the labels of a member."""
    values = {LABEL_JOB_NAME: "job", LABEL_ROLE: role, LABEL_INDEX: index}
    return {key: str(value) for key, value in values.items() if value is not None}


MPI = minimal("kubeflow.org/v2beta1", "MPIJob")
ET = minimal("kai.alibabacloud.com/v1alpha1", "TrainingJob")
DLR = minimal("elastic.iml.github.io/v1alpha1", "ElasticJob")
TRAIN = minimal("trainer.kubeflow.org/v1alpha1", "TrainJob")
MX = minimal("mpba.fbk.eu/v1", "MXJob")
SELECTORS: list[tuple[Any, dict[str, str], Any]] = [
    (pytorch(), {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}replica-type": "master"},
     member("worker", 0)),
    (pytorch(), {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}job-role": "master",
                 f"{KUBEFLOW}operator-name": "pytorchjob-controller"}, member("worker", 0)),
    (pytorch(), {"group-name": "kubeflow.org", "pytorch-job-name": "job",
                 "pytorch-replica-type": "worker", "pytorch-replica-index": "1"},
     member("worker", 2)),
    (pytorch(), {"job-name": "job", "replica-type": "worker"}, member("worker")),
    (pytorch(master=False), {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}replica-index": "1"},
     member(None, 1)),
    (tensorflow("Chief", "PS"), {"tf-job-name": "job", "tf-replica-type": "ps",
                                 "tf-replica-index": "0"}, member("ps", 0)),
    (tensorflow("Chief", "PS"), {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}job-role": "master"},
     member("chief")),
    (tensorflow("Master", "Worker"), {f"{KUBEFLOW}job-name": "job",
                                      f"{KUBEFLOW}replica-type": "master"}, member("chief")),
    (tensorflow("Worker", "PS"), {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}job-role": "master"},
     member("worker", 0)),
    (MPI, {f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}job-role": "launcher"}, member("launcher")),
    (MPI, {"mpi-job-name": "job", "mpi-job-role": "worker"}, member("worker")),
    (ET, {"group-name": "kai.alibabacloud.com", "training-job-name": "job",
          "training-job-role": "worker", "replica-index": "1"}, member("worker", 1)),
    (DLR, {f"{DLROVER}name": "job", f"{DLROVER}replica-type": "worker",
           f"{DLROVER}rank-index": "1"}, member("worker", 1)),
    (TRAIN, {f"{JOB_SET}jobset-name": "job", f"{JOB_SET}replicatedjob-name": "node",
             "batch.kubernetes.io/job-completion-index": "0"}, member("worker", 0)),
    (TRAIN, {f"{JOB_SET}jobset-name": "job"}, member("worker")),
    (MX, {"job_name": "job", "pod_name": "worker-job-1"}, member("worker", 1)),
]  # fmt: skip


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(("job", "theirs", "ours"), SELECTORS)
def test_a_service_selects_the_members_for_the_pods_of_a_job_of_its_file(
    job: Any, theirs: dict[str, str], ours: dict[str, str]
) -> None:
    result = converted(service(theirs), job)
    found: Any = result.object
    assert found["spec"]["selector"] == {"app": "mine"} | ours
    assert found["metadata"]["labels"] == theirs
    assert notes_of(result, Kind.LOST) == []
    assert not result.passed_through


def test_a_renamed_job_is_selected_by_its_new_name() -> None:
    job = pytorch()
    job["metadata"]["name"] = NAME
    selector = {f"{KUBEFLOW}job-name": NAME, f"{KUBEFLOW}replica-type": "master"}
    selected = spec_of(service(selector), job)["selector"]
    assert selected[LABEL_JOB_NAME] == written(job)["metadata"]["name"] != NAME


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ({f"{KUBEFLOW}job-name": "other"}, "a job that is not in this file"),
        ({f"{KUBEFLOW}replica-type": "worker"}, "a job that is not in this file"),
        ({f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}replica-type": "ps"}, "has no group ps"),
        ({f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}replica-index": "0"}, "name one of them"),
        ({f"{KUBEFLOW}job-name": "job", f"{KUBEFLOW}x": "0"}, "no pod here has a label"),
        ({f"{KUBEFLOW}job-name": "job", f"{DLROVER}replica-type": "dlrover-master"}, "no group"),
    ],
)
def test_a_selector_without_an_equivalent_is_lost_and_left_as_it_is(
    theirs: dict[str, str], reason: str
) -> None:
    document = service(theirs)
    result = converted(document, pytorch())
    assert result.object == document
    assert [reason in text for text in notes_of(result, Kind.LOST)] == [True]


def test_labels_of_the_user_are_left_alone() -> None:
    of_a_batch_job = service({"job-name": "preprocess", "batch.kubernetes.io/job-name": "x"})
    job = pytorch()
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"replica-type": "a100"}}
    for document in (of_a_batch_job, service({"group-name": "us"}), service({"replica-type": "a"})):
        assert converted(document, job).passed_through
    template["spec"]["nodeSelector"] = {"job-name": "x"}
    affinity = {"matchLabels": {"replica-type": "a100"}}
    template["spec"]["affinity"] = affinity_of(affinity)
    assert selector_of(job, "worker") == affinity


def affinity_of(selector: Any) -> Any:
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def selector_of(document: Any, role: str) -> Any:
    affinity = role_of(document, role)["template"]["spec"]["affinity"]
    [term] = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return term["labelSelector"]


WORKER = {LABEL_ROLE: "worker"}
NOT_FIRST = {"key": LABEL_INDEX, "operator": "NotIn", "values": ["0"]}


@pytest.mark.parametrize(
    ("operator", "values", "ours"),
    [
        ("In", ["worker"], {"matchLabels": WORKER, "matchExpressions": [NOT_FIRST]}),
        ("In", ["master"], {"matchLabels": WORKER | {LABEL_INDEX: "0"}}),
        ("In", ["Master", "worker"], {"matchLabels": WORKER}),
        ("NotIn", ["worker"], {"matchLabels": WORKER | {LABEL_INDEX: "0"}}),
        ("NotIn", ["master"], {"matchLabels": WORKER, "matchExpressions": [NOT_FIRST]}),
        ("Exists", [], {"matchExpressions": [{"key": LABEL_ROLE, "operator": "Exists"}]}),
    ],
)
def test_master_and_workers_of_an_affinity_are_parts_of_one_role(
    operator: str, values: list[str], ours: Any
) -> None:
    document = pytorch()
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    expression = {"key": f"{KUBEFLOW}replica-type", "operator": operator, "values": values}
    worker["spec"]["affinity"] = affinity_of({"matchExpressions": [expression]})
    assert selector_of(document, "worker") == ours


def test_a_jobs_own_master_is_not_selected_with_its_members() -> None:
    document = tensorflow("PS", "Worker")
    selector = {"matchLabels": {f"{KUBEFLOW}job-name": "job", "app": "mine"}}
    for group in document["spec"]["tfReplicaSpecs"].values():
        group["template"]["spec"]["affinity"] = affinity_of(selector)
    assert selector_of(document, "ps") == {
        "matchLabels": {"app": "mine", LABEL_JOB_NAME: "job"},
        "matchExpressions": [{"key": LABEL_ROLE, "operator": "NotIn", "values": ["master"]}],
    }
    differs = notes_of(converted(service(selector["matchLabels"]), document), Kind.DIFFERS)
    assert ["job's own master" in text for text in differs] == [True]


def test_a_network_policy_is_also_one_of_the_jobs_own_master() -> None:
    pods = {"matchLabels": {f"{KUBEFLOW}job-name": "job"}}
    spec = {"podSelector": pods, "ingress": [{"from": [{"podSelector": pods}]}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}
    ours = {"matchLabels": {LABEL_JOB_NAME: "job"}}
    found = spec_of(policy, pytorch())
    assert found == {"podSelector": ours, "ingress": [{"from": [{"podSelector": ours}]}]}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"selector": pods}}
    assert spec_of(budget, pytorch())["selector"] == {"matchLabels": member("worker")}


def test_a_service_with_the_name_of_the_members_service_is_reported() -> None:
    document = service({"app": "mine"})
    document["metadata"]["name"] = "job"
    for job in (pytorch(), minimal("frameworkcontroller.microsoft.com/v1", "Framework")):
        lost = notes_of(converted(document, job), Kind.LOST)
        assert ["the operator makes the Service job" in text for text in lost] == [True]


def test_keys_that_are_compared_are_ours_and_not_in_the_selector() -> None:
    document = pytorch(master=False)
    spec = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {f"{KUBEFLOW}job-name": "job"}},
            "matchLabelKeys": [f"{KUBEFLOW}replica-type", "app"],
        }
    ]
    [constraint] = role_of(document, "worker")["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["matchLabelKeys"] == [LABEL_ROLE, "app"]
    assert constraint["labelSelector"] == {"matchLabels": {LABEL_JOB_NAME: "job"}}


@pytest.mark.parametrize(
    ("document", "theirs", "ours"),
    [
        (pytorch(), f"metadata.labels['{KUBEFLOW}replica-index']", LABEL_INDEX),
        (pytorch(), f"metadata.labels['{KUBEFLOW}job-name']", LABEL_JOB_NAME),
        (DLR, f"metadata.labels['{DLROVER}replica-type']", LABEL_ROLE),
        (TRAIN, "metadata.annotations['batch.kubernetes.io/job-completion-index']", LABEL_INDEX),
    ],
)
def test_a_variable_with_a_label_gets_that_of_the_member(
    document: Any, theirs: str, ours: str
) -> None:
    document = copy.deepcopy(document)
    reference = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": theirs}}}
    spec = document["spec"]
    group = spec.get("pytorchReplicaSpecs", spec.get("replicaSpecs", {}))
    for each in group.values():
        each["template"]["spec"]["containers"][0]["env"] = [reference]
    if "trainer" in spec:
        spec["trainer"]["env"] = [reference]
    env = container_of(document, "worker")["env"]
    [variable] = [each for each in env if each["name"] == "X"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{ours}']"
    differs = notes_of(converted(document), Kind.DIFFERS)
    shifted = [text for text in differs if "one higher" in text]
    assert bool(shifted) == (ours == LABEL_INDEX and "pytorchReplicaSpecs" in spec)


def test_references_of_tasks_are_those_of_the_member() -> None:
    [document] = sample("framework_controller/batch.yaml")
    pod = document["spec"]["taskRoles"][0]["task"]["pod"]["spec"]
    pod["affinity"] = affinity_of({"matchLabels": {"FC_TASK_INDEX": "0", "FC_TASKROLE_NAME": "w"}})
    env = {"NAME": "labels['FC_TASKROLE_NAME']", "INDEX": "annotations['FC_TASK_INDEX']"}
    env["UID"] = "annotations['FC_TASK_UID']"
    pod["containers"][0]["env"] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{path}"}}}
        for name, path in env.items()
    ]
    role, *_ = spec_of(document)["replicaSpecs"]
    labels = {LABEL_INDEX: "0", "FC_TASKROLE_NAME": "w"}
    assert selector_of(document, role)["matchLabels"] == labels
    env = container_of(document, role)["env"]
    paths = {each["name"]: each.get("valueFrom") for each in env}
    assert paths["NAME"]["fieldRef"]["fieldPath"] == "metadata.labels['FC_TASKROLE_NAME']"
    assert paths["INDEX"]["fieldRef"]["fieldPath"] == f"metadata.labels['{LABEL_INDEX}']"
    assert told(document, "FC_TASK_UID", Kind.LOST)


HOSTS = [
    (pytorch(), "tcp://job-master-0:23456", "tcp://worker-0.job:23456"),
    (pytorch(), "job-worker-0,job-worker-11", "worker-1.job,worker-12.job"),
    (pytorch(), "--a=job-master-0.ns.svc.cluster.local:1/x",
     "--a=worker-0.job.ns.svc.cluster.local:1/x"),
    (pytorch(), "/data/job-worker-0/x job-worker-0/ckpt job-worker-0.log xjob-worker-0",
     "/data/job-worker-0/x job-worker-0/ckpt job-worker-0.log xjob-worker-0"),
    (pytorch(), "job-ps-0 job-master-0-x job-worker-123456",
     "job-ps-0 job-master-0-x job-worker-123456"),
    (tensorflow("PS", "Master"), "job-ps-0:2222 job-master-0:2222",
     "ps-0.job:2222 chief-0.job:2222"),
    (MPI, "job-worker-1.job.ns.svc,job-launcher.job",
     "worker-1.job.ns.svc,launcher-0.job"),
    (ET, "job-launcher job-worker-2", "launcher-0.job worker-2.job"),
    (DLR, "job-edljob-worker-0.ns.svc:3333", "worker-0.job.ns.svc:3333"),
    (TRAIN, "job-node-0-0.job:29500", "worker-0.job:29500"),
    (MX, "worker-job-1-service worker-job-0", "worker-1.job worker-0.job"),
]  # fmt: skip


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(("document", "theirs", "ours"), HOSTS)
def test_host_names_in_other_objects_are_those_of_the_members(
    document: Any, theirs: str, ours: str
) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    assert written(config | {"data": {"run.sh": theirs}}, document)["data"]["run.sh"] == ours
    texts = {"command": ["sh", "-c", theirs], "env": [{"name": "A", "value": theirs}]}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    found = converted(workload | {"spec": {"containers": [texts]}}, document)
    deployment: Any = found.object
    [container] = deployment["spec"]["containers"]
    assert (container["command"][2], container["env"][0]["value"]) == (ours, ours)
    noted = [text for text in notes_of(found, Kind.DIFFERS) if "host names" in text]
    assert bool(noted) == (theirs != ours)
    assert found.passed_through == (theirs == ours)


def test_a_jobs_own_host_names_are_replaced_in_its_command() -> None:
    document = pytorch()
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0]["args"] = ["--store=job-master-0:1"]
    assert role_of(document, "worker")["template"]["spec"]["containers"][0]["args"] == [
        "--store=worker-0.job:1"
    ]


def test_hostile_names_and_texts_take_no_time() -> None:
    document = pytorch()
    for part in ("job-worker-0.", "job-worker-", "/job-master-0", "job-", ".a"):
        data = {"data": {"a": part * 50_000}}
        convert({"apiVersion": "v1", "kind": "ConfigMap", **data}, 1, jobs_of([document]))
