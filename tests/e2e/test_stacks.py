"""Finds the rank for which all others wait, by the stacks of real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS

from tests.support.e2e import pytorch_job
from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.framework_python import LIBRARY
from tests.support.thorough import some_of
from tests.support.wait import until

HANGING = """
import os, sys, time, elasticjob
rank, group = int(os.environ["ELASTICJOB_RANK"]), sys.argv[1:]
if group:
    import torch, torch.distributed
    torch.distributed.init_process_group("gloo")
def train(step):
    time.sleep(3600 if (rank, step) == (2, 4) else 0.1)
for step in range(1, 5):
    train(step)
    torch.distributed.all_reduce(torch.ones(1)) if group else elasticjob.barrier("step")
    elasticjob.report_step(step)
"""


@pytest.mark.guarantee("training-hangs")
@pytest.mark.parametrize(
    ("python", "arguments", "collective"),
    some_of(
        [
            pytest.param(lambda: "python", [], "elasticjob barrier", id="library"),
            pytest.param(
                pytorch_job.python,
                ["torch"],
                "torch.distributed ",
                id="torch",
                marks=pytest.mark.embedded_only("PyTorch is on this machine"),
            ),
        ],
        first=1,
    ),
)
async def test_a_stall_names_the_rank_that_sleeps_and_so_does_the_command(
    sandbox: Sandbox,
    folder: Path,
    python: Callable[[], str],
    arguments: list[str],
    collective: str,
) -> None:
    made = job(
        "digits",
        folder,
        replicas=3,
        command=[python(), "-c", HANGING, *arguments],
        env=[{"name": "PYTHONPATH", "value": LIBRARY}],
    )
    made["spec"] |= {
        "framework": "pytorch",
        "health": {"stallSeconds": 1, "stallFactor": 2, "lostSeconds": 3600},
    }
    sandbox.apply(made)

    async def stall() -> str:
        found = await sandbox.kube.get(ELASTIC_JOBS, sandbox.namespace, "digits")
        conditions = found.get("status", {}).get("conditions", [])
        return next(
            (each["message"] for each in conditions if each["type"] == "TrainingStalled"), ""
        )

    message = await until(
        "a stall that is explained", stall, lambda text: "rank" in text, seconds=180
    )
    assert f"ranks 0-1 wait in {collective}" in message
    assert "rank 2 does not: it is in train (<string>:8)" in message
    shown = CommandLineUser(sandbox).out("stacks", "digits", "--rank=2", "--rank=0", "-o", "json")
    waiting, sleeping = json.loads(shown)["groups"]
    assert (waiting["ranks"], sleeping["ranks"]) == ([0], [2]), shown
    assert waiting["waitsIn"].startswith(collective)
    assert any(frame.startswith("train (") for frame in sleeping["frames"])
