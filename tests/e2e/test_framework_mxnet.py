"""A real MXNet job with parameter servers scales while it trains: the example, on the embedded cluster."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from elasticjob_api.elasticjob import Progress
from elasticjob_cli.demo.observer import JobObserver
from elasticjob_kube.session import Json

from tests.support.e2e.sandbox import EXAMPLES, Sandbox

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("MXNet is installed on this machine and not in an image"),
]

NAME = "digits-mxnet"
STEPS, BATCH, SECONDS = 3000, 60, 240.0


@pytest.fixture(scope="session")
def python() -> str:
    """A Python with MXNet; `make e2e FRAMEWORK=mxnet` installs it."""
    found = subprocess.run(["tools/mxnet_env", "--cached"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


def job(python: str, folder: Path) -> Json:
    """Return the example, shorter, with its checkpoints in a folder of the test."""
    made: Json = yaml.safe_load((EXAMPLES / "frameworks" / "mxnet" / "parameter-servers.yaml").read_text())
    for spec in made["spec"]["replicaSpecs"].values():
        pod = spec["template"]["spec"]
        pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(folder)}}]
        (container,) = pod["containers"]
        container["command"] = [python, str(EXAMPLES / "frameworks" / "mxnet" / "train.py")]
        container["env"] = [
            {"name": "STEPS", "value": str(STEPS)},
            {"name": "CHECKPOINT_DIR", "value": str(folder)},
            {"name": "DMLC_NODE_HOST", "value": "$(ELASTICJOB_POD_IP)"},
        ]
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(folder)}]
    return made


async def trains(observer: JobObserver, workers: int, *, beyond: int = 0) -> int:
    """Wait until a world with so many workers, as its server counts them, gets beyond a step; return the step."""

    def at_work() -> int | None:
        progress = observer.status.progress
        formed = progress.metrics.get("workers") == workers
        return progress.step if formed and progress.step > beyond else None

    return await observer.until(f"{workers} workers beyond step {beyond}", at_work, seconds=SECONDS)


async def test_workers_come_and_go_are_killed_and_every_sample_is_in_the_sums_once(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    sandbox.apply(job(python, folder))
    async with sandbox.observe(NAME) as observer:
        step = await trains(observer, 2)
        sandbox.kubectl("scale", "ej", NAME, "--replicas=3")
        step = await trains(observer, 3, beyond=step)
        sandbox.processes(f"{NAME}-worker-1")[-1].send_signal(signal.SIGKILL)

        def replaced() -> bool:
            status = observer.job.status.replica_statuses["worker"] if observer.job else None
            return status is not None and status.restarts + status.uncounted_restarts == 1

        await observer.until("the killed worker's restart", replaced, seconds=SECONDS)
        step = await trains(observer, 3, beyond=observer.status.progress.step)
        sandbox.kubectl("scale", "ej", NAME, "--replicas=1")
        step = await trains(observer, 1, beyond=step)
        sandbox.processes(f"{NAME}-master")[0].send_signal(signal.SIGKILL)
        await trains(observer, 1, beyond=step)

        def over() -> Progress | None:
            status = observer.job.status if observer.job else None
            if status is None or status.phase != "Succeeded" or status.progress is None:
                return None
            return status.progress if "samples" in status.progress.metrics else None

        progress = await observer.until("the job's success, and its last report", over, seconds=SECONDS)
        assert progress.step == STEPS
        assert progress.metrics["samples"] == STEPS * BATCH, "all samples of every step are in it once"
        assert progress.metrics["accuracy"] > 0.9
