"""Acts as a user of kubectl: queries, requests and waits for the tests of jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e.sandbox import Sandbox
from tests.support.wait import wait_until

SECONDS = 60.0


class KubectlUser:
    """A user of kubectl who works with one job, and the folder of the job's training."""

    def __init__(self, sandbox: Sandbox, job: str, folder: Path = Path("/nonexistent")) -> None:
        self.kubectl = sandbox.kubectl
        self._reader = sandbox.cluster.reader
        self._namespace = sandbox.namespace
        self.apply = sandbox.apply
        self.job = job
        self.folder = folder

    def get(self, what: str) -> Json:
        """Return an object."""
        return self._reader.get(self._namespace, what)

    def items(self, kind: str) -> list[Json]:
        """Return the job's plans or requests."""
        found = self._reader.items(self._namespace, kind)
        return [item for item in found if item["spec"]["jobName"] == self.job]

    def status(self, what: str = "") -> Json:
        """Return the status of an object, or of the job."""
        status: Json = self.get(what or f"ej/{self.job}").get("status", {})
        return status

    def wait(self, what: str, path: str, value: str) -> None:
        """`kubectl wait` until a field has a value; fail with the object and the job's state."""
        arguments = (
            "wait",
            f"--for=jsonpath={{{path}}}={value}",
            what,
            f"--timeout={SECONDS:.0f}s",
        )
        answer = self.kubectl(*arguments, check=False)
        if "condition met" not in answer:
            found = self.kubectl("get", what, "-o", "yaml", check=False)
            pytest.fail(f"{what}: {path} never became {value}\n{found}{self.overview()}")

    def until(self, what: str, look: Callable[[], Any], *, seconds: float = SECONDS) -> Any:
        """Wait for a condition that kubectl cannot express."""
        return wait_until(what, look, seconds=seconds, explain=self.overview)

    def overview(self) -> str:
        """Return the job, its pods and its plans as text."""
        mine = f"{names.LABEL_JOB_NAME}={self.job}"
        pods = self.kubectl("get", "pods", "-l", mine, "-o", "wide", check=False)
        return (
            self.kubectl("get", f"ej/{self.job}", "-o", "yaml", check=False)
            + pods
            + self.kubectl("get", "sp,ej")
        )

    def pods(self) -> dict[str, str]:
        """Return name and UID of the job's workers that have not failed and are not leaving."""
        chosen = f"{names.LABEL_JOB_NAME}={self.job},{names.LABEL_ROLE}={names.ROLE_WORKER}"
        items = self._reader.items(self._namespace, "pod", labels=chosen)
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in items
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"
        }

    def request(self, kind: str, name: str, **spec: Any) -> None:
        """Apply a request or plan for the job."""
        body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}}
        self.apply({**body, "spec": {"jobName": self.job, **spec}})

    def create(self, kind: str, name: str, **spec: Any) -> Json:
        """Apply a request or plan for the job, wait for its end, and return its status."""
        self.request(kind, name, **spec)
        what = f"{kind.lower()}/{name}"
        end = {"ScalePlan": "Succeeded"}.get(kind, "ScaleSucceeded")
        self.wait(what, ".status.phase", end)
        return self.status(what)

    def begin(self, size: int = 2) -> dict[str, str]:
        """Scale the job to this number of workers, if it has another size.

        Return name and UID of each.
        """
        self.wait(f"ej/{self.job}", ".status.phase", "Running")
        if self.get(f"ej/{self.job}")["spec"]["replicaSpecs"]["worker"]["replicas"] != size:
            self.kubectl("scale", f"ej/{self.job}", f"--replicas={size}")
        self.runs_with(size)
        return self.pods()

    def runs_with(self, size: int, *, worlds: int = 1) -> None:
        """Wait until spec, status, pods and training have this size, after this many worlds."""

        def settled() -> bool:
            trained = self.worlds()
            return self.at_rest(size) and len(trained) >= worlds and trained[-1][0] == size

        self.until(f"{self.job} at work with {size} workers, at rest", settled)

    def at_rest(self, size: int) -> bool:
        """Return whether spec, status and pods have this size and no plan is in progress."""
        job = self.get(f"ej/{self.job}")
        status = job.get("status", {})
        return (
            job["spec"]["replicaSpecs"]["worker"]["replicas"] == size
            and status.get("workers") == f"{size}/{size}"
            and status["phase"] == "Running"
            and not status.get("currentPlan")
            and len(self.pods()) == size
        )

    def worlds(self) -> list[tuple[int, int]]:
        """Return size and first step of each world that has trained."""
        path = self.folder / "worlds"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(size), int(step)) for _, size, step in (line.split() for line in lines)]

    def kill_the_master(self) -> None:
        """Delete the job's master at once, and wait for another one."""
        master = f"{names.LABEL_JOB_NAME}={self.job},{names.LABEL_ROLE}=master"
        before = self.kubectl("get", "pods", "-l", master, "-o", "name")
        self.kubectl("delete", "pods", "-l", master, "--grace-period=0", "--force")
        self.until(
            "another master",
            lambda: self.kubectl("get", "pods", "-l", master, "-o", "name") not in ("", before),
        )

    def finish(self) -> None:
        """Let the training end."""
        (self.folder / "finish").touch()
        self.wait(f"ej/{self.job}", ".status.phase", "Succeeded")
