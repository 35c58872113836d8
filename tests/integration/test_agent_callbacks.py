"""The examples around the callbacks: real frameworks under real agents and a real master, while a worker leaves."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
LIBRARY = ":".join(str(ROOT / folder) for folder in ("agent", "api", "shards"))
CALLBACKS = Path.home() / ".cache" / "elasticjob-callbacks" / "bin" / "python"
EPOCHS = 40


@pytest.mark.parametrize(("framework", "workers"), [("keras", 1), ("huggingface", 2), ("lightning", 2)])
def test_a_worker_leaves_in_mid_training_and_it_goes_on_from_that_step(
    local_job: LocalJob, framework: str, workers: int
) -> None:
    python = Path(sys.executable) if framework == "keras" else CALLBACKS
    if not python.exists():
        pytest.skip(f"{python} is missing: tools/callbacks_env makes it")
    job, checkpoints = local_job, local_job.folder / "checkpoints"
    job.framework = "jax" if framework == "keras" else "pytorch"
    environment = {"EPOCHS": str(EPOCHS), "CHECKPOINT_DIR": str(checkpoints), "PYTHONPATH": LIBRARY}
    command = (str(python), str(ROOT / "examples" / "frameworks" / framework / "train.py"))
    job.start_master(least=1)
    agents = [job.start_agent(index, *command, **environment) for index in range(workers)]
    here = f"round \\d+ size {workers} " if workers > 1 else ""
    job.wait_for_line(f"{here}from ")
    job.wait("a checkpoint", lambda: any(path.is_file() for path in checkpoints.rglob("*")))
    agents[-1].send_signal(signal.SIGTERM)
    job.wait("the worker has left", lambda: agents[-1].poll() is not None)
    assert agents[-1].returncode == names.EXIT_DRAINED, job.log()
    if workers == 1:
        agents = [job.start_agent(1, *command, **environment)]
    job.wait("the training ends", lambda: agents[0].poll() is not None)
    assert agents[0].returncode == 0, job.log()
    begun = re.findall(r"round (\d+).* from (.*)", job.log())
    _, last = max(begun, key=lambda world: int(world[0]))
    assert last not in ("step 0", "the beginning"), begun
    ends = re.findall(r"finished: (\d+) steps, accuracy ([\d.]+)", job.log())
    assert [int(steps) for steps, _ in ends] == [EPOCHS * 12], job.log()
    assert float(ends[0][1]) > 0.9
