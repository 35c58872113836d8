"""An operator and a namespace on a cluster, and the eyes of the demo: what the end-to-end tests act and look with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml
from elasticjob_api import names
from elasticjob_cli.demo.sight import Sight
from elasticjob_cli.demo.timeline import Timeline
from elasticjob_cli.dev.cluster import Cluster
from elasticjob_kube.session import Json, Kube, connect
from rich.console import Console

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Operator:
    """An operator process that tests may kill; its log is printed when the test ends."""

    cluster: Cluster
    namespace: str
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(suffix=".log")[1]))

    def start(self) -> None:
        """Start it; returns at once."""
        command = [sys.executable, "-m", "elasticjob_operator.main", "--namespace", self.namespace]
        environ = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=30)
            self.process = None


@dataclass(frozen=True)
class Stage:
    """One test's namespace."""

    cluster: Cluster
    kube: Kube
    namespace: str
    operator: Operator

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl in the namespace and return what it printed."""
        command = [self.cluster.bin / "kubectl", "--kubeconfig", self.cluster.kubeconfig, "-n", self.namespace]
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        print("$ kubectl", *arguments, "\n", done.stdout, done.stderr)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *objects: Json) -> None:
        """Apply objects."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    @asynccontextmanager
    async def sight(self, job: str) -> AsyncIterator[Sight]:
        """Watch a job while in the block; what happens is printed."""
        seen = Sight(self.kube, self.namespace, job, Timeline(Console(width=150)))
        watching = asyncio.create_task(seen.watch())
        try:
            yield seen
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def processes(self, pod: str) -> list[psutil.Process]:
        """Return the processes that the node started for a pod of this namespace, parents first."""
        found = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
            except psutil.Error:
                continue
            if (environ.get(names.ENV_POD_NAME), environ.get(names.ENV_NAMESPACE)) == (pod, self.namespace):
                found.append(process)
        return sorted(found, key=lambda process: process.create_time())


@contextmanager
def stage_operator(cluster: Cluster, namespace: str) -> Iterator[Operator]:
    """Run an operator that looks at one namespace; its log is printed at the end."""
    operator = Operator(cluster, namespace)
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()
        print(f"--- operator's log ---\n{operator.log.read_text(errors='replace')}")
        operator.log.unlink()


@asynccontextmanager
async def on_stage(cluster: Cluster) -> AsyncIterator[Stage]:
    """Make a namespace with an operator of its own; both are gone at the end."""
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    async with connect(user_agent="elasticjob-tests", kubeconfig=cluster.kubeconfig) as kube:
        with stage_operator(cluster, namespace) as operator:
            stage = Stage(cluster, kube, namespace, operator)
            stage.kubectl("create", "namespace", namespace)
            try:
                yield stage
            finally:
                stage.kubectl("delete", "ej", "--all", "--timeout=60s")
                stage.kubectl("delete", "namespace", namespace, "--wait=false")


def digits(*, epochs: int, checkpoints: Path, **spec: object) -> Json:
    """Return the job of examples/digits.yaml, shorter, with its checkpoints in a directory of the test."""
    job: Json = yaml.safe_load((EXAMPLES / "digits.yaml").read_text())
    job["spec"].update(spec)
    pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] = [
        {"name": "EPOCHS", "value": str(epochs)},
        {"name": "CHECKPOINT_DIR", "value": str(checkpoints)},
    ]
    container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(checkpoints)}]
    pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(checkpoints)}}]
    return job
