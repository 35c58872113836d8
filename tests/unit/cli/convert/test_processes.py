"""Tests how many processes a member has, by its command, its GPUs and the options of launchers."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from elasticjob_api.frameworks import launchers
from elasticjob_cli.convert.report import Kind

from tests.support.convert import converted, errors, notes_of, sample

SLOTS = "slotsPerReplica"


def pytorch(command: str, *, gpus: int = 4, workers: int = 2, **spec: Any) -> Any:
    """Return a PyTorchJob of workers with GPUs that run a command."""
    [document] = sample("kubeflow/pytorch-simple.yaml")
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"] | {"replicas": workers}
    container = worker["template"]["spec"]["containers"][0]
    container["command"] = shlex.split(command)
    container["resources"] = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    document["spec"] = {"pytorchReplicaSpecs": {"Worker": worker}} | spec
    return document


def worker_of(document: Any) -> tuple[Any, list[str], list[str]]:
    """Return the converted role, and the report's lines on losses and on differences."""
    result = converted(document)
    assert result.object is not None
    lines = [notes_of(result, kind) for kind in (Kind.LOST, Kind.DIFFERS)]
    return result.object["spec"]["replicaSpecs"]["worker"], *lines


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(
    "command",
    ["python a.py", "nice python3.11 -u a.py", "sh -c 'cd /x && . env.sh && python a.py'"],
)
def test_a_program_is_one_process_on_several_gpus_as_at_the_other_operators(command: str) -> None:
    worker, lost, differs = worker_of(pytorch(command))
    assert (worker[SLOTS], lost) == (1, [])
    assert ["for 4: call torchrun" in text for text in differs if "one process" in text] == [True]
    worker, lost, _ = worker_of(pytorch(command, nprocPerNode="4"))
    assert worker[SLOTS] == 1
    assert ["for 4: call torchrun" in text for text in lost] == [True]
    worker, lost, _ = worker_of(pytorch(command, gpus=0))
    assert (SLOTS in worker, lost) == (False, [])


@pytest.mark.parametrize("command", ["bash run.sh", "./train", "sh -c 'bash x.sh; python a.py'"])
def test_the_processes_that_a_script_may_start_by_torchrun_are_lost(command: str) -> None:
    numbers: list[dict[str, Any]] = [{}, *({"nprocPerNode": each} for each in ("auto", "4", "3"))]
    for number in numbers:
        worker, lost, _ = worker_of(pytorch(command, **number))
        assert worker[SLOTS] == 1
        assert ["a torchrun in it starts one" in text for text in lost] == [True]
    assert worker_of(pytorch(command, gpus=1))[1] == []


@pytest.mark.parametrize(
    "command",
    ["torchrun t.py", "nice -n 5 torchrun t.py", "tini -- bash -c 'uv run accelerate launch t.py'"],
)
def test_a_launcher_starts_the_processes_that_the_job_asks_for(command: str) -> None:
    assert SLOTS not in worker_of(pytorch(command))[0]
    assert worker_of(pytorch(command, nprocPerNode="2"))[0][SLOTS] == 2


@pytest.mark.parametrize(
    ("command", "changed", "slots"),
    [
        (
            "accelerate launch --num_processes 8 --num_machines 2 --machine_rank $RANK "
            "--main_process_ip $MASTER_ADDR --multi_gpu --mixed_precision bf16 train.py --seed 1",
            *("accelerate launch --mixed_precision bf16 train.py --seed 1", 4),
        ),
        ("accelerate launch --num_processes=8 --num_machines=$N -m t",
         *("accelerate launch -m t", 4)),
        ("accelerate launch --num_processes 4 --use_fsdp t.py --num_processes 3",
         *("accelerate launch --use_fsdp t.py --num_processes 3", 4)),
        ("deepspeed --num_gpus 4 --num_nodes 2 --hostfile /h --no_ssh t.py --deepspeed d.json",
         *("deepspeed t.py --deepspeed d.json", 4)),
        ("nice fabric run --devices=2 --num-nodes=2 --accelerator=cuda t.py --devices=9",
         *("nice fabric run --accelerator=cuda t.py --devices=9", 2)),
        ("uv run --with x torchrun --nnodes 2 --nproc_per_node 2 t.py",
         *("uv run --with x torchrun t.py", 2)),
        ("torchrun --nproc_per_node=2 $SCRIPT --nnodes 7", "torchrun $SCRIPT --nnodes 7", 2),
        ("bash -c 'torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) --nnodes=2 "
         "--rdzv_endpoint=\"$(hostname -i):29400\" --rdzv-id `date +%s` train.py'",
         *("bash -c 'torchrun train.py'", None)),
        ("tini -- sh -c 'exec numactl -m 0 accelerate launch --num_processes $((2 * N)) t.py'",
         *("tini -- sh -c 'exec numactl -m 0 accelerate launch t.py'", None)),
        ("bash -c -- 'srun -n 1 nsys profile -o x torchrun --nproc_per_node=2 t.py'",
         *("bash -c -- 'srun -n 1 nsys profile -o x torchrun t.py'", 2)),
    ],
)  # fmt: skip
def test_options_that_the_agent_sets_become_fields(
    command: str, changed: str, slots: int | None
) -> None:
    worker, lost, differs = worker_of(pytorch(command))
    container = worker["template"]["spec"]["containers"][0]
    assert (container["command"], worker.get(SLOTS)) == (shlex.split(changed), slots)
    assert launchers.fixed_options(container["command"], {}) is None
    assert lost == []
    assert [text for text in differs if "left out: --" in text]


def test_variables_of_a_pod_beside_a_launcher_are_those_of_its_node() -> None:
    text = (
        "[ $RANK = 0 ] && a ${WORLD_SIZE:-1} $RANK_X; torchrun --node_rank=$RANK t.py $MASTER_ADDR"
    )
    worker, lost, differs = worker_of(pytorch(f"sh -c '{text}'"))
    assert worker["template"]["spec"]["containers"][0]["command"][2] == (
        "[ $PET_NODE_RANK = 0 ] && a ${PET_NNODES:-1} $RANK_X; torchrun t.py $PET_MASTER_ADDR"
    )
    assert lost == []
    assert ["RANK of a pod is PET_NODE_RANK" in text for text in differs if "PET_" in text] == [
        True
    ]
    _, lost, _ = worker_of(pytorch(f"sh -c '{text}'", nprocPerNode="4"))
    assert ["not their 4 processes" in text for text in lost] == [True]
    worker, _, _ = worker_of(pytorch("sh -c 'python a.py $RANK'"))
    assert worker["template"]["spec"]["containers"][0]["command"][2] == "python a.py $RANK"


def test_a_number_of_members_that_is_not_replicas_is_lost() -> None:
    for option in ("torchrun --nnodes=3", "deepspeed --num_nodes 3"):
        worker, lost, _ = worker_of(pytorch(f"{option} t.py"))
        assert worker["replicas"] == 2
        assert ["replicas is 2, which counts" in text for text in lost] == [True]
    assert "--include chooses hosts" in worker_of(pytorch("deepspeed --include a:0 t.py"))[1][0]


def test_what_the_operator_would_refuse_is_an_error_of_the_conversion() -> None:
    document = pytorch("bash -c x")
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0]["command"][2] = 'torchrun --tee "3 --nnodes=2 t.py'
    [text] = errors(document)
    assert "command: the agent sets '--nnodes=2' for torchrun" in text
