"""The node refuses what plain processes cannot provide, by name, and accepts everything else."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_localcluster.node.admission import ProcessUser, has_token, rejection
from elasticjob_localcluster.node.pod_model import Metadata, Pod

USER = ProcessUser(1000, 1000, frozenset({1000, 27}))
ROOT = ProcessUser(0, 0, frozenset({0}))
TOKEN = {"name": "kube-api-access-x7x", "projected": {"sources": []}}


def pod(spec: dict[str, Any] | None = None, **container: Any) -> Pod:
    main = {"name": "main", "image": "any", "command": ["true"]} | container
    return Pod(metadata=Metadata(name="p"), spec={"containers": [main]} | (spec or {}))


@pytest.mark.parametrize(
    "accepted",
    [
        pod(),
        pod(
            {"volumes": [TOKEN]},
            volumeMounts=[{"name": TOKEN["name"], "mountPath": "/var/run/secrets/x"}],
        ),
        pod({"hostNetwork": True, "hostPID": True, "dnsPolicy": "ClusterFirst"}),
        pod(
            {
                "securityContext": {
                    "runAsUser": 1000,
                    "runAsGroup": 1000,
                    "runAsNonRoot": True,
                    "supplementalGroups": [27],
                }
            }
        ),
        pod(
            securityContext={
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "privileged": False,
            }
        ),
        pod(
            {
                "volumes": [
                    {"name": "d", "hostPath": {"path": "/data/", "type": "DirectoryOrCreate"}}
                ]
            },
            volumeMounts=[{"name": "d", "mountPath": "/data"}],
        ),
        pod(
            {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]},
            volumeMounts=[{"name": "m", "mountPath": "/dev/shm"}],
        ),
        pod(
            {"volumes": [{"name": "s", "configMap": {"name": "script"}}]},
            command=["python", "/s/train.py"],
            volumeMounts=[{"name": "s", "mountPath": "/s/"}],
        ),
        pod(
            {"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "1Gi"}}]},
            env=[{"name": "CACHE", "value": "/cache/of/mine"}],
            volumeMounts=[{"name": "d", "mountPath": "/cache"}],
        ),
        pod(
            resources={"limits": {"memory": "1Gi"}},
            ports=[{"containerPort": 80}],
            workingDir="/tmp",
        ),
    ],
)
def test_settings_that_a_process_supports_are_accepted(accepted: Pod) -> None:
    assert rejection(accepted, USER) is None


@pytest.mark.parametrize(
    ("field", "refused"),
    [
        ("spec.containers[0].command", pod(command=[])),
        ("spec.containers[0].lifecycle", pod(lifecycle={"preStop": {}})),
        ("spec.containers[0].stdin", pod(stdin=True)),
        ("spec.containers[0].tty", pod(tty=True)),
        ("spec.containers[0].restartPolicy", pod(restartPolicy="Never")),
        (
            "spec.containers[0].securityContext.privileged",
            pod(securityContext={"privileged": True}),
        ),
        (
            "spec.containers[0].securityContext.capabilities.add",
            pod(securityContext={"capabilities": {"add": ["X"]}}),
        ),
        ("spec.containers[0].securityContext.runAsUser", pod(securityContext={"runAsUser": 0})),
        ("spec.securityContext.runAsGroup", pod({"securityContext": {"runAsGroup": 7}})),
        (
            "spec.securityContext.supplementalGroups",
            pod({"securityContext": {"supplementalGroups": [9]}}),
        ),
        (
            "spec.securityContext.sysctls",
            pod({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}),
        ),
        ("spec.volumes[0].emptyDir", pod({"volumes": [{"name": "d"}]})),
        (
            "spec.volumes[0].persistentVolumeClaim",
            pod({"volumes": [{"name": "d", "persistentVolumeClaim": {}}]}),
        ),
        ("spec.volumes[0].projected", pod({"volumes": [{"name": "d", "projected": {}}]})),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            pod(
                {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]},
                volumeMounts=[{"name": "m", "mountPath": "/cache"}],
            ),
        ),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            pod(
                {"volumes": [{"name": "d", "hostPath": {"path": "/data"}}]},
                volumeMounts=[{"name": "d", "mountPath": "/x"}],
            ),
        ),
        (
            "spec.containers[0].volumeMounts[0].subPath",
            pod(
                {"volumes": [{"name": "d", "hostPath": {"path": "/data"}}]},
                volumeMounts=[{"name": "d", "mountPath": "/data", "subPath": "x"}],
            ),
        ),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            pod(
                {"volumes": [{"name": "s", "configMap": {"name": "script"}}]},
                command=["python", "/script/train.py"],
                volumeMounts=[{"name": "s", "mountPath": "/s"}],
            ),
        ),
        (
            "spec.containers[0].volumeMounts[0].subPath",
            pod(
                {"volumes": [{"name": "s", "configMap": {"name": "script"}}]},
                command=["python", "/s/train.py"],
                volumeMounts=[{"name": "s", "mountPath": "/s", "subPath": "x"}],
            ),
        ),
        (
            "spec.initContainers[0].restartPolicy",
            pod(
                {"initContainers": [{"name": "i", "command": ["true"], "restartPolicy": "Always"}]}
            ),
        ),
        ("spec.runtimeClassName", pod({"runtimeClassName": "gvisor"})),
        ("spec.hostAliases", pod({"hostAliases": [{"ip": "1.2.3.4"}]})),
        ("spec.hostUsers", pod({"hostUsers": False})),
        ("spec.os.name", pod({"os": {"name": "windows"}})),
    ],
)
def test_settings_that_a_process_cannot_support_are_refused_by_field(
    field: str, refused: Pod
) -> None:
    why = rejection(refused, USER)
    assert why is not None
    assert why.startswith(f"{field}:")


def test_every_problem_of_a_pod_is_reported_at_once() -> None:
    why = rejection(pod({"volumes": [{"name": "d", "nfs": {}}]}, command=[], tty=True), USER)
    assert why is not None
    assert why.count(";") >= 2


def test_a_pod_that_must_not_run_as_root_runs_as_the_nodes_user() -> None:
    """`runAsNonRoot` refers to the image's user, and the node uses no images."""
    asked = pod({"securityContext": {"runAsNonRoot": True}})
    assert rejection(asked, ROOT) is None
    assert rejection(asked, USER) is None


