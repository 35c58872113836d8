"""Runs converted Frameworks of FrameworkController; they behave as they did there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.convert import sample
from tests.support.e2e import summing_servers
from tests.support.e2e.converted import create_converted
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the containers use a Python of this machine"),
]

SCRIPT = Path(str(summing_servers.__file__))


def containers(framework: dict[str, Any]) -> list[dict[str, Any]]:
    return [role["task"]["pod"]["spec"]["containers"][0] for role in framework["spec"]["taskRoles"]]


def test_tasks_behind_a_barrier_find_each_other_and_servers_end_with_the_workers(
    sandbox: Sandbox, folder: Path
) -> None:
    (framework,) = sample("framework_controller/parameter-servers.yaml")
    program = f"exec {shlex.quote(sys.executable)} {SCRIPT} --job_name=${{FC_TASKROLE_NAME}}"
    for container in containers(framework):
        container["workingDir"] = str(folder)
        command = container["command"][-1]
        assert "python tf_cnn_benchmarks.py --job_name=ps" in command
        command = command.replace("python tf_cnn_benchmarks.py --job_name=ps", program)
        container["command"][-1] = command.replace(
            "--train_dir=/mnt/data/${FC_FRAMEWORK_NAME}/output", str(folder)
        )
    create_converted(sandbox, framework)
    name = framework["metadata"]["name"]
    user = KubectlUser(sandbox, name, folder)
    user.wait(f"ej/{name}", ".status.phase", "Succeeded")
    assert {path.name: path.read_text() for path in folder.glob("worker-*")} == {
        f"worker-{index}": "6 of 2" for index in range(3)
    }
    servers = f"{name}-ps-"
    user.until(
        "the end of the servers", lambda: servers not in user.kubectl("get", "pods", "-o", "name")
    )


def test_a_transient_failure_of_a_task_is_retried_without_being_counted(
    sandbox: Sandbox, folder: Path
) -> None:
    (framework,) = sample("framework_controller/batch.yaml")
    (container,) = containers(framework)
    first = f"[ -e {folder}/$FC_TASK_INDEX ] || {{ touch {folder}/$FC_TASK_INDEX; exit 200; }}"
    assert container["command"][-1] == "sleep 10 && exit 200"
    container["command"][-1] = first
    create_converted(sandbox, framework)
    name = framework["metadata"]["name"]
    user = KubectlUser(sandbox, name)
    user.wait(f"ej/{name}", ".status.phase", "Succeeded")
    worker = user.status()["replicaStatuses"]["worker"]
    assert (worker["succeeded"], worker["restarts"], worker["uncountedRestarts"]) == (3, 0, 3)


def test_a_permanent_failure_of_a_task_ends_the_job_although_retries_are_left(
    sandbox: Sandbox,
) -> None:
    (framework,) = sample("framework_controller/batch.yaml")
    (container,) = containers(framework)
    container["command"][-1] = '[ "$FC_TASK_INDEX" = 1 ] && exit 210; exec sleep 3600'
    create_converted(sandbox, framework)
    name = framework["metadata"]["name"]
    user = KubectlUser(sandbox, name)
    user.wait(f"ej/{name}", ".status.phase", "Failed")
    status = user.status()
    assert not status.get("retries")
    assert "210" in status["lastFailure"], status


@pytest.mark.guarantee("roles-without-agent")
def test_an_always_retried_task_knows_its_attempt_and_runs_until_it_is_stopped(
    sandbox: Sandbox, folder: Path
) -> None:
    (framework,) = sample("framework_controller/batch.yaml")
    (container,) = containers(framework)
    group = framework["spec"]["taskRoles"][0]
    group["taskNumber"] = 1
    group["task"]["retryPolicy"] = {"fancyRetryPolicy": False, "maxRetryCount": -2}
    container["command"][-1] = (
        f"echo $FC_FRAMEWORK_ATTEMPT_ID/$FC_TASK_ATTEMPT_INSTANCE_UID >> {folder}/attempts; "
        "[ $FC_TASK_ATTEMPT_ID -lt 2 ] && exit $FC_TASK_ATTEMPT_ID; exec sleep 3600"
    )
    create_converted(sandbox, framework)
    name = framework["metadata"]["name"]
    user = KubectlUser(sandbox, name)
    attempts = folder / "attempts"

    def begun() -> list[str]:
        return attempts.read_text().splitlines() if attempts.exists() else []

    user.until("one success, one failure, and the third attempt", lambda: len(begun()) == 3)
    assert [line.partition("_")[0] for line in begun()] == ["0/0", "0/1", "0/2"]
    assert len({line.partition("_")[2] for line in begun()}) == 3, "each has a pod of its own"
    (failure,) = user.status()["failures"]
    assert (failure["exitCode"], failure["attempt"], failure["action"]) == (1, 1, "Ignore")
    user.kubectl(
        "patch", f"ej/{name}", "--type=merge", "-p", '{"spec": {"runPolicy": {"stop": true}}}'
    )
    user.wait(f"ej/{name}", ".status.phase", "Stopped")
    reason = '{.status.conditions[?(@.type=="Failed")].reason}'
    assert user.kubectl("get", f"ej/{name}", "-o", f"jsonpath={reason}") == "Stopped"
    assert not user.status().get("retries")
