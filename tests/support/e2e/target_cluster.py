"""Describes the cluster under test: the embedded one, or that of `pytest --kubeconfig`."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.e2e.reader import Reader

CRDS = Path(__file__).parents[3] / "crds"
OPERATOR_NAMESPACE = "elasticjob-system"
OPERATOR_LABEL = "app.kubernetes.io/name=elasticjob-operator"
"""Where `make deploy` puts the operator, and the label of its Deployment and pods."""


@dataclass(frozen=True)
class TargetCluster:
    """A cluster.

    Attributes:
        kubeconfig: the configuration of a user with all rights.
        bin: a directory with kubectl.
        real: whether its nodes run containers; the embedded cluster's runs processes.
        deployed: whether an operator is deployed in it, for all namespaces; if not, tests start
        their own.
    """

    kubeconfig: Path
    bin: Path
    real: bool = False
    deployed: bool = False

    @cached_property
    def reader(self) -> Reader:
        """Return a reader of its objects."""
        return Reader(self.kubeconfig)

    def command(self, *arguments: str) -> list[str | Path]:
        """Return the command line of kubectl."""
        return [self.bin / "kubectl", "--kubeconfig", self.kubeconfig, *arguments]

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 60
    ) -> str:
        """Run kubectl and return its output; without `check` also its errors."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        print("$ kubectl", *arguments, "\n", done.stdout[:2000], done.stderr)
        if not check:
            return done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes."""
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json"))
        found: list[dict[str, Any]] = listed["items"]
        return found

    def is_here(self) -> bool:
        """Return whether this machine is the only node.

        Then files and pod addresses are the same for tests and pods.
        """
        mine = {
            each.address for all_of_one in psutil.net_if_addrs().values() for each in all_of_one
        }
        theirs = [
            address["address"]
            for node in self.nodes()
            for address in node["status"]["addresses"]
            if address["type"] == "InternalIP"
        ]
        return len(theirs) == 1 and theirs[0] in mine


def existing_cluster(kubeconfig: Path) -> TargetCluster:
    """Return an existing cluster; apply the CRDs if no operator is deployed in it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.fail("--kubeconfig needs kubectl in PATH", pytrace=False)
    target = TargetCluster(kubeconfig, Path(kubectl).parent, real=True)
    found = target.kubectl(
        "get", "deployments", "-n", OPERATOR_NAMESPACE, "-l", OPERATOR_LABEL, "-o", "name"
    )
    if not found.strip():
        target.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    return TargetCluster(kubeconfig, target.bin, real=True, deployed=bool(found.strip()))
