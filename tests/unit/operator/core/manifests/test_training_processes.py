"""Tests the number of processes that a member's agent starts, and templates that contradict it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.reserved_variables import PROCESS_VARIABLES
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.model.observed import Defaults

TEMPLATE = "spec.replicaSpecs.worker.template.spec.containers[0]"


def job(
    framework: str = "pytorch",
    *,
    gpus: int = 0,
    slots: int | None = None,
    agent: str = "Managed",
    on_world_change: str | None = None,
    **container: Any,
) -> ElasticJob:
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    worker = {
        "name": "train",
        "image": "i:1",
        "command": ["python", "train.py"],
        **limits,
        **container,
    }
    role = {
        "template": {"spec": {"containers": [worker]}},
        "slotsPerReplica": slots,
        "agent": agent,
        "onWorldChange": on_world_change,
    }
    return msgspec.convert(
        {
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"framework": framework, "replicaSpecs": {"worker": role}},
        },
        ElasticJob,
    )


def variables(made: ElasticJob, **resources: Any) -> dict[str, str]:
    """Return the variables of the first worker's pod that say how many processes there are."""
    pod = member_pod(
        made, "worker", 0, 0, resources=resources, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    wanted = (names.ENV_SLOTS, names.ENV_DEVICES)
    return {
        each["name"]: each["value"]
        for each in pod["spec"]["containers"][0]["env"]
        if each["name"] in wanted
    }


@pytest.mark.guarantee("several-processes-per-pod")
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (job(), {"ELASTICJOB_SLOTS": "1"}),
        (job(gpus=4), {"ELASTICJOB_SLOTS": "4"}),
        (job(gpus=4, slots=2), {"ELASTICJOB_SLOTS": "2"}),
        (job("jax", gpus=4), {"ELASTICJOB_SLOTS": "1"}),
        (
            job("jax", gpus=4, slots=2),
            {"ELASTICJOB_SLOTS": "2", "ELASTICJOB_DEVICES": "CUDA_VISIBLE_DEVICES=4"},
        ),
    ],
)
def test_a_pod_gets_the_number_of_its_processes_and_the_gpus_that_they_divide(
    made: ElasticJob, told: dict[str, str]
) -> None:
    assert validation_error(made) is None
    assert variables(made) == told


def test_gpus_that_a_plan_has_changed_count() -> None:
    assert variables(job(gpus=4), **{"nvidia.com/gpu": 2}) == {"ELASTICJOB_SLOTS": "2"}


@pytest.mark.parametrize("slots", [3, 8])
def test_processes_that_cannot_divide_the_gpus_are_refused(slots: int) -> None:
    assert validation_error(job(gpus=4, slots=slots)) == (
        f"spec.replicaSpecs.worker.slotsPerReplica: {slots} processes cannot divide the 4 of "
        "nvidia.com/gpu in the "
        "limits of the first container: set a number that divides it, or none for a process per "
        "GPU where the "
        "framework has that"
    )


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        *(
            ("pytorch", name)
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "PET_NNODES")
        ),
        ("tensorflow", "TF_CONFIG"),
        ("mxnet", "DMLC_ROLE"),
        ("mxnet", "DMLC_WORKER_ID"),
        ("jax", "JAX_PROCESS_ID"),
        ("horovod", "HOROVOD_RANK"),
        ("custom", "ELASTICJOB_WORKER_HOSTS"),
        *(("custom", name) for name in PROCESS_VARIABLES),
    ],
)
def test_a_variable_that_differs_from_world_to_world_is_refused_by_field_and_reason(
    framework: str, name: str
) -> None:
    made = job(framework, env=[{"name": "MINE", "value": "1"}, {"name": name, "value": "0"}])
    assert validation_error(made) == (
        f"{TEMPLATE}.env[1].name: {name!r} is set by the agent, for each process of each world "
        "(slotsPerReplica is their "
        "number, processRestartLimit how often a failed one restarts); remove it"
    )
    without = job(framework, agent="None", env=[{"name": name, "value": "0"}])
    assert validation_error(without) is None, "without an agent nothing sets them"


@pytest.mark.parametrize(
    ("framework", "name"),
    [("jax", "RANK"), ("pytorch", "PET_MONITOR_INTERVAL"), ("mxnet", "PS_VERBOSE")],
)
def test_other_variables_are_the_users(framework: str, name: str) -> None:
    assert validation_error(job(framework, env=[{"name": name, "value": "0"}])) is None


def test_torchrun_is_refused_where_processes_continue() -> None:
    assert validation_error(job(command=["torchrun", "train.py"], on_world_change="Notify")) == (
        f"{TEMPLATE}.command: torchrun starts its processes again in each world, but "
        "onWorldChange is Notify; start the script itself, such as [python, train.py], or remove "
        "onWorldChange"
    )
    assert validation_error(job(on_world_change="Notify")) is None


def test_options_of_torchrun_that_the_agent_sets_are_refused_all_at_once() -> None:
    fixed = job(
        command=["torchrun", "--nproc_per_node=2", "--max_restarts=3"],
        args=["--standalone", "train.py"],
    )
    assert validation_error(fixed) == (
        f"{TEMPLATE}.command: the agent sets '--nproc_per_node=2', '--max_restarts=3', "
        "'--standalone' for torchrun in "
        "each world; remove them, and set slotsPerReplica in place of --nproc_per_node, "
        "processRestartLimit in "
        "place of --max_restarts"
    )
    assert validation_error(job(command=["torchrun"], args=["train.py", "--nnodes=2"])) is None
    assert validation_error(job("custom", command=["torchrun", "--max_restarts=3"])) is None


@pytest.mark.guarantee("references-in-commands")
def test_references_to_a_worlds_variables_are_hidden_from_the_kubelet_and_no_others() -> None:
    env = [{"name": "LOG", "value": "$(RANK)/$(ELASTICJOB_INDEX)"}, {"name": "UNSET"}]
    made = job(
        command=["sh", "-c", "$(MASTER_ADDR) $$(RANK)"],
        args=["$(HOME)", "$(date)", "$(TF_CONFIG)"],
        env=env,
    )
    pod = member_pod(
        made, "worker", 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    container = pod["spec"]["containers"][0]
    assert container["args"] == [
        "sh",
        "-c",
        "$$(MASTER_ADDR) $$$$(RANK)",
        "$(HOME)",
        "$(date)",
        "$(TF_CONFIG)",
    ]
    assert container["env"][-2:] == [
        {"name": "LOG", "value": "$$(RANK)/$(ELASTICJOB_INDEX)"},
        {"name": "UNSET"},
    ]
    without = job(agent="None", args=["$(RANK)"])
    pod = member_pod(
        without, "worker", 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    assert pod["spec"]["containers"][0]["args"] == ["$(RANK)"], (
        "without an agent nothing would replace it"
    )
