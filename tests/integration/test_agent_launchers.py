"""Runs the real launchers of PyTorch's programs with agents and master, through every change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.changing_job import SUPPORT, check_weights, train_through_changes
from tests.support.framework_python import installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
LIBRARIES = ("accelerate", "trainer", "lightning")
"""Those of library_training.py."""
BATCH = 12

LAUNCHERS = {
    "torchrun": ["python", "-m", "torch.distributed.run", "--log-dir=logs"],
    "accelerate": ["accelerate", "launch", "--mixed_precision=no"],
    "deepspeed": ["deepspeed", "--no_local_rank"],
    "fabric": ["fabric", "run", "--accelerator=cpu"],
    "none": ["python"],
}
"""Each with an option of its user."""


@pytest.mark.guarantee("launchers-of-pytorch")
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed", "fabric"])
# `deepspeed` imports PyTorch twice before its processes do: six of them take minutes to start on a
# loaded machine.
@pytest.mark.parametrize(("pods", "slots"), [(2, 1), (1, 2)])
def test_each_launcher_trains_through_resizes_and_a_kill_with_every_sample_once(
    local_job: LocalJob, launcher: str, pods: int, slots: int
) -> None:
    train(local_job, launcher, "launched_training.py", pods=pods, slots=slots)
    (end,) = re.findall(r"end: (\d+) steps, (\d+) samples, sum (\d+)", local_job.log())
    steps, samples, total = map(int, end)
    assert samples == steps * BATCH
    assert total == samples * (samples - 1) // 2, "a sample is lost, or there twice"


@pytest.mark.guarantee("one-world")
@pytest.mark.parametrize(
    ("launcher", "library", "pods", "slots"),
    [
        *(("none", library, 2, 1) for library in LIBRARIES),
        *(("none", library, 1, 2) for library in LIBRARIES),
        *(("accelerate", library, 2, 1) for library in LIBRARIES),
        ("torchrun", "trainer", 1, 2),
    ],
)
def test_processes_of_a_library_train_one_model_as_a_single_process_would(
    local_job: LocalJob, launcher: str, library: str, pods: int, slots: int
) -> None:
    train(local_job, launcher, "library_training.py", library, pods=pods, slots=slots)
    check_weights(local_job)


@pytest.mark.guarantee("sharded-checkpoints", "one-world")
@pytest.mark.parametrize("stage", ["1", "2"])
def test_a_model_of_zero_continues_in_a_world_of_another_size_bit_for_bit(
    local_job: LocalJob, stage: str
) -> None:
    train(local_job, "deepspeed", "zero_training.py", STAGE=stage)
    log = local_job.log()
    saved = dict(re.findall(r"stopped after step (\d+) state (\w+)", log))
    read = dict(re.findall(r"from step (\d+) state (\w+)", log))
    assert len(saved) >= 2, log
    assert saved == {step: read.get(step) for step in saved}
    assert len(set(read.values())) == len(read), "the model has not learned"


def train(
    job: LocalJob,
    launcher: str,
    script: str,
    *arguments: str,
    pods: int = 2,
    slots: int = 1,
    **variables: str,
) -> None:
    job.framework = "pytorch"
    program, *options = LAUNCHERS[launcher]
    programs = Path(installed_by("callbacks_env")).parent
    train_through_changes(
        job,
        [str(programs / program), *options, str(SUPPORT / script), *arguments],
        pods,
        variables={names.ENV_SLOTS: str(slots), **variables},
        launched=launcher != "none",
    )
