"""A real TensorFlow job with parameter servers scales while it trains: the example, on the embedded cluster."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from elasticjob_cli.demo.observer import JobObserver
from elasticjob_kube.session import Json

from tests.support.e2e.sandbox import EXAMPLES, Sandbox

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("TensorFlow is installed on this machine and not in an image"),
]

NAME = "digits-tensorflow"
STEPS, SECONDS = 3000, 240.0


@pytest.fixture(scope="session")
def python() -> str:
    """A Python with TensorFlow; `make e2e FRAMEWORK=tensorflow` installs it."""
    found = subprocess.run(["tools/tensorflow_env", "--cached"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


def job(python: str, folder: Path) -> Json:
    """Return the example, shorter, with its checkpoints in a folder of the test."""
    made: Json = yaml.safe_load((EXAMPLES / "frameworks" / "tensorflow" / "parameter-servers.yaml").read_text())
    for spec in made["spec"]["replicaSpecs"].values():
        pod = spec["template"]["spec"]
        pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(folder)}}]
        (container,) = pod["containers"]
        container["command"] = [python, str(EXAMPLES / "frameworks" / "tensorflow" / "train.py")]
        container["env"] = [{"name": "STEPS", "value": str(STEPS)}, {"name": "CHECKPOINT_DIR", "value": str(folder)}]
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(folder)}]
    return made


async def trains(observer: JobObserver, workers: int, *, beyond: int = 0) -> int:
    """Wait until a world with so many workers, as TensorFlow has them, gets beyond a step; return the step."""

    def at_work() -> int | None:
        progress = observer.status.progress
        formed = progress.metrics.get("workers") == workers
        return progress.step if formed and progress.step > beyond else None

    return await observer.until(f"{workers} workers beyond step {beyond}", at_work, seconds=SECONDS)


async def test_workers_come_and_go_without_a_step_lost_and_the_parameter_server_goes_on(
    sandbox: Sandbox, folder: Path, python: str
) -> None:
    sandbox.apply(job(python, folder))
    async with sandbox.observe(NAME) as observer:
        step = await trains(observer, 2)
        (server,) = (pod for pod in observer.pods if "-ps-" in pod)
        process = sandbox.processes(server)[-1]
        sandbox.kubectl("scale", "ej", NAME, "--replicas=3")
        step = await trains(observer, 3, beyond=step)
        assert sandbox.processes(server)[-1].pid == process.pid, "a worker more restarts no parameter server"
        sandbox.kubectl("scale", "ej", NAME, "--replicas=1")
        step = await trains(observer, 1, beyond=step)
        assert sandbox.processes(server)[-1].pid == process.pid
        sandbox.processes(f"{NAME}-master")[0].send_signal(signal.SIGKILL)
        await trains(observer, 1, beyond=step)

        def over() -> bool:
            return observer.job is not None and observer.job.status.phase == "Succeeded"

        await observer.until("the job's success", over, seconds=SECONDS)
        assert observer.job is not None
        progress = observer.job.status.progress
        assert progress is not None
        assert progress.metrics["steps_done"] == progress.step == STEPS, "every step is in the variables, and once"
        assert progress.metrics["accuracy"] > 0.9
