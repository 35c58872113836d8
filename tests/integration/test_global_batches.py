"""Trains global batches by PyTorch's DataLoader, as workers join, leave and are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.e2e.pytorch_job import python
from tests.support.framework_python import LIBRARY, installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
PROGRAM = Path(__file__).parents[1] / "support" / "global_batch_training.py"
LOADERS = PROGRAM.with_name("loaders_in_frameworks.py")


@pytest.mark.guarantee("global-batches")
def test_each_sample_is_in_the_model_once_an_epoch_from_two_to_three_to_two_and_after_kills(
    local_job: LocalJob,
) -> None:
    job = local_job
    job.framework = "pytorch"
    end = job.folder / "end"
    environment = {
        "PYTHONPATH": LIBRARY,
        "CHECKPOINTS": str(job.folder / "checkpoints"),
        "END": str(end),
        "ELASTICJOB_PROCESS_RESTART_LIMIT": "3",
    }

    def start(index: int) -> None:
        job.start_agent(index, python(), str(PROGRAM), **environment)

    def worlds(size: int) -> int:
        """Return how many worlds of a size have trained."""
        found = re.findall(rf"round (\d+) size {size} has trained step", job.log())
        return len(set(found))

    def wait_for_worlds(number: int, size: int) -> None:
        job.wait(f"{number} worlds of {size} have trained", lambda: worlds(size) >= number)

    job.start_master(least=2)
    start(0)
    start(1)
    wait_for_worlds(1, 2)
    start(2)
    wait_for_worlds(1, 3)
    job.processes["worker-2"].send_signal(signal.SIGTERM)
    wait_for_worlds(2, 2)
    job.processes["worker-1"].kill()
    job.processes["worker-1"].wait()
    start(1)
    wait_for_worlds(3, 2)
    (training,) = psutil.Process(job.processes["worker-0"].pid).children()
    training.children()[0].kill()  # a process of its loader
    wait_for_worlds(4, 2)
    end.touch()
    job.wait_for_line("in the model: ")
    workers = [job.processes["worker-0"], job.processes["worker-1"]]
    job.wait("the end", lambda: all(worker.poll() is not None for worker in workers))
    assert [worker.returncode for worker in workers] == [0, 0], job.log()
    assert "in the model: {1: 1212}; in the ledger: 124 of 124" in job.log(), job.log()


@pytest.mark.guarantee("global-batches")
@pytest.mark.parametrize(
    ("framework", "script"),
    [
        ("torch", "callbacks_env"),
        ("hugging_face", "callbacks_env"),
        ("tensorflow", "tensorflow_env"),
    ],
)
def test_a_real_loader_returns_each_sample_once_an_epoch(
    framework: str, script: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [installed_by(script), LOADERS, framework],
        env={**os.environ, "PYTHONPATH": LIBRARY},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "No module named 'datasets'" in done.stderr:
        pytest.skip("datasets is not installed: run tools/callbacks_env anew")
    assert done.returncode == 0, done.stderr
