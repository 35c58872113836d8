"""Tests jobs whose launcher starts the training.

Manifests are refused whose members would train alone or could never scale.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.model.plan import PlanRefused
from elasticjob_operator.core.scaling.limits import check_bounds

HOROVODRUN = ["horovodrun", "--host-discovery-script", "discover_hosts", "python", "train.py"]


def job(
    worker: dict[str, Any], launcher: dict[str, Any] | None = None, framework: str = "horovod"
) -> ElasticJob:
    containers = {"worker": worker, "launcher": {"command": HOROVODRUN, **(launcher or {})}}
    roles = {
        role: {
            "template": {"spec": {"containers": [{"name": "main", "image": "i:1", **container}]}}
        }
        for role, container in containers.items()
    }
    found = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"framework": framework, "replicaSpecs": roles},
    }
    return msgspec.convert(found, ElasticJob)


def container(made: ElasticJob, role: str) -> dict[str, Any]:
    pod = member_pod(made, role, 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1"))
    first: dict[str, Any] = pod["spec"]["containers"][0]
    return first


def has_shell(made: ElasticJob, role: str) -> bool:
    return names.ENV_REMOTE_SHELL in {variable["name"] for variable in container(made, role)["env"]}


def test_workers_without_a_command_wait_for_what_the_launcher_starts() -> None:
    made = job({})
    assert validation_error(made) is None
    assert container(made, "worker")["command"][1:] == ["remote-shell"]
    assert container(made, "worker")["args"] == []
    assert container(made, "launcher")["command"][1:] == ["run", "--"]
    assert container(made, "launcher")["args"] == HOROVODRUN
    assert (has_shell(made, "launcher"), has_shell(made, "worker")) == (True, False)


def host_folder(made: ElasticJob, role: str) -> list[str]:
    """Return the folders with the host files in a pod of the role, and check their volumes."""
    pod = member_pod(made, role, 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1"))
    first = pod["spec"]["containers"][0]
    mounts = [
        each["mountPath"]
        for each in first.get("volumeMounts") or ()
        if each["name"] == names.HOST_FILES
    ]
    assert [each for each in pod["spec"]["volumes"] if each["name"] == names.HOST_FILES] == [
        {"name": names.HOST_FILES, "emptyDir": {}} for _ in mounts
    ]
    assert [
        each["value"] for each in first["env"] if each["name"] == names.ENV_HOST_FILES
    ] == mounts
    return mounts


@pytest.mark.guarantee("host-files")
@pytest.mark.parametrize("worker", [{}, {"command": ["/usr/sbin/sshd", "-D"]}])
def test_only_a_launcher_has_a_folder_with_the_hosts(worker: dict[str, Any]) -> None:
    made = job(worker)
    assert validation_error(made) is None
    assert host_folder(made, "launcher") == ["/etc/edl"]
    assert host_folder(made, "worker") == []
    assert host_folder(job({"command": ["x"]}, framework="custom"), "launcher") == []


def test_what_a_template_has_at_that_place_stays() -> None:
    assert (
        host_folder(
            job({}, {"volumeMounts": [{"name": "own", "mountPath": "/etc/edl/"}]}), "launcher"
        )
        == []
    )
    assert host_folder(
        job({}, {"volumeMounts": [{"name": "own", "mountPath": "/data"}]}), "launcher"
    ) == ["/etc/edl"]


def test_workers_that_run_their_own_server_get_no_other_remote_shell() -> None:
    made = job({"command": ["/usr/sbin/sshd", "-D"]})
    assert validation_error(made) is None
    assert container(made, "worker")["args"] == ["/usr/sbin/sshd", "-D"]
    assert not has_shell(made, "launcher"), "the image's own ssh is used"


@pytest.mark.guarantee("stock-horovodrun")
@pytest.mark.parametrize("program", ["python", "python3.11", "/usr/bin/python3", "horovodrun"])
def test_workers_that_would_train_alone_despite_a_launcher_are_refused_by_field(
    program: str,
) -> None:
    error = validation_error(job({"command": [program, "train.py"]}))
    assert error is not None
    assert error.startswith(
        f"spec.replicaSpecs.worker.template.spec.containers[0].command: {program!r} would train "
        "alone in each member, "
    )
    assert validation_error(job({"command": [program, "train.py"]}, framework="custom")) is None


def test_arguments_that_nothing_takes_are_refused() -> None:
    error = validation_error(job({"args": ["train.py"]}))
    assert error is not None
    assert error.startswith(
        "spec.replicaSpecs.worker.template.spec.containers[0].args: nothing takes them"
    )


@pytest.mark.parametrize(
    ("role", "fields", "refusal"),
    [
        ("worker", {"process_restart_limit": 3}, "processRestartLimit: is 3, but must be 0"),
        ("launcher", {"replicas": 2}, "replicas: is 2, but must be 1"),
    ],
)
def test_numbers_with_which_horovod_would_not_scale_are_refused(
    role: str, fields: dict[str, int], refusal: str
) -> None:
    made = job({})
    specs = made.spec.replica_specs
    roles = {**specs, role: msgspec.structs.replace(specs[role], **fields)}
    made = msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, replica_specs=roles)
    )
    assert (validation_error(made) or "").startswith(f"spec.replicaSpecs.{role}.{refusal}")


def test_a_plan_for_a_second_launcher_is_refused_like_a_job_with_two() -> None:
    with pytest.raises(
        PlanRefused, match=r"^spec.count: each launcher would start a training of its own.*not 2$"
    ):
        check_bounds(job({}), "launcher", 2, prefix="spec.count: ")
    check_bounds(job({}), "launcher", 1, prefix="")
    check_bounds(job({}), "worker", 2, prefix="")
    check_bounds(job({"command": ["x"]}, framework="custom"), "launcher", 2, prefix="")


def test_a_launchers_host_name_would_be_that_of_every_process() -> None:
    error = validation_error(
        job({}, {"env": [{"name": "A"}, {"name": "HOROVOD_HOSTNAME", "value": "x"}]})
    )
    assert error is not None
    assert error.startswith(
        "spec.replicaSpecs.launcher.template.spec.containers[0].env[1].name: 'HOROVOD_HOSTNAME'"
    )


def test_without_a_launcher_a_command_is_needed() -> None:
    for framework in ("pytorch", "horovod"):
        made = job({}, framework=framework)
        if framework == "horovod":
            made = msgspec.structs.replace(
                made,
                spec=msgspec.structs.replace(
                    made.spec, replica_specs={"worker": made.spec.replica_specs["worker"]}
                ),
            )
        assert "containers[0].command: must be set" in (validation_error(made) or "")
