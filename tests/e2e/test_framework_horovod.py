"""Runs a job of real Horovod processes without a launcher, through everything that may happen while
it trains.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.horovod_jobs import SCRIPT, check_account, horovod_python, steps_in

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the containers use a Python of this machine"),
]

NAME = "horovod"
SECONDS = 150.0
"""The limit of one wait: half a minute of it may be Gloo's timeout."""


def horovod_job(folder: Path) -> dict[str, Any]:
    log = f'exec "$0" "$1" >> {folder}/$ELASTICJOB_POD_NAME.log 2>&1'
    command = ["sh", "-c", log, horovod_python(), str(SCRIPT)]
    env = [
        {"name": "STEP_SECONDS", "value": "0.1"},
        {"name": "FINISH", "value": str(folder / "finish")},
    ]
    made = job(NAME, folder, replicas=2, command=command, env=env)
    made["spec"]["framework"] = "horovod"
    worker = made["spec"]["replicaSpecs"]["worker"]
    worker["drainSeconds"] = 60
    return made


class HorovodUser(KubectlUser):
    """Observes the training."""

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def trains_with(self, size: int) -> int:
        """Wait until a world of this size has trained a new step, and return the step."""
        last = max((step for step, _, _ in steps_in(self.log())), default=0)

        def new_step() -> int:
            return max(
                (step for step, of, _ in steps_in(self.log()) if of == size and step > last),
                default=0,
            )

        return int(
            self.until(
                f"a step after {last} of a world of {size}: {self.log()[-3000:]}",
                new_step,
                seconds=SECONDS,
            )
        )


def test_a_horovod_job_counts_each_batch_once_despite_resizes_and_kills(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(horovod_job(folder))
    user = HorovodUser(sandbox, NAME, folder)
    user.trains_with(2)

    user.create("ScaleOut", "more", count=1)
    user.trains_with(3)

    master = f"{names.LABEL_JOB_NAME}={NAME},{names.LABEL_ROLE}=master"
    before = user.kubectl("get", "pods", "-l", master, "-o", "name")
    user.kubectl("delete", "pods", "-l", master, "--grace-period=0", "--force")
    user.until(
        "another master",
        lambda: user.kubectl("get", "pods", "-l", master, "-o", "name") not in ("", before),
    )
    user.trains_with(3)
    assert len(re.findall(r"^world: rank 0 of 3", user.log(), re.MULTILINE)) == 1, (
        "the master's death was noticed"
    )

    victim = max(user.pods())
    [process] = [each for each in sandbox.processes(victim) if str(SCRIPT) in each.cmdline()[1:2]]
    process.send_signal(signal.SIGKILL)
    user.trains_with(2)
    user.trains_with(3)
    assert victim not in user.pods()

    user.create("ScaleIn", "fewer", podNames=[min(user.pods())])
    user.trains_with(2)

    (folder / "finish").touch()
    user.wait(f"ej/{NAME}", ".status.phase", "Succeeded")
    check_account(user.log(), sizes={2, 3}, repeated=1)
