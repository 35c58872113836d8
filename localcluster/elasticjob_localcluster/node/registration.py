"""Registers the node with its capacity, and renews its Lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import time
from collections.abc import Mapping, Sequence

import psutil
from elasticjob_api.meta import Json
from elasticjob_api.times import format_micro_time, format_time
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound
from elasticjob_kube.resources import LEASES, NODES
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.streaming import FEATURE

log = logging.getLogger(__name__)
LABEL = "elasticjob.dev/process-node"
_LEASE_NAMESPACE = "kube-node-lease"
_HEARTBEAT = 10.0
_LEASE_SECONDS = 40
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def machine_capacity() -> dict[str, str]:
    """Return the resources of this machine, as quantities."""
    disk = psutil.disk_usage("/").total
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{psutil.virtual_memory().total // 1024}Ki",
        "ephemeral-storage": f"{disk // 1024}Ki",
        "pods": "2000",
    }


def node_object(
    name: str, allocatable: Mapping[str, str], port: int, taints: Sequence[Json] = ()
) -> Json:
    """Return the Node object; `port` is that of the node's HTTPS server."""
    machine = platform.machine()
    architecture = _ARCHITECTURES.get(machine, machine)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture,
                LABEL: "true",
            },
        },
        "spec": {"taints": list(taints)},
        "status": {
            "capacity": dict(allocatable),
            "allocatable": dict(allocatable),
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": [FEATURE],
            "nodeInfo": {
                "architecture": architecture,
                "bootID": "",
                "containerRuntimeVersion": "process://1",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.2",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": platform.platform(terse=True),
                "systemUUID": "",
            },
            "conditions": [
                _condition("Ready", True, "ProcessNodeReady", "runs containers as local processes")
            ]
            + [
                _condition(kind, False, "NotWatched", "the process node does not look at this")
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
            ],
        },
    }


def _condition(kind: str, holds: bool, reason: str, message: str) -> Json:
    now = format_time(time.time())
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


async def keep_registered(kube: Kube, node: Json, allocatable: Mapping[str, str]) -> None:
    """Register, then renew the Lease until cancelled.

    Register again if the Node object was deleted, or if the controller manager set it to not ready.
    """
    name = node["metadata"]["name"]
    uid = ""
    while True:
        try:
            if not uid:
                uid = await _register(kube, node)
                log.info(
                    "registered as node %s: %s",
                    name,
                    ", ".join(f"{k} {v}" for k, v in allocatable.items()),
                )
            await _renew(kube, name, uid)
            if not await _is_ready(kube, name):
                uid = ""
        except NotFound:
            uid = ""
        except KubeError as error:
            log.warning("heartbeat: %s", error)
            await asyncio.sleep(1)
            continue
        await asyncio.sleep(_HEARTBEAT if uid else 0.5)


async def _register(kube: Kube, node: Json) -> str:
    name = node["metadata"]["name"]
    with contextlib.suppress(AlreadyExists):
        await kube.create(NODES, None, node)
    labels = {"metadata": {"labels": node["metadata"]["labels"]}}
    await kube.patch(NODES, None, name, labels)
    stored = await kube.patch(NODES, None, name, {"status": node["status"]}, subresource="status")
    uid: str = stored["metadata"]["uid"]
    return uid


async def _is_ready(kube: Kube, name: str) -> bool:
    """Return whether the Node's condition Ready is True."""
    stored = await kube.get(NODES, None, name)
    return any(
        (condition["type"], condition["status"]) == ("Ready", "True")
        for condition in stored["status"]["conditions"]
    )


async def _renew(kube: Kube, name: str, uid: str) -> None:
    now = format_micro_time(time.time())
    spec = {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
    try:
        await kube.patch(LEASES, _LEASE_NAMESPACE, name, {"spec": spec})
    except NotFound:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [owner]},
        }
        await kube.create(LEASES, _LEASE_NAMESPACE, body | {"spec": spec})


async def mark_not_ready(kube: Kube, name: str) -> None:
    """Set the node's condition Ready to False, before its Lease expires."""
    stopped = _condition("Ready", False, "ProcessNodeStopped", "the process node was stopped")
    path = NODES.path(None, name, "status")
    content_type = "application/strategic-merge-patch+json"
    body = {"status": {"conditions": [stopped]}}
    await kube.request("PATCH", path, body=body, content_type=content_type, seconds=3)
