"""Plays the kubelet and the agents on a control plane without a node: pods start, drain, end and go as real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from elasticjob_api import names
from elasticjob_kube.errors import Conflict, NotFound, TryLater
from elasticjob_kube.resources import PODS, SCALE_PLANS
from elasticjob_kube.session import Kube

Json = dict[str, Any]


@asynccontextmanager
async def kubelet(kube: Kube, namespace: str, *, agents: bool = True) -> AsyncIterator[None]:
    """Run pods of one namespace while the block lasts; without agents, nobody confirms that it has drained."""
    task = asyncio.create_task(_run(kube, namespace, agents))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def end(kube: Kube, namespace: str, name: str, code: int, reason: str = "Error", message: str = "") -> None:
    """Let the first container of a pod end."""
    pod = await kube.get(PODS, namespace, name)
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [],
        "containerStatuses": [_container(pod, state)],
    }
    await kube.patch(PODS, namespace, name, {"status": status}, subresource="status")


async def _run(kube: Kube, namespace: str, agents: bool) -> None:
    address = 0
    while True:
        try:
            plans = (await kube.list(SCALE_PLANS, namespace))["items"]
        except TryLater:  # right after its definition a kind may not be served yet
            await asyncio.sleep(0.1)
            continue
        draining = {
            name
            for plan in plans
            if agents and plan.get("status", {}).get("phase") == "Draining"
            for name in plan["status"].get("drainingPods", ())
        }
        for pod in (await kube.list(PODS, namespace, label_selector=names.LABEL_JOB_UID))["items"]:
            name, phase = pod["metadata"]["name"], pod["status"]["phase"]
            address += 1
            try:
                if phase == "Pending":
                    await _start(kube, pod, f"10.9.{address // 250 % 250}.{address % 250 + 1}")
                elif phase == "Running" and name in draining:
                    await end(kube, namespace, name, names.EXIT_DRAINED)
                elif phase == "Running" and _reported(pod) != _asked(pod):
                    await _start(kube, pod, pod["status"]["podIP"])
            except (NotFound, Conflict):
                continue  # it has gone or changed meanwhile
        await asyncio.sleep(0.02)


async def _start(kube: Kube, pod: Json, address: str) -> None:
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [_container(pod, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})],
    }
    metadata = pod["metadata"]
    # Only as it was listed: a test may have ended it since.
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
