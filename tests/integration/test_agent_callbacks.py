"""Runs the callbacks' examples with real frameworks, agents and master, as a worker leaves."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.framework_python import installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
LIBRARY = ":".join(str(ROOT / folder) for folder in ("agent", "api", "shards"))
EPOCHS = 40
WORKERS = 2


@pytest.mark.parametrize(
    ("example", "framework", "script", "replaced"),
    [
        ("keras", "tensorflow", "tensorflow_env", False),
        ("huggingface", "pytorch", "callbacks_env", False),
        ("huggingface", "pytorch", "callbacks_env", True),
        ("lightning", "pytorch", "callbacks_env", False),
    ],
)
def test_training_continues_from_its_last_step_when_a_worker_leaves(
    local_job: LocalJob, example: str, framework: str, script: str, replaced: bool
) -> None:
    """With a replaced worker several processes resume, which read other files than one does."""
    job = local_job
    checkpoints = local_job.folder / "checkpoints"
    job.framework = framework
    environment = {"EPOCHS": str(EPOCHS), "CHECKPOINT_DIR": str(checkpoints), "PYTHONPATH": LIBRARY}
    command = (installed_by(script), str(ROOT / "examples" / "frameworks" / example / "train.py"))
    job.start_master(least=WORKERS if replaced else 1)
    agents = [job.start_agent(index, *command, **environment) for index in range(WORKERS)]
    job.wait_for_line(f"round \\d+ size {WORKERS} from ")
    job.wait("a checkpoint", lambda: any(path.is_file() for path in checkpoints.rglob("*")))
    agents[-1].send_signal(signal.SIGTERM)
    job.wait("the worker has left", lambda: agents[-1].poll() is not None)
    assert agents[-1].returncode == names.EXIT_DRAINED, job.log()
    if replaced:
        agents[-1] = job.start_agent(WORKERS - 1, *command, **environment)
    job.wait("the training ends", lambda: agents[0].poll() is not None)
    assert agents[0].returncode == 0, job.log()
    begun = re.findall(r"round (\d+) size (\d+) from (.*)", job.log())
    _, size, last = max(begun, key=lambda world: int(world[0]))
    assert int(size) == (WORKERS if replaced else 1)
    assert last not in ("step 0", "the beginning"), begun
    ends = re.findall(r"finished: (\d+) steps, accuracy ([\d.]+)", job.log())
    assert [int(steps) for steps, _ in ends] == [EPOCHS * 12], job.log()
    assert float(ends[0][1]) > 0.9
