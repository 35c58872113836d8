"""Tests FrameworkController's Framework."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from elasticjob_cli.convert.report import Kind

from tests.support.convert import (
    container_of,
    converted,
    errors,
    lost,
    role_of,
    sample,
    spec_of,
    told,
)

BATCH, SERVERS, ELASTIC = (
    f"framework_controller/{name}.yaml" for name in ("batch", "parameter-servers", "torch-elastic")
)

DELAYS = {"minDelaySeconds": 60, "maxDelaySeconds": 900}
CONFLICT = {"action": "Ignore", "exitCodes": [201], **DELAYS}
TRANSIENT: Any = {"policy": "OnTransient", **DELAYS}


def batch(**task: Any) -> Any:
    [document] = sample(BATCH)
    document["spec"]["taskRoles"][0]["task"] |= task
    return document


@pytest.mark.guarantee("converted-jobs-are-accepted")
def test_misspelled_fields_of_pods_are_lost_by_name() -> None:
    document = batch()
    pod = document["spec"]["taskRoles"][0]["task"]["pod"]["spec"]
    pod["ActiveDeadlineSeconds"] = 60
    pod["containers"][0]["resorces"] = {}
    where = "spec.taskRoles[0].task.pod.spec"
    message = "is no field of Kubernetes; it is left out"
    assert sorted(lost(document)) == [
        f"lost: {where}.ActiveDeadlineSeconds: {message}",
        f"lost: {where}.containers[0].resorces: {message}",
    ]


def test_independent_tasks_have_no_agent() -> None:
    spec = spec_of(batch())
    assert spec["framework"] == "custom"
    worker = spec["replicaSpecs"]["worker"]
    assert (worker["agent"], worker["replicas"]) == ("None", 3)
    assert worker["completion"] == {"minFailed": 1}
    assert spec["runPolicy"]["backoffLimit"] == 2_147_483_647


@pytest.mark.parametrize(
    ("fancy", "count", "retry"),
    [
        (False, 0, None),
        (False, 3, {"policy": "OnFailure", "limit": 3}),
        (False, -1, {"policy": "OnFailure"}),
        (False, -2, {"policy": "Always"}),
        (True, -2, TRANSIENT),
        (True, 3, TRANSIENT | {"limit": 3}),
    ],
)
def test_retry_of_the_whole_job(fancy: bool, count: int, retry: Any) -> None:
    document = batch()
    document["spec"]["retryPolicy"] = {"fancyRetryPolicy": fancy, "maxRetryCount": count}
    assert spec_of(document)["runPolicy"].get("retry") == retry
    assert bool(lost(document)) == (fancy and count == -2)


@pytest.mark.parametrize(
    ("fancy", "count", "limit", "rules"),
    [
        (True, 2, 2, [CONFLICT]),
        (True, -1, 10_000, [CONFLICT]),
        (False, 2, 2, [{"action": "Restart"}]),
        (False, -1, 10_000, [{"action": "Ignore"}]),
    ],
)
def test_a_tasks_retries_become_a_limit_and_rules(
    fancy: bool, count: int, limit: int, rules: Any
) -> None:
    worker = role_of(
        batch(retryPolicy={"fancyRetryPolicy": fancy, "maxRetryCount": count}), "worker"
    )
    assert (worker["restartLimit"], worker.get("restartRules")) == (limit, rules)


def test_an_always_retried_task_restarts_after_success_except_at_the_barrier() -> None:
    document = batch(retryPolicy={"maxRetryCount": -2})
    document["spec"]["taskRoles"][0]["frameworkAttemptCompletionPolicy"] = {
        "minSucceededTaskCount": 1
    }
    worker = role_of(document, "worker")
    assert worker["restartOnSuccess"] is True
    assert "minSucceeded" not in worker["completion"]
    assert lost(document) == []
    [document] = sample(SERVERS)
    document["spec"]["taskRoles"][0]["task"]["retryPolicy"] = {"maxRetryCount": -2}
    assert told(document, "does not run again", Kind.LOST)
    for role in spec_of(document)["replicaSpecs"].values():
        assert "restartOnSuccess" not in role


def test_the_different_handling_of_out_of_memory_is_reported() -> None:
    assert told(batch(), "OOMKilled", Kind.DIFFERS)


@pytest.mark.parametrize("failed", [{}, {"minFailedTaskCount": 0}, {"minFailedTaskCount": -1}])
def test_failures_that_never_end_the_job_and_successes_that_do(failed: Any) -> None:
    document = batch()
    policy = {"minSucceededTaskCount": 2, **failed}
    document["spec"]["taskRoles"][0]["frameworkAttemptCompletionPolicy"] = policy
    assert role_of(document, "worker")["completion"] == {"minFailed": 10_000, "minSucceeded": 2}


@pytest.mark.parametrize(
    ("kind", "policy"), [("Create", {"suspend": True}), ("Start", {}), ("Stop", {"stop": True})]
)
def test_a_job_that_is_not_started_is_suspended_and_one_that_is_stopped_ends(
    kind: str, policy: Any
) -> None:
    document = batch()
    document["spec"]["executionType"] = kind
    written = spec_of(document)["runPolicy"]
    assert {key: written[key] for key in ("suspend", "stop") if key in written} == policy
    assert lost(document) == []


def test_the_agent_replaces_the_barrier_and_tasks_train_in_one_world() -> None:
    [document] = sample(SERVERS)
    spec = spec_of(document)
    assert spec["runPolicy"]["startPolicy"] == "AllReady"
    for role, size in (("ps", 2), ("worker", 3)):
        written = spec["replicaSpecs"][role]
        assert "agent" not in written
        assert written["minReplicas"] == size
        assert written["podForceDeleteSeconds"] == 1800
        pod = written["template"]["spec"]
        assert not {"initContainers", "serviceAccountName", "volumes"} & pod.keys()
        assert "volumeMounts" not in pod["containers"][0]


def test_volumes_with_other_uses_than_the_barrier_stay() -> None:
    [document] = sample(SERVERS)
    pod = document["spec"]["taskRoles"][0]["task"]["pod"]["spec"]
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"name": "data", "mountPath": "/data"}
    pod["volumes"].append(data)
    pod["containers"][0]["volumeMounts"].append(mount)
    written = role_of(document, "ps")["template"]["spec"]
    assert (written["volumes"], written["containers"][0]["volumeMounts"]) == ([data], [mount])


def test_the_worlds_addresses_replace_the_barriers_script(tmp_path: Any) -> None:
    [document] = sample(SERVERS)
    text = container_of(document, "ps")["command"][2]
    assert "injector.sh" not in text
    before, _, _ = text.partition("python tf_cnn_benchmarks.py")
    variables = {
        "ELASTICJOB_PS_HOSTS": "10.0.0.1,10.0.0.2",
        "ELASTICJOB_WORKER_HOSTS": "10.0.0.3",
        "PATH": "/usr/bin:/bin",
    }
    shown = subprocess.run(
        ["sh", "-c", f"{before} echo $FB_PS_ADDRESSES $FB_WORKER_ADDRESSES $FB_PS_IPS"],
        env=variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    servers = "10.0.0.1:4001,10.0.0.2:4001"
    assert shown.stdout.split() == [servers, "10.0.0.3:5001", "10.0.0.1,10.0.0.2"]


def test_variables_labels_and_placeholders_of_a_task() -> None:
    _, document = sample(ELASTIC)
    worker = role_of(document, "worker")
    labels = {"FC_FRAMEWORK_NAME": "pet", "FC_TASKROLE_NAME": "worker"}
    assert worker["template"]["metadata"]["labels"] == labels
    container = worker["template"]["spec"]["containers"][0]
    assert "--rdzv_id=pet" in container["args"][0]
    assert "--task=$(FC_TASK_INDEX)" in container["args"][0]
    fields = {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container["env"]
    }
    assert fields == labels | {
        "FC_FRAMEWORK_NAMESPACE": "metadata.namespace",
        "FC_TASK_INDEX": "metadata.labels['elasticjob.dev/index']",
        "FC_POD_NAME": "metadata.name",
        "FC_POD_UID": "metadata.uid",
        "FC_FRAMEWORK_UID": "metadata.labels['elasticjob.dev/job-uid']",
        "FC_FRAMEWORK_ATTEMPT_ID": "metadata.annotations['elasticjob.dev/retry']",
        "FC_TASK_ATTEMPT_ID": "metadata.annotations['elasticjob.dev/attempt']",
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "$(FC_FRAMEWORK_ATTEMPT_ID)_$(FC_FRAMEWORK_UID)",
        "FC_TASK_ATTEMPT_INSTANCE_UID": "$(FC_TASK_ATTEMPT_ID)_$(FC_POD_UID)",
    }
    assert {"hostname", "subdomain"} & worker["template"]["spec"].keys() == set()


def test_uids_without_a_counterpart_are_lost() -> None:
    document = batch()
    container = document["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"][0]
    script = "echo $FC_TASK_UID {{FC_CONFIGMAP_NAME}} $FC_TASK_ATTEMPT_ID"
    container["command"] = ["sh", "-c", script]
    [text] = [each for each in lost(document) if "unknown here" in each]
    assert "FC_CONFIGMAP_NAME, FC_TASK_UID: unknown here" in text


def test_a_members_placeholder_is_lost_where_kubernetes_has_no_references() -> None:
    document = batch()
    pod = document["spec"]["taskRoles"][0]["task"]["pod"]
    pod["metadata"] = {"annotations": {"task": "{{FC_TASKROLE_NAME}}-{{FC_TASK_INDEX}}"}}
    annotations = role_of(document, "worker")["template"]["metadata"]["annotations"]
    assert annotations == {"task": "worker-{{FC_TASK_INDEX}}"}
    assert told(document, "FC_TASK_INDEX", Kind.LOST)


def test_invalid_names_are_made_valid_and_tasks_still_find_theirs() -> None:
    document = batch()
    document["metadata"]["name"] = "0" * 63
    document["spec"]["taskRoles"][0]["name"] = "aroleofmorethantwentycharacters"
    spec = spec_of(document)
    [role] = spec["replicaSpecs"]
    assert len(role) <= 20
    env = container_of(document, role)["env"]
    variables = {each["name"]: each.get("value") for each in env}
    assert variables["FC_TASKROLE_NAME"] == "aroleofmorethantwentycharacters"
    assert variables["FC_FRAMEWORK_NAME"] == "0" * 63


def test_more_roles_than_a_job_may_have_are_an_error() -> None:
    document = batch()
    roles = document["spec"]["taskRoles"]
    document["spec"]["taskRoles"] = [roles[0] | {"name": f"role{number}"} for number in range(33)]
    assert "has 33 groups of pods" in errors(document)[0]


def test_a_service_that_selects_a_task_by_its_index_selects_its_pod() -> None:
    selector = {"FC_FRAMEWORK_NAME": "job", "FC_TASKROLE_NAME": "worker", "FC_TASK_INDEX": "0"}
    spec = {"selector": selector, "clusterIP": "None"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "w"}, "spec": spec}
    ours = {"FC_FRAMEWORK_NAME": "job", "FC_TASKROLE_NAME": "worker", "elasticjob.dev/index": "0"}
    assert spec_of(service)["selector"] == ours
    assert not converted(service).passed_through
    del selector["FC_TASK_INDEX"]
    assert converted(service).passed_through
