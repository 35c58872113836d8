"""Tests how torchrun is recognised, and which of its options a job must not set."""

from __future__ import annotations

import shlex

import pytest
from elasticjob_api.frameworks import torchrun

from tests.support.torchrun_commands import COMMANDS

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


REMEDIES = {"nnodes": "replicas", "nproc-per-node": "slots", "max-restarts": "limit"}


@pytest.mark.parametrize(("command", "options"), COMMANDS)
def test_options_that_the_agent_sets_are_found_but_not_those_of_the_script(
    command: str, options: str
) -> None:
    error = torchrun.fixed_options(shlex.split(command), REMEDIES)
    if not options:
        assert error is None
    else:
        found = ", ".join(map(repr, options.split()))
        assert str(error).startswith(f"the agent sets {found} for torchrun in each world; remove ")


def test_a_refusal_names_all_options_and_what_to_set_in_place_of_them() -> None:
    command = ["torchrun", "--nnodes=2", "--rdzv_id=1", "--max_restarts", "3", "train.py"]
    assert torchrun.fixed_options(command, REMEDIES) == (
        "the agent sets '--nnodes=2', '--rdzv_id=1', '--max_restarts' for torchrun in each world; "
        "remove them, and "
        "set replicas in place of --nnodes, limit in place of --max_restarts"
    )
