"""Compares the API server's answers with the operator's own check of the options of torchrun."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from elasticjob_api.frameworks import launchers, torchrun
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube

from tests.support.operator_process import job
from tests.support.torchrun_commands import COMMANDS
from tests.support.wait import until

FIELD = "spec.replicaSpecs.worker.template.spec.containers[0].command"
REFUSED = ["torchrun", "--nproc_per_node=2", "--max_restarts", "3", "train.py"]


@pytest.mark.guarantee("refusals-name-the-bound")
async def test_the_api_server_refuses_the_same_options_of_torchrun_as_the_operator(
    kube: Kube, namespace: str
) -> None:
    await enforced(kube, namespace)
    for command in every_command():
        error = launchers.fixed_options(command, {})
        found = await refusal(kube, namespace, torch_job(command))
        if error is None:
            assert found == "", command
        else:
            named, _, _ = error.partition(";")
            assert f"{FIELD}: {named}; remove " in found, command


async def test_a_refusal_names_the_fields_that_replace_options(kube: Kube, namespace: str) -> None:
    await enforced(kube, namespace)
    assert (await refusal(kube, namespace, torch_job(REFUSED))).endswith(
        f"{FIELD}: the agent sets '--nproc_per_node=2', '--max_restarts' for torchrun in each "
        "world; remove them; replicas replaces --nnodes, slotsPerReplica replaces "
        "--nproc-per-node, processRestartLimit replaces --max-restarts"
    )


async def test_other_frameworks_and_roles_without_an_agent_are_not_checked(
    kube: Kube, namespace: str
) -> None:
    await enforced(kube, namespace)
    assert await refusal(kube, namespace, torch_job(REFUSED, framework="custom")) == ""
    body = torch_job(["train"])
    helper = torch_job(REFUSED)["spec"]["replicaSpecs"]["worker"]
    body["spec"]["replicaSpecs"]["helper"] = {**helper, "agent": "None"}
    assert await refusal(kube, namespace, body) == ""


async def test_a_command_that_costs_too_much_to_check_is_left_to_the_operator(
    kube: Kube, namespace: str
) -> None:
    await enforced(kube, namespace)
    text = "torchrun --nnodes=2 train.py\n"
    for echoes, is_checked in ((1_000, True), (15_000, False)):
        long = "echo 0123456789\n" * echoes
        answer = await refusal(kube, namespace, torch_job(["sh", "-c", long + text]))
        assert ("--nnodes=2" in answer) == is_checked


def every_command() -> Iterator[list[str]]:
    yield from (shlex.split(command) for command, _ in COMMANDS)
    for option in (torchrun.STANDALONE, *torchrun.WITH_VALUE):
        dashes = option.replace(r"\w+", "id")
        for word in (dashes, dashes.replace("-", "_")):
            yield ["/opt/bin/torchrun", f"--{word}", "1", "train.py"]
            yield ["torchrun", "--log-dir", "d", f"--{word}=1", "train.py"]
            yield ["sh", "-c", f"torchrun --{word}  1 \\\n --log-dir d --nnodes=2 train.py --x=$X"]
            yield ["python3", "-m", "torch.distributed.run", f"--{word}=1:$(X)", "train.py"]
            yield ["torchrun", "train.py", f"--{word}=1"]


def torch_job(command: list[str], *, framework: str = "pytorch") -> Json:
    body = job(autoscaling={"enabled": False})
    body["spec"]["framework"] = framework
    container = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container |= {"command": command[:1], "args": command[1:]}
    return body


async def refusal(kube: Kube, namespace: str, body: Json) -> str:
    """Return why the API server refuses a job; empty if it accepts it. Nothing is stored."""
    try:
        await kube.create(ELASTIC_JOBS, namespace, body, dry_run=True)
    except Refused as error:
        return error.message
    return ""


async def enforced(kube: Kube, namespace: str) -> None:
    """Wait until the API server enforces the policy, some seconds after its creation."""
    await until("it is enforced", lambda: refusal(kube, namespace, torch_job(REFUSED)))
