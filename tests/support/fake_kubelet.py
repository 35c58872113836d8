"""Plays kubelet and agents on a control plane without nodes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Conflict, NotFound, TryLater
from elasticjob_kube.resources import NODES, PODS, SCALE_PLANS
from elasticjob_kube.session import Kube


@asynccontextmanager
async def kubelet(
    kube: Kube, namespace: str, *, agents: bool = True, node: str = "", cpu: str = ""
) -> AsyncIterator[None]:
    """Run pods of one namespace while the block lasts.

    No drain is confirmed if `agents` is false. A node is created for the block. A deleted pod on a
    node stays until the test lets it end; without a node it is deleted at once. With `cpu` the node
    has this much, and gets its pods from the cluster's own scheduler.
    """
    if node:
        taints = [] if cpu else [{"key": "elasticjob-tests/played", "effect": "NoSchedule"}]
        room = {"cpu": cpu or "64", "memory": "64Gi", "pods": "1000"}
        status = {"capacity": room, "allocatable": room, "conditions": [_node_ready()]}
        await kube.create(
            NODES, None, {"metadata": {"name": node}, "spec": {"taints": taints}, "status": status}
        )
    try:
        # so that a test fails at once when the player fails
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(kube, namespace, agents, node, binds=not cpu))]
            if node:
                tasks.append(group.create_task(_keep_ready(kube, node)))
            yield
            for task in tasks:
                task.cancel()
    finally:
        if node:
            await kube.delete(NODES, None, node)


async def end(
    kube: Kube, namespace: str, name: str, code: int, reason: str = "Error", message: str = ""
) -> None:
    """End the first container of a pod."""
    pod = await kube.get(PODS, namespace, name)
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [],
        "containerStatuses": [_container(pod, state)],
    }
    await kube.patch(PODS, namespace, name, {"status": status}, subresource="status")


async def _keep_ready(kube: Kube, node: str) -> None:
    """Send the node's heartbeats.

    After 50 s without one, the node controller sets each of its pods to not ready.
    """
    while True:
        await asyncio.sleep(5)
        with suppress(TryLater):  # the next one comes in time
            await kube.patch(
                NODES, None, node, {"status": {"conditions": [_node_ready()]}}, subresource="status"
            )


def _node_ready() -> Json:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}


async def _run(kube: Kube, namespace: str, agents: bool, node: str, *, binds: bool) -> None:
    addresses = itertools.count(1)
    while True:
        try:
            await _play(kube, namespace, agents, node, addresses, binds=binds)
        except TryLater:
            # A kind may not be served right after its definition, or a test stopped the server.
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.02)


async def _play(
    kube: Kube,
    namespace: str,
    agents: bool,
    node: str,
    addresses: Iterator[int],
    *,
    binds: bool,
) -> None:
    """Do the next step of every pod."""
    plans = (await kube.list(SCALE_PLANS, namespace))["items"] if agents else ()
    draining = {
        name
        for plan in plans
        if plan.get("status", {}).get("phase") == "Draining"
        for name in plan["status"].get("drainingPods", ())
    }
    for pod in (await kube.list(PODS, namespace, label_selector=names.LABEL_JOB_UID))["items"]:
        name = pod["metadata"]["name"]
        phase = pod["status"]["phase"]
        address = next(addresses)
        try:
            if "deletionTimestamp" in pod["metadata"]:
                await kube.delete(
                    PODS, namespace, name, uid=pod["metadata"]["uid"], grace_seconds=0
                )
            elif node and "nodeName" not in pod["spec"]:
                if not binds:
                    continue
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
                await kube.request("POST", PODS.path(namespace, name, "binding"), body=binding)
            elif phase == "Pending":
                await _start(kube, pod, f"10.9.{address // 250 % 250}.{address % 250 + 1}")
            elif phase == "Running" and name in draining:
                await end(kube, namespace, name, names.EXIT_DRAINED)
            elif phase == "Running" and _reported(pod) != _asked(pod):
                await _start(kube, pod, pod["status"]["podIP"])
        except (NotFound, Conflict):
            continue  # the pod was deleted or changed meanwhile


async def _start(kube: Kube, pod: Json, address: str) -> None:
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [_container(pod, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})],
    }
    metadata = pod["metadata"]
    # Only in the listed version: a test may have ended the pod since.
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
    await kube.patch(PODS, metadata["namespace"], metadata["name"], body, subresource="status")


def _container(pod: Json, state: Json) -> Json:
    return {
        "name": pod["spec"]["containers"][0]["name"],
        "image": "train:1",
        "imageID": "train:1",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
        "resources": _asked(pod),
    }


def _asked(pod: Json) -> Json:
    resources: Json = pod["spec"]["containers"][0].get("resources") or {}
    return resources


def _reported(pod: Json) -> Json:
    resources: Json = pod["status"]["containerStatuses"][0].get("resources") or {}
    return resources
