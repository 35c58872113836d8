"""Scales the MXNet example with parameter servers while it trains, on the embedded cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elasticjob_api.meta import Json
from elasticjob_api.v1.job_pb2 import JOB_PHASE_TRAINING
from elasticjob_cli.dev.observer import JobObserver

from tests.support.convert import sample
from tests.support.e2e.converted import create_converted, set_environment
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.parameter_servers import SECONDS, example_job, succeeds_with, trains
from tests.support.e2e.sandbox import EXAMPLES, Sandbox
from tests.support.framework_python import LIBRARY, installed_by

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("MXNet is installed on this machine and not in an image"),
]

NAME = "digits-mxnet"
STEPS = 3000
BATCH = 60
SCRIPT = EXAMPLES / "frameworks" / "mxnet" / "train.py"
ALONE = """
import runpy, sys
import mxnet
create = mxnet.kv.create
mxnet.kv.create = lambda _: create("local")
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Trains by a script as a single process, without servers."""


@pytest.fixture(scope="session")
def python() -> str:
    """Return a Python with MXNet; `make e2e FRAMEWORK=mxnet` installs it."""
    return installed_by("mxnet_env")


def job(python: str, folder: Path) -> Json:
    return example_job(
        python,
        folder,
        manifest="mxnet/parameter-servers.yaml",
        script="mxnet/train.py",
        variables={"STEPS": str(STEPS), "DMLC_NODE_HOST": "$(ELASTICJOB_POD_IP)"},
    )


def check_parameters(python: str, folder: Path) -> None:
    """Check that a job has the parameters of a process that trains alone and undisturbed."""
    (trained,) = folder.rglob("newest.npz")
    alone = folder / "alone"
    environment = os.environ | {
        "PYTHONPATH": LIBRARY,
        "STEPS": str(STEPS),
        "CHECKPOINT_DIR": str(alone),
    }
    subprocess.run([python, "-c", ALONE, str(SCRIPT)], env=environment, check=True)
    (expected,) = alone.rglob("newest.npz")
    with np.load(trained) as found, np.load(expected) as wanted:
        for name in wanted.files:
            np.testing.assert_allclose(found[name], wanted[name], rtol=0.01, atol=0.01)


@asynccontextmanager
async def timed(observer: JobObserver, what: str, workers: int) -> AsyncIterator[None]:
    """Wait until a new world of this size trains, and print how long that takes from now."""
    begun = time.monotonic()
    before = observer.status.round
    yield

    def formed() -> bool:
        status = observer.status
        return (
            status.round > before
            and status.world_size == workers + 2
            and status.phase == JOB_PHASE_TRAINING
        )

    await observer.until(f"a world of {workers} workers", formed, seconds=SECONDS)
    print(f"MEASURED mxnet: {what}: the world is formed after {time.monotonic() - begun:.1f} s")
    await trains(observer, workers, beyond=observer.status.progress.step)
    print(f"MEASURED mxnet: {what}: next step after {time.monotonic() - begun:.1f} s")


@pytest.mark.guarantee("mxnet-samples-count-once", "one-world")
async def test_every_sample_is_counted_once_while_workers_join_leave_and_are_killed(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    sandbox.apply(job(python, folder))
    async with sandbox.observe(NAME) as observer:
        await trains(observer, 2)
        async with timed(observer, "2 to 3 workers", 3):
            sandbox.kubectl("scale", "ej", NAME, "--replicas=3")
        async with timed(observer, "kill -9 of a process", 3):
            sandbox.processes(f"{NAME}-worker-1")[-1].send_signal(signal.SIGKILL)

        def replaced() -> bool:
            status = observer.job.status.replica_statuses["worker"] if observer.job else None
            return status is not None and status.restarts + status.uncounted_restarts == 1

        await observer.until("the killed worker's restart", replaced, seconds=SECONDS)
        async with timed(observer, "3 workers to 1", 1):
            sandbox.kubectl("scale", "ej", NAME, "--replicas=1")
        step = observer.status.progress.step
        sandbox.processes(f"{NAME}-master")[0].send_signal(signal.SIGKILL)
        await trains(observer, 1, beyond=step)
        progress = await succeeds_with(observer, "samples")
        assert progress.step == STEPS
        assert progress.metrics["samples"] == STEPS * BATCH, (
            "all samples of every step are in it once"
        )
        assert progress.metrics["accuracy"] > 0.9
    check_parameters(python, folder)


def test_a_converted_job_of_dl_operator_trains_with_its_scheduler_and_server(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    (mx_job,) = sample("dl_operator/mxjob.yaml")
    for replicas in mx_job["spec"]:
        (container,) = replicas["template"]["spec"]["containers"]
        # The command of the image.
        container["command"] = [python, str(SCRIPT)]
        set_environment(
            container,
            STEPS="300",
            CHECKPOINT_DIR=str(folder),
            DMLC_NODE_HOST="$(ELASTICJOB_POD_IP)",
        )
    create_converted(sandbox, mx_job)
    user = KubectlUser(sandbox, "test02", folder)
    user.until(
        "the job's success", lambda: user.status().get("phase") == "Succeeded", seconds=SECONDS
    )

    def last_report() -> Any:
        # The worker's last report comes a moment after the success.
        progress = user.status()["progress"]
        return progress if "samples" in progress.get("metrics", {}) else None

    progress = user.until("the last report", last_report)
    assert (progress["step"], progress["metrics"]["samples"]) == (300, 300 * BATCH), progress
