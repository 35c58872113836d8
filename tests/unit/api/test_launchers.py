"""Tests how launchers are recognised, what they get, and which options a job must not set."""

from __future__ import annotations

import shlex

import pytest
from elasticjob_api.frameworks import launchers, torchrun
from elasticjob_api.frameworks.launchers import ACCELERATE, DEEPSPEED, FABRIC, Launcher

LAUNCHERS = (
    "torchrun train.py",
    "/usr/local/bin/torchrun --log_dir logs train.py --epochs 3",
    "python -m torch.distributed.run train.py",
    "/usr/bin/python3.11 -u -m torch.distributed.launch train.py",
    "sh -c 'pip install x && exec torchrun train.py'",
    "bash -ec 'cd /work; python3 -u -m torch.distributed.run train.py'",
    "bash -lc /opt/bin/torchrun",
    "nice -n 10 torchrun train.py",
    "numactl --cpunodebind 0 -m 0 /opt/bin/torchrun train.py",
    "env -u X A=1 B='x y' torchrun train.py",
    "stdbuf -oL time -p torchrun train.py",
    "uv run --with x --no-sync torchrun train.py",
    "poetry run torchrun train.py",
    "timeout -k 5 24h taskset -c 0-3 torchrun train.py",
    "conda run -n env --no-capture-output python -m torch.distributed.run train.py",
    "/usr/bin/tini -g -- bash -c 'exec nice torchrun train.py'",
    "bash -c -- 'exec torchrun train.py'",
    "bash -ce -o pipefail 'torchrun train.py' name",
    "bash --rcfile c -euo pipefail -c 'torchrun train.py'",
    "srun --ntasks 1 -c 8 --unbuffered --gres=gpu:8 torchrun train.py",
    "srun bash -c 'nsys profile -o out torchrun train.py'",
    "nsys profile -w true -t cuda,nvtx -o out --force-overwrite=true torchrun train.py",
    "sudo -E -u trainer torchrun train.py",
    "gosu trainer dumb-init -- torchrun train.py",
    "py-spy record -o out.svg -s -- torchrun train.py",
    "opentelemetry-instrument torchrun train.py",
)
OTHERS = (
    "python train.py",
    "python train.py -m torch.distributed.run",
    "python -m trainer torchrun",
    "./torchrun.sh",
    "bash run.sh torchrun",
    "sh -c 'python my_torchrun_like.py'",
    "python -m torch.distributed.runner",
    "uv run --with torchrun python train.py",
    "nice -n 10 python train.py torchrun",
    "nice -n 10",
    "sh -c 'pip install deepspeed && python train.py'",
    "sh -c 'cd /work/deepspeed && python train.py --deepspeed ds.json'",
    "accelerate config",
    "deepspeed.sh",
    "bash run.sh -c 'torchrun train.py'",
    "bash -c ./run.sh 'torchrun train.py'",
    "srun --unbuffered python train.py torchrun",
    "nsys profile -o torchrun python train.py",
)


@pytest.mark.parametrize("command", LAUNCHERS)
def test_torchrun_is_recognised(command: str) -> None:
    assert launchers.launcher_of(shlex.split(command)) is launchers.TORCHRUN


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_are_not_recognised_as_launchers(command: str) -> None:
    assert launchers.launcher_of(shlex.split(command)) is None


REMEDIES = {"nnodes": "replicas", "nproc-per-node": "slots", "max-restarts": "limit"}


