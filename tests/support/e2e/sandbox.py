"""Creates a test's namespace with its operator.

The end-to-end tests change it with kubectl and observe it as the demo does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_cli.dev.observer import JobObserver
from elasticjob_cli.dev.timeline import Timeline
from elasticjob_kube.resources import ELASTIC_JOBS, NAMESPACES, PODS
from elasticjob_kube.session import Kube, connect
from rich.console import Console

from tests.conftest import wait_for_defaults
from tests.support.e2e import images
from tests.support.e2e.operators import Operator, run_operator
from tests.support.e2e.target_cluster import TargetCluster
from tests.support.wait import until

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True)
class Sandbox:
    """One test's namespace."""

    cluster: TargetCluster
    kube: Kube
    namespace: str
    operator: Operator

    def command(self, *arguments: str) -> list[str | Path]:
        """Return the command line of kubectl in the namespace."""
        return self.cluster.command("-n", self.namespace, *arguments)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl in the namespace and return its output."""
        return self.cluster.kubectl(
            "-n", self.namespace, *arguments, stdin=stdin, check=check, seconds=120
        )

    def apply(self, *objects: Json) -> None:
        """Apply objects."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    @asynccontextmanager
    async def observe(self, job: str) -> AsyncIterator[JobObserver]:
        """Observe a job while in the block, and print its changes."""
        observer = JobObserver(self.kube, self.namespace, job, Timeline(Console(width=150)))
        watching = asyncio.create_task(observer.watch())
        try:
            yield observer
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
            if (environ.get(names.ENV_POD_NAME), environ.get(names.ENV_NAMESPACE)) == (
                pod,
                self.namespace,
            ):
                found.append(process)
        return sorted(found, key=lambda process: process.create_time())


@asynccontextmanager
async def new_sandbox(cluster: TargetCluster, *arguments: str) -> AsyncIterator[Sandbox]:
    """Create a namespace with an operator; remove its jobs, its pods and the operator at the end.

    The namespace itself is deleted on a cluster that outlives the run. The arguments are for an
    operator that is a local process.
    """
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    async with connect(user_agent="elasticjob-tests", kubeconfig=cluster.kubeconfig) as kube:
        with run_operator(cluster, namespace, *arguments) as operator:
            sandbox = Sandbox(cluster, kube, namespace, operator)
            await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})
            await wait_for_defaults(kube, namespace)
            try:
                yield sandbox
            finally:
                # Without kubectl, each of which takes as much CPU as twenty such requests.
                await kube.request("DELETE", ELASTIC_JOBS.path(namespace))
                left = partial(kube.list, ELASTIC_JOBS, namespace)
                await until("no job is left", left, lambda found: not found["items"])
                if cluster.real:
                    await kube.delete(NAMESPACES, None, namespace)
                else:
                    await kube.request("DELETE", PODS.path(namespace))


def digits(*, epochs: int, checkpoints: Path, **spec: object) -> Json:
    """Return the job of examples/digits.yaml, shortened, with its checkpoints in a directory of the
    test.

    It begins with both workers, however late one of them is. It has no processes in standby, whose
    imports would take CPU from all tests.
    """
    job: Json = yaml.safe_load((EXAMPLES / "digits.yaml").read_text())
    job["spec"]["agent"]["standby"] = "None"
    job["spec"].update(spec)
    job["spec"]["runPolicy"]["startPolicy"] = "AllReady"
    pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = images.DIGITS
    container["env"] = [
        {"name": "EPOCHS", "value": str(epochs)},
        {"name": "CHECKPOINT_DIR", "value": str(checkpoints)},
    ]
    container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(checkpoints)}]
    pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(checkpoints)}}]
    return job
