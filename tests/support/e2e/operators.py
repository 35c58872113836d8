"""Runs the operator of a test: a local process, or the one that is deployed in the cluster."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tests.support.e2e import images
from tests.support.e2e.target_cluster import OPERATOR_LABEL, OPERATOR_NAMESPACE, TargetCluster
from tests.support.warm_process import WarmProcess, start_warm


class Operator(Protocol):
    """The actions of tests on an operator."""

    def kill(self) -> None:
        """Kill it with kill -9."""

    def stop(self) -> None:
        """Stop it."""

    def start(self) -> None:
        """Start it again."""


@dataclass
class LocalOperator:
    """An operator of one namespace, as a local process."""

    cluster: TargetCluster
    namespace: str
    arguments: tuple[str, ...] = ()
    process: WarmProcess | None = None
    log: Path = field(default_factory=lambda: Path(tempfile.mkstemp(suffix=".log")[1]))

    def start(self) -> None:
        """Start it; return at once."""
        with self.log.open("ab") as log:
            self.process = start_warm(
                *("elasticjob-operator", "--namespace", self.namespace),
                *("--master-image", images.MASTER, *self.arguments),
                output=log,
                env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            )

    def kill(self) -> None:
        """Kill it with kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.join()
            self.process = None


@dataclass
class DeployedOperator:
    """The operator that is deployed in the cluster; its Deployment restarts killed replicas."""

    cluster: TargetCluster
    stopped: bool = False

    def start(self) -> None:
        """Wait until all replicas are available."""
        if self.stopped:
            self._kubectl("scale", "deployment", "-l", OPERATOR_LABEL, "--replicas=2")
            self.stopped = False
        self._kubectl("rollout", "status", "deployment", "-l", OPERATOR_LABEL, "--timeout=50s")

    def kill(self) -> None:
        """Kill all replicas at once."""
        self._kubectl("delete", "pods", "-l", OPERATOR_LABEL, "--grace-period=0", "--force")

    def stop(self) -> None:
        """Scale it to no replica, and wait until none is left."""
        self.stopped = True
        self._kubectl("scale", "deployment", "-l", OPERATOR_LABEL, "--replicas=0")
        self._kubectl("wait", "--for=delete", "pod", "-l", OPERATOR_LABEL, "--timeout=50s")

    def log(self, since: datetime) -> str:
        """Return the log of all replicas."""
        return self._kubectl(
            "logs", "-l", OPERATOR_LABEL, f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}", "--tail=-1"
        )

    def _kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", OPERATOR_NAMESPACE, *arguments)


@contextmanager
def run_operator(cluster: TargetCluster, namespace: str, *arguments: str) -> Iterator[Operator]:
    """Run an operator for a namespace; print its log at the end."""
    if cluster.deployed:
        deployed = DeployedOperator(cluster)
        began = datetime.now(UTC)
        try:
            yield deployed
        finally:
            print(f"--- log of the deployed operator ---\n{deployed.log(began)}")
        return
    own = LocalOperator(cluster, namespace, arguments)
    own.start()
    try:
        yield own
    finally:
        own.stop()
        print(f"--- operator's log ---\n{own.log.read_text(errors='replace')}")
        own.log.unlink()