def test_a_pod_whose_agent_comes_from_an_init_container_runs_without_that_container() -> None:
    install = {"name": names.AGENT, "command": ["x"], "securityContext": {"runAsUser": 65532}}
    volume = {"name": names.AGENT, "emptyDir": {}}
    mount = {"name": names.AGENT, "mountPath": names.AGENT_DIRECTORY}
    asked = pod({"initContainers": [install], "volumes": [volume]}, volumeMounts=[mount])
    assert rejection(asked, USER) is None
    assert asked.init_containers == []


def test_a_pod_whose_agent_comes_from_an_image_volume_runs_without_that_volume() -> None:
    volume = {"name": names.AGENT, "image": {"reference": "master:1"}}
    mount = {"name": names.AGENT, "mountPath": names.AGENT_DIRECTORY, "readOnly": True}
    assert rejection(pod({"volumes": [volume]}, volumeMounts=[mount]), USER) is None
    theirs = {"name": "data", "image": {"reference": "data:1"}}
    assert "spec.volumes[0].image: nothing can be mounted" in str(
        rejection(pod({"volumes": [theirs]}), USER)
    )


def test_a_launcher_runs_without_the_volume_on_which_it_would_find_the_hosts() -> None:
    mount = {"name": names.HOST_FILES, "mountPath": names.HOST_FILES_DIRECTORY}
    asked = pod({"volumes": [{"name": names.HOST_FILES, "emptyDir": {}}]}, volumeMounts=[mount])
    assert rejection(asked, USER) is None


def test_a_pod_with_the_volume_of_a_token_gets_a_token() -> None:
    assert has_token(pod({"volumes": [TOKEN]}))
    assert not has_token(pod())


def test_a_pod_runs_with_its_volume_in_memory_for_checkpoints() -> None:
    volume = {"name": names.STATE, "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    mount = {"name": names.STATE, "mountPath": names.STATE_DIRECTORY}
    assert rejection(pod({"volumes": [volume]}, volumeMounts=[mount]), USER) is None