COMMANDS = [
    ("torchrun --standalone train.py", "--standalone"),
    ("torchrun --standalone $SCRIPT", "--standalone"),
    ("torchrun --nnodes 2 train.py", "--nnodes"),
    ("torchrun --nproc-per-node=gpu train.py", "--nproc-per-node=gpu"),
    ("torchrun --max_restarts=3 --log_dir d train.py", "--max_restarts=3"),
    ("torchrun --nnodes=1:4 --max-restarts 3 train.py", "--nnodes=1:4 --max-restarts"),
    ("python -m torch.distributed.run --rdzv_backend=c10d train.py", "--rdzv_backend=c10d"),
    ("sh -c 'cd /x && torchrun --max_restarts=3 train.py; echo'", "--max_restarts=3"),
    ("bash -c 'exec torchrun --log_dir d \\\n \"--nnodes=2\" t.py'", "--nnodes=2"),
    ("torchrun --log_dir d train.py", ""),
    ("torchrun train.py --nnodes 2", ""),
    ("torchrun -m trainer --master_port 1", ""),
    ("torchrun --no_python ./train --nnodes=2", ""),
    ("python train.py --standalone", ""),
    ("torchrun --nnodes=$(PET_NNODES) --nproc_per_node $(SLOTS) train.py", ""),
    ("sh -c 'torchrun --nnodes=$PET_NNODES train.py'", ""),
    ("sh -c 'torchrun --log_dir d train.py; ./x --nnodes=2'", ""),
    ("sh -c 'torchrun --standalone check.py && torchrun train.py'", ""),
    ("bash run.sh torchrun --nnodes=2", ""),
    ("nice torchrun --nnodes=2 train.py", "--nnodes=2"),
    ("sh -c 'torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) --nnodes=2 t.py'", "--nnodes=2"),
    ("sh -c 'torchrun --rdzv-id=`a | b` --nnodes=2 t.py'", "--nnodes=2"),
    ("sh -c 'torchrun --rdzv_endpoint=\"$(hostname -i):29400\" t.py'", ""),
    ("sh -c 'torchrun --log_dir \"a; b\" --nnodes=2 t.py'", "--nnodes=2"),
    ("sh -c 'x=$(torchrun --nnodes=2 t.py)'", "--nnodes=2"),
    ("torchrun $SCRIPT --nnodes 2", ""),
    ("torchrun --use_env train --nnodes 2", ""),
    ("torchrun --log-dir=d -- train --nnodes=2", ""),
]
"""Each command, with the words of it that are refused."""


@pytest.mark.parametrize(("command", "options"), COMMANDS)
def test_options_that_the_agent_sets_are_found_but_not_those_of_the_script(
    command: str, options: str
) -> None:
    error = launchers.fixed_options(shlex.split(command), REMEDIES)
    if not options:
        assert error is None
    else:
        found = ", ".join(map(repr, options.split()))
        assert str(error).startswith(f"the agent sets {found} for torchrun in each world; remove ")


@pytest.mark.parametrize("option", [torchrun.STANDALONE, *torchrun.WITH_VALUE])
def test_each_option_of_torchrun_that_the_agent_sets_is_found_in_every_form(option: str) -> None:
    dashes = option.replace(r"\w+", "id")
    for word in (f"--{dashes}", f"--{dashes.replace('-', '_')}"):
        separate = ["/opt/bin/torchrun", word, "1", "train.py"]
        assert f"sets {word!r} for" in str(launchers.fixed_options(separate, {}))
        joined = ["torchrun", "--log-dir", "d", f"{word}=1", "train.py"]
        assert f"sets '{word}=1' for" in str(launchers.fixed_options(joined, {}))
        shell = f"torchrun {word}=1 \\\n --log-dir d --nnodes=2 train.py --x=$X"
        in_shell = launchers.fixed_options(["sh", "-c", shell], {})
        assert f"sets '{word}=1', '--nnodes=2' for" in str(in_shell)
        variable = ["python3", "-m", "torch.distributed.run", f"{word}=1:$(X)", "train.py"]
        assert launchers.fixed_options(variable, {}) is None
        assert launchers.fixed_options(["torchrun", "train.py", f"{word}=1"], {}) is None


def test_a_refusal_names_all_options_and_what_to_set_in_place_of_them() -> None:
    command = ["torchrun", "--nnodes=2", "--rdzv_id=1", "--max_restarts", "3", "train.py"]
    assert launchers.fixed_options(command, REMEDIES) == (
        "the agent sets '--nnodes=2', '--rdzv_id=1', '--max_restarts' for torchrun in each world; "
        "remove them, and "
        "set replicas in place of --nnodes, limit in place of --max_restarts"
    )


