"""Runs the real Kueue: its definitions, its manager as a process, and a queue with quota."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError, NotFound, TryLater
from elasticjob_kube.resources import (
    CRDS,
    KUEUE_CLUSTER_QUEUES,
    KUEUE_FLAVORS,
    KUEUE_LOCAL_QUEUES,
    KUEUE_WORKLOADS,
    SECRETS,
    Resource,
)
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.self_signed import self_signed
from tests.support.wait import until
from tools.programs import find_kueue, kueue_definitions

_GROUP = KUEUE_FLAVORS.group
_VERSION = KUEUE_FLAVORS.version
VALIDATORS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
FRAMEWORK = f"ElasticJob.{names.VERSION}.{names.GROUP}"
QUEUE = "team"


async def install_definitions(kubeconfig: Path) -> None:
    """Install Kueue's definitions with only the version that these tests use.

    Converting other versions requires Kueue's webhook.
    """
    bodies = [
        yaml.safe_load(path.read_text())
        for path in sorted(kueue_definitions(os.environ).glob("*.yaml"))
    ]
    async with connect(user_agent="elasticjob-tests", kubeconfig=kubeconfig) as kube:
        for body in bodies:
            versions = body["spec"]["versions"]
            kept = [each for each in versions if each["name"] == _VERSION] or versions[-1:]
            body["spec"]["versions"] = [{**each, "storage": True, "served": True} for each in kept]
            # The manager does not start before it has put its certificate there; with one version
            # nothing is converted.
            client = {
                "clientConfig": {"url": "https://localhost/convert"},
                "conversionReviewVersions": ["v1"],
            }
            body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": client}
            await kube.apply(
                CRDS,
                None,
                body["metadata"]["name"],
                body,
                field_manager="tests",
            )
        for resource in (KUEUE_FLAVORS, KUEUE_WORKLOADS, KUEUE_CLUSTER_QUEUES, KUEUE_LOCAL_QUEUES):
            await until(
                f"the API server serves {resource.plural}", partial(is_served, kube, resource)
            )


async def is_served(kube: Kube, resource: Resource) -> bool:
    """Return whether the API server serves objects of this kind."""
    try:
        await kube.list(resource)
    except KubeError:
        return False
    return True


@asynccontextmanager
async def manager(
    kube: Kube, kubeconfig: Path, namespace: str, directory: Path, **gates: bool
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Kueue's manager with these feature gates; it validates the Workloads of one namespace."""
    program = await asyncio.to_thread(find_kueue, os.environ)
    directory.mkdir(exist_ok=True)
    pair = self_signed("localhost")
    port = free_port()
    (directory / "tls.crt").write_bytes(pair.certificate_pem)
    (directory / "tls.key").write_bytes(pair.key_pem)
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": namespace,
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(directory)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True},
        "integrations": {"frameworks": ["batch/job"], "externalFrameworks": [FRAMEWORK]},
        "featureGates": {"VisibilityOnDemand": False, **gates},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    await kube.create(SECRETS, namespace, {"metadata": {"name": "kueue-webhook-server-cert"}})
    log = directory / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program),
            f"--config={directory / 'config.yaml'}",
            f"--kubeconfig={kubeconfig}",
            "--zap-log-level=2",
            stdout=output,
            stderr=output,
        )
    try:
        await until(
            "the manager's webhook", lambda: _listens(port), explain=lambda: log.read_text()[-3000:]
        )
        await kube.create(VALIDATORS, None, _validator(namespace, port, pair.certificate_pem))
        yield process
    finally:
        with suppress(NotFound):
            await kube.delete(VALIDATORS, None, namespace)
        if process.returncode is None:
            process.terminate()
        await process.wait()
        print(log.read_text()[-20_000:])


def _validator(namespace: str, port: int, authority: bytes) -> Json:
    rule = {"apiGroups": [_GROUP], "apiVersions": [_VERSION], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": "vworkload.kb.io",
        "clientConfig": {
            "url": f"https://localhost:{port}/validate-kueue-x-k8s-io-{_VERSION}-workload",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [{**rule, "resources": ["workloads", "workloads/status"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": namespace}, "webhooks": [webhook]}


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def queue(
    kube: Kube,
    namespace: str,
    cpu: str,
    *,
    labels: Mapping[str, str] | None = None,
    preempts: bool = True,
) -> AsyncIterator[str]:
    """Create a queue of the namespace with this much CPU, on nodes with these labels.

    Yield the ClusterQueue's name.
    """
    await kube.create(
        KUEUE_FLAVORS, None, _made(KUEUE_FLAVORS, namespace, nodeLabels=dict(labels or {}))
    )
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "64Gi"}]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": namespace, "resources": quotas}],
    }
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": "LowerPriority" if preempts else "Never"},
    }
    await kube.create(KUEUE_CLUSTER_QUEUES, None, _made(KUEUE_CLUSTER_QUEUES, namespace, **spec))
    await kube.create(
        KUEUE_LOCAL_QUEUES, namespace, _made(KUEUE_LOCAL_QUEUES, QUEUE, clusterQueue=namespace)
    )
    try:
        yield namespace
    finally:
        for resource in (KUEUE_CLUSTER_QUEUES, KUEUE_FLAVORS):
            await retry(partial(_delete, kube, resource, namespace), TryLater, pauses=(1.0,) * 10)


async def _delete(kube: Kube, resource: Resource, name: str) -> None:
    await kube.patch(resource, None, name, {"metadata": {"finalizers": None}})
    await kube.delete(resource, None, name)


def _made(resource: Resource, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
