"""Runs jobs of real Horovod processes.

Their tests are skipped unless `tools/horovod_env` has been run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import psutil
from elasticjob_api import names

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.framework_python import installed_by
from tests.support.local_job import LocalJob

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "tests/support/horovod_training.py"
FINISH = "finish"
"""The file that ends a local job's training."""
SECONDS = 150.0
"""The limit of one wait: half a minute of it may be Gloo's timeout."""
STEP = re.compile(r"^(?:\[\d+\] )?step (\d+) size (\d+) weight (\d+)$", re.MULTILINE)


def horovod_python() -> str:
    """Return a Python with Horovod; skip the test if there is none."""
    return installed_by("horovod_env")


def train(job: LocalJob, index: int, *, slots: int = 1) -> subprocess.Popen[bytes]:
    """Start a worker of a local job with the unchanged script, in one process for each slot."""
    environment = {
        "FINISH": str(job.folder / FINISH),
        "STEP_SECONDS": "0.1",
        names.ENV_SLOTS: str(slots),
    }
    return job.start_agent(index, horovod_python(), str(SCRIPT), **environment)


def check_account(log: str, *, sizes: set[int], repeated: int = 0) -> None:
    """Check the sizes of the worlds that have trained, and the account of the committed steps.

    The script itself has checked its sums. At most `repeated` steps were repeated after a rollback,
    or a killed process has not printed them.
    """
    done = steps_in(log)
    steps = max(step for step, _, _ in done)
    missing = set(range(1, steps + 1)) - {step for step, _, _ in done}
    # A killed rank 0 prints nothing any more.
    assert len(missing) <= repeated, f"steps {missing} are missing: {log}"
    assert len(done) <= steps + repeated, f"{len(done)} steps for {steps}: {log}"
    assert {size for _, size, _ in done} == sizes, log
    finished = re.findall(
        r"^(?:\[\d+\] )?finished: rank (\d+) of (\d+) after (\d+) steps weight (\d+)$",
        log,
        re.MULTILINE,
    )
    ranks = sorted(int(rank) for rank, _, _, _ in finished)
    assert ranks == list(range(len(ranks))), log
    assert {(int(size), int(after)) for _, size, after, _ in finished} == {(len(ranks), steps)}, log
    if not repeated:
        assert {int(weight) for _, _, _, weight in finished} == {
            sum(size for _, size, _ in done)
        }, log


def steps_in(log: str) -> list[tuple[int, int, int]]:
    """Return number, size of the world and weight of each step that rank 0 has printed."""
    return [(int(step), int(size), int(weight)) for step, size, weight in STEP.findall(log)]


def environment(folder: Path) -> list[dict[str, str]]:
    """Return the variables of a container whose training ends when the folder has `finish`."""
    return [
        {"name": "STEP_SECONDS", "value": "0.1"},
        {"name": "FINISH", "value": str(folder / FINISH)},
    ]


class HorovodUser(KubectlUser):
    """Observes the training of a job whose containers have logs in its folder."""

    def __init__(self, sandbox: Sandbox, job: str, folder: Path) -> None:
        super().__init__(sandbox, job, folder)
        self._sandbox = sandbox

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def trains_with(self, size: int) -> int:
        """Wait until a world of this size has trained a new step, and return the step."""
        last = max((step for step, _, _ in steps_in(self.log())), default=0)

        def new_step() -> int:
            found = steps_in(self.log())
            return max((step for step, of, _ in found if of == size and step > last), default=0)

        what = f"a step after {last} of a world of {size}: {self.log()[-3000:]}"
        return int(self.until(what, new_step, seconds=SECONDS))

    def process_of(self, pod: str) -> psutil.Process:
        """Return the training process of a pod."""
        processes = self._sandbox.processes(pod)
        (found,) = [each for each in processes if str(SCRIPT) in each.cmdline()[1:2]]
        return found