@pytest.mark.parametrize(
    ("command", "launcher", "left", "right"),
    [
        ("accelerate launch --use_fsdp train.py", ACCELERATE, "accelerate launch", "--use_fsdp"),
        (
            "/x/accelerate-launch --use_fsdp -m t",
            ACCELERATE,
            "/x/accelerate-launch",
            "--use_fsdp -m t",
        ),
        ("deepspeed --bind_cores_to_rank t.py", DEEPSPEED, "deepspeed", "--bind_cores_to_rank"),
        ("fabric run --accelerator=cpu t.py", FABRIC, "fabric run", "--accelerator=cpu"),
        ("sh -c 'cd /x; exec deepspeed t.py'", DEEPSPEED, "sh -c cd /x; exec deepspeed", "t.py"),
        (
            "nice -n 10 accelerate launch --use_fsdp train.py",
            *(ACCELERATE, "nice -n 10 accelerate launch", "--use_fsdp"),
        ),
        (
            "sh -c 'nice  -n  10  \\\n accelerate  launch --use_fsdp t.py'",
            *(ACCELERATE, "sh -c nice  -n  10  \\\n accelerate  launch", "--use_fsdp"),
        ),
        (
            "tini -- sh -c 'exec numactl -m 0 deepspeed t.py'",
            *(DEEPSPEED, "tini -- sh -c exec numactl -m 0 deepspeed", "t.py"),
        ),
        (
            "bash -c 'A=1 /x/bin/accelerate launch \\\n --tpu t.py'",
            *(ACCELERATE, "bash -c A=1 /x/bin/accelerate launch", "\\\n --tpu"),
        ),
    ],
)
def test_other_launchers_get_their_world_before_the_options_of_the_user(
    command: str, launcher: Launcher, left: str, right: str
) -> None:
    words = shlex.split(command)
    assert launchers.launcher_of(words) is launcher
    found = " ".join(launchers.with_world(words))
    assert found.startswith(" ".join([left, *launcher.world, right])), found
    assert launchers.fixed_options(words, {}) is None


def test_accelerate_starts_several_processes_unless_its_user_has_chosen_a_strategy() -> None:
    mode = f"--$({launchers.MODE})"
    assert mode in launchers.with_world(["accelerate", "launch", "train.py"])
    chosen = ["accelerate", "launch", "--config_file=fsdp.yaml", "train.py"]
    assert mode not in launchers.with_world(chosen)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("accelerate launch --num_processes 4 --multi_gpu t.py", "--num_processes --multi_gpu"),
        ("accelerate launch --mixed_precision=no --cpu t.py --num_machines=2", "--cpu"),
        ("accelerate launch --num_processes=$(SLOTS) t.py", ""),
        ("deepspeed --hostfile h -i w-0 --num_gpus=2 t.py", "--hostfile -i --num_gpus=2"),
        ("deepspeed --module t --include x", ""),
        ("sh -c 'fabric run --devices=2 t.py'", "--devices=2"),
    ],
)
def test_options_of_other_launchers_that_the_agent_sets_are_refused(
    command: str, options: str
) -> None:
    error = launchers.fixed_options(shlex.split(command), launchers.FIELDS) or ""
    named = ", ".join(map(repr, options.split()))
    assert error.startswith(f"the agent sets {named} for ") if options else not error


def test_a_hostile_command_takes_no_time() -> None:
    for part in (
        "{",
        ";a=",
        "nice\n",
        ";nice -",
        "/python -",
        "`",
        "$(",
        "nice -n ",
        "env a=b ",
        "srun -n 1 ",
        "nsys profile -o ",
        "srun --a ",
    ):
        text = part * 10_000
        for command in (
            ["sh", "-c", text],
            ["sh", "-c", f"torchrun --a={text}"],
            text.split(" "),
            ["nice", text],
        ):
            launchers.launcher_of(command)
            launchers.fixed_options(command, {})
