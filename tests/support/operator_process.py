"""Starts the operator's process, and reads the objects it works on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, LEASES, PODS, Resource
from elasticjob_kube.session import Kube

from tests.support.wait import SECONDS, until
from tests.support.warm_process import WarmProcess, start_warm

OPERATOR = "elasticjob-operator"


@asynccontextmanager
async def operator(
    kubeconfig: Path, namespace: str | None, log: Path, *more: str, pod_uid: str = ""
) -> AsyncIterator[WarmProcess]:
    """Run the operator's process for one namespace, or for all (None)."""
    process = await start_operator(kubeconfig, namespace, log, *more, pod_uid=pod_uid)
    try:
        yield process
    finally:
        await end_operator(process)
        print(log.read_text())


async def start_operator(
    kubeconfig: Path, namespace: str | None, log: Path, *more: str, pod_uid: str = ""
) -> WarmProcess:
    """Start the operator's process, in the pod of this UID if there is one.

    Its output is appended to `log`.
    """
    with log.open("ab") as output:
        return start_warm(
            *(OPERATOR, "--kubeconfig", str(kubeconfig)),
            *(("--namespace", namespace) if namespace else ()),
            *("--master-image", "master:1", *more),
            output=output,
            env={**os.environ, "POD_UID": pod_uid},
        )


async def end_operator(process: WarmProcess) -> None:
    """Terminate the process if it has not ended, and wait for its end."""
    if process.returncode is None:
        process.terminate()
    async with asyncio.timeout(30):
        await process.wait()


def job(name: str = "job", *, replicas: int = 2, most: int = 6, **spec: Any) -> Json:
    """Return the manifest of a job with one role."""
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {
        "name": "train",
        "image": "train:1",
        "command": ["train"],
        "args": ["--fast"],
        "resources": resources,
    }
    worker = {
        "replicas": replicas,
        "minReplicas": 1,
        "maxReplicas": most,
        "template": {"spec": {"containers": [container]}},
    }
    return manifest(
        ELASTIC_JOBS,
        name,
        framework="jax",
        agent={"source": "Image"},
        replicaSpecs={"worker": worker},
        **spec,
    )


def manifest(resource: Resource, name: str, **spec: Any) -> Json:
    """Return the manifest of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def create(kube: Kube, namespace: str, resource: Resource, name: str, **spec: Any) -> Json:
    """Create an object with this spec; return it."""
    return await kube.create(resource, namespace, manifest(resource, name, **spec))


async def run_job(kube: Kube, namespace: str, body: Json) -> Json:
    """Create a job and wait until it runs; return it as created."""
    created = await kube.create(ELASTIC_JOBS, namespace, body)
    await phase(kube, namespace, ELASTIC_JOBS, body["metadata"]["name"], "Running")
    return created


async def phase(
    kube: Kube,
    namespace: str,
    resource: Resource,
    name: str,
    *wanted: str,
    seconds: float = SECONDS,
) -> Json:
    """Wait for one of these phases; return the status."""

    what = f"{resource.kind} {name} {wanted}"
    look = partial(status_of, kube, namespace, resource, name)
    return await until(what, look, lambda status: status.get("phase") in wanted, seconds=seconds)


async def status_of(kube: Kube, namespace: str, resource: Resource, name: str) -> Json:
    """Return an object's status; empty as long as it has none."""
    return dict((await kube.get(resource, namespace, name)).get("status", {}))


async def workers(kube: Kube, namespace: str, job_name: str | None = None) -> list[str]:
    """Return the names of all worker pods, or of those of one job."""
    selector = f"{names.LABEL_ROLE}=worker" + (
        f",{names.LABEL_JOB_NAME}={job_name}" if job_name else ""
    )
    pods = await kube.list(PODS, namespace, label_selector=selector)
    return sorted(pod["metadata"]["name"] for pod in pods["items"])


async def worker_indices(kube: Kube, namespace: str) -> list[int]:
    """Return the indices of all worker pods.

    A name has one more part if an operator died creating the first pod.
    """
    pods = await kube.list(PODS, namespace, label_selector=f"{names.LABEL_ROLE}=worker")
    return sorted(int(pod["metadata"]["labels"][names.LABEL_INDEX]) for pod in pods["items"])


async def exists(kube: Kube, resource: Resource, namespace: str, name: str) -> bool:
    """Return whether an object exists."""
    try:
        await kube.get(resource, namespace, name)
    except NotFound:
        return False
    return True


async def leader(kube: Kube, namespace: str, lease: str = names.OPERATOR) -> str:
    """Return the holder of a lease; empty if no operator holds it."""
    try:
        return str((await kube.get(LEASES, namespace, lease))["spec"].get("holderIdentity", ""))
    except KubeError:
        return ""


async def has_logged(log: Path, text: str) -> bool:
    """Return whether the operator has logged the text."""
    return text in log.read_text()
