"""How torchrun is recognised, and which of its options a job must not set."""

from __future__ import annotations

import shlex

import pytest
from elasticjob_api.frameworks import torchrun

LAUNCHERS = (
    "torchrun train.py",
    "/usr/local/bin/torchrun --log_dir logs train.py --epochs 3",
    "python -m torch.distributed.run train.py",
    "/usr/bin/python3.11 -u -m torch.distributed.launch train.py",
    "sh -c 'pip install x && exec torchrun train.py'",
    "bash -ec 'cd /work; python3 -u -m torch.distributed.run train.py'",
    "bash -lc /opt/bin/torchrun",
)
OTHERS = (
    "python train.py",
    "python train.py -m torch.distributed.run",
    "python -m trainer torchrun",
    "./torchrun.sh",
    "bash run.sh torchrun",
    "sh -c 'python my_torchrun_like.py'",
    "python -m torch.distributed.runner",
    "env torchrun train.py",
)


@pytest.mark.parametrize("command", LAUNCHERS)
def test_torchrun_is_recognised(command: str) -> None:
    assert torchrun.is_torchrun(shlex.split(command))


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_are_not_recognised_as_torchrun(command: str) -> None:
    assert not torchrun.is_torchrun(shlex.split(command))


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("torchrun --standalone train.py", "--standalone"),
        ("torchrun --nnodes 2 train.py", "--nnodes"),
        ("torchrun --nproc-per-node=gpu train.py", "--nproc-per-node=gpu"),
        ("python -m torch.distributed.run --rdzv_backend=c10d train.py", "--rdzv_backend=c10d"),
        ("torchrun --max_restarts=3 --log_dir d train.py", None),
        ("torchrun train.py --nnodes 2", None),
        ("torchrun -m trainer --master_port 1", None),
        ("python train.py --standalone", None),
    ],
)
def test_options_that_fix_the_world_are_found_but_not_those_of_the_script(
    command: str, option: str | None
) -> None:
    assert torchrun.fixed_option(shlex.split(command)) == option
