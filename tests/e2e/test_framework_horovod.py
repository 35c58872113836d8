"""Runs real Horovod processes without a launcher: a job through everything that may happen while it
trains, and `elasticjob run` with an unchanged script.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.horovod_jobs import (
    SCRIPT,
    HorovodUser,
    check_account,
    environment,
    horovod_python,
)
from tests.support.local_run import local_run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the containers use a Python of this machine"),
]

NAME = "horovod"


def horovod_job(folder: Path) -> dict[str, Any]:
    log = f'exec "$0" "$1" >> {folder}/$ELASTICJOB_POD_NAME.log 2>&1'
    command = ["sh", "-c", log, horovod_python(), str(SCRIPT)]
    made = job(NAME, folder, replicas=2, command=command, env=environment(folder))
    made["spec"]["framework"] = "horovod"
    worker = made["spec"]["replicaSpecs"]["worker"]
    worker["drainSeconds"] = 60
    return made


def test_a_horovod_job_counts_each_batch_once_despite_resizes_and_kills(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(horovod_job(folder))
    user = HorovodUser(sandbox, NAME, folder)
    user.trains_with(2)

    user.create("ScaleOut", "more", count=1)
    user.trains_with(3)

    user.kill_the_master()
    user.trains_with(3)
    assert len(re.findall(r"^world: rank 0 of 3", user.log(), re.MULTILINE)) == 1, (
        "the master's death was noticed"
    )

    victim = max(user.pods())
    user.process_of(victim).send_signal(signal.SIGKILL)
    user.trains_with(2)
    user.trains_with(3)
    assert victim not in user.pods()

    user.create("ScaleIn", "fewer", podNames=[min(user.pods())])
    user.trains_with(2)

    user.finish()
    check_account(user.log(), sizes={2, 3}, repeated=1)


@pytest.mark.guarantee("local-run")
def test_an_unchanged_script_is_scaled_locally_without_losing_a_batch(
    tmp_path: Path,
) -> None:
    with local_run(tmp_path) as run:
        run.environment |= {"FINISH": str(run.end), "STEP_SECONDS": "0.1"}
        command = [horovod_python(), str(SCRIPT)]
        process = run.start(
            "-n", "2", "--workers", "1:3", "--framework", "horovod", "--name", "hvd", "--", *command
        )
        run.wait_for_line(r"step \d+ size 2 ")
        for size in (3, 2):
            code, said = run.call("scale", "hvd", str(size), "--wait", "--timeout=60")
            assert code == 0, f"{said}\n{run.log()}"
            run.wait_for_line(rf"step \d+ size {size} ", after=len(run.log()))
        run.end.touch()
        assert run.wait_for_end(process) == 0, run.log()
        log = re.sub(r"^\[\d+\] ", "", run.log(), flags=re.MULTILINE)
        run.wait_until_nothing_is_left()
    check_account(log, sizes={2, 3})
