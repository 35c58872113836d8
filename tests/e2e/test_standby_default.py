"""Jobs that say nothing of standby: their pods have processes in standby where memory allows it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.meta import Json

from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import of_workers
from tests.support.wait import until

pytestmark = pytest.mark.embedded_only("the program and its packages are on this machine")


def numeric_job(name: str, script: Path, limit: str | None) -> Json:
    """Return a job of one worker whose program imports numpy, and then waits."""
    limits = {"limits": {"memory": limit}} if limit else {}
    container = {
        "name": "train",
        "image": "train:1",
        "command": [sys.executable, str(script)],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, **limits},
    }
    return of_workers(name, {"containers": [container]}, replicas=1)


@pytest.mark.guarantee("standby-takes-only-what-is-left")
@pytest.mark.thorough
async def test_a_job_has_processes_in_standby_where_its_limit_leaves_room_and_says_why_not(
    sandbox: Sandbox, folder: Path
) -> None:
    script = folder / "train.py"
    script.write_text("import time, numpy\nheld = b'1' * (100 << 20)\ntime.sleep(600)\n")
    expected = {
        "roomy": ("2Gi", "1 of 1 members have processes in standby"),
        "tight": ("256Mi", "0 of 1 members have processes in standby; worker-0: 1 of "),
        "unlimited": (None, "0 of 1 members have processes in standby; worker-0: its container"),
    }
    sandbox.apply(*(numeric_job(name, script, limit) for name, (limit, _) in expected.items()))
    user = CommandLineUser(sandbox)
    for name, (_, text) in expected.items():
        report = partial(user.run, "query", name, "report", "-o", "json")
        await until(f"{text} in the report of {name}", report, partial(says, text))


def says(text: str, done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 0 and text in json.loads(done.stdout).get("standby", "")
