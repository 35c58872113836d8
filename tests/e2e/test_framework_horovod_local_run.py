"""Runs Horovod Elastic on this machine without a cluster: `elasticjob run` with an unchanged
script.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.horovod_jobs import SCRIPT, check_account, horovod_python
from tests.support.local_run import local_run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the processes use a Python of this machine"),
]


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
