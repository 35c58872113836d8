"""Runs a cluster for the tests of deploy/, with kubectl, Helm and the operator's account."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml
from elasticjob_api.meta import Json
from elasticjob_localcluster.cluster import Cluster

from tools.programs import find_helm

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEM = "elasticjob-system"
_OF_THE_CLUSTER_ITSELF = {
    "events",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
    "endpoints",
}
"""Kinds that change by themselves."""


@dataclass(frozen=True)
class Tools:
    """kubectl and Helm, set to one cluster."""

    cluster: Cluster

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl; return its output."""
        return self._run(self.cluster.bin / "kubectl", *arguments, given=given)

    def helm(self, *arguments: str) -> str:
        """Run Helm; return its output."""
        return self._run(find_helm(os.environ), *arguments)

    def _run(
        self, *command: str | Path, given: str | None = None, codes: tuple[int, ...] = (0,)
    ) -> str:
        environ = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        done = subprocess.run(
            command,
            input=given,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in codes, (
            f"{[str(each) for each in command]}: {done.stdout}{done.stderr}"
        )
        return done.stdout

    def difference(self, *arguments: str) -> str:
        """Return the changes that a server-side apply would make."""
        return self._run(
            self.cluster.bin / "kubectl", "diff", "--server-side", *arguments, codes=(0, 1)
        )

    def objects(self) -> set[str]:
        """Return every object of the cluster, of every kind, as namespace, kind and name."""
        kinds = self.kubectl("api-resources", "--verbs=list,delete", "--output=name").split()
        listed = ",".join(kind for kind in kinds if kind not in _OF_THE_CLUSTER_ITSELF)
        lines = self.kubectl("get", listed, "--all-namespaces", "--ignore-not-found", "-o", "json")
        return {_called(each) for each in json.loads(lines)["items"]}


def _called(item: Json) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{item['apiVersion']}/{item['kind']}/{metadata['name']}"


def manifests(mode: str) -> list[Json]:
    """Return the installed objects except for the definitions."""
    return list(yaml.safe_load_all((DEPLOY / mode / "operator.yaml").read_text()))
