"""Runs PyTorch's DistributedDataParallel on this machine without a cluster, by `elasticjob run`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.e2e import pytorch_job
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SCRIPT, check_end
from tests.support.e2e.trial import check_worlds, worlds
from tests.support.local_run import local_run

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
EPOCHS = 600


@pytest.mark.guarantee("local-run")
@pytest.mark.parametrize("torchrun", [False, True], ids=["ddp", "torchrun"])
def test_a_ddp_program_is_scaled_locally_while_it_trains_without_losing_a_step(
    tmp_path: Path, torchrun: bool
) -> None:
    python = pytorch_job.python()
    command = [*(pytorch_job.torchrun(python, tmp_path) if torchrun else [python]), str(SCRIPT)]
    with local_run(tmp_path) as run:
        run.environment |= pytorch_job.variables(tmp_path, epochs=EPOCHS)
        del run.environment["PYTHONPATH"]  # the run adds the library to the command's own Python
        process = run.start(
            "-n", "2", "--workers", "1:3", "--framework", "pytorch", "--name", "ddp", "--", *command
        )
        run.wait_for_line(r"step \d+/\d+ round \d+ size 2 ")
        for size in (3, 1):
            code, said = run.call("scale", "ddp", str(size), "--wait", "--timeout=60")
            assert code == 0, f"{said}\n{shlex.join(command)}\n{run.log()}"
            run.wait_for_line(rf"step \d+/\d+ round \d+ size {size} ")
        assert run.wait_for_end(process) == 0, run.log()
        log = re.sub(r"^(\[\d+\] )?(\[default\d+\]:)?", "", run.log(), flags=re.MULTILINE)
        run.wait_until_nothing_is_left()
    found = worlds(log)
    assert [world.size for world in found] == [2, 3, 1], log
    check_worlds(found, checkpoint_steps=CHECKPOINT_STEPS)
    check_end(log, EPOCHS)
