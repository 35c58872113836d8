"""Says of a job that has not ended how its pods are, and what they wrote last.

The output of a run in CI is often all that is left of it.
"""

from __future__ import annotations

from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube

LOG_LINES = 40
"""The most lines of a container."""
LINES = 200
"""The most lines of a job."""
Logs = dict[str, dict[str, list[str]]]
"""The last lines by pod and container."""


async def read_last_lines(kube: Kube, namespace: str, pods: Json) -> Logs:
    """Return the last lines of each container, or why they cannot be read.

    `pods`: the status of each pod, by name.
    """
    logs: Logs = {}
    for pod, status in pods.items():
        logs[pod] = {}
        for container in _containers(status):
            path = PODS.path(namespace, pod, "log")
            params = {"container": container["name"], "tailLines": str(LOG_LINES)}
            try:
                text = (await kube.request("GET", path, params=params)).decode(errors="replace")
            except KubeError as error:
                text = f"cannot be read: {error}"
            logs[pod][container["name"]] = text.splitlines()
    return logs


def describe(pods: Json, logs: Logs) -> list[str]:
    """Return a line for each pod and its containers' last lines: `LINES` at most."""
    shown = LOG_LINES
    if number := sum(map(len, logs.values())):
        shown = max(0, min(LOG_LINES, (LINES - len(pods)) // number))
    lines = []
    for pod, status in pods.items():
        lines.append(f"{pod}: {_state(status)}")
        for container, written in logs.get(pod, {}).items():
            last = written[max(0, len(written) - shown) :]
            lines += [f"  {container}: {line}" for line in last]
    return lines[:LINES]


def _state(status: Json | None) -> str:
    """Return phase and readiness of a pod, and of each container that is not ready the state."""
    status = status or {}
    parts = [status.get("phase") or "no phase"]
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            parts.append(f"Ready={condition['status']} {condition.get('reason', '')}".rstrip())
    parts += [
        f"{container['name']} is {container.get('state')}"
        for container in _containers(status)
        if not container.get("ready")
    ]
    return ", ".join(parts)


def _containers(status: Json | None) -> list[Json]:
    status = status or {}
    found: list[Json] = []
    for key in ("initContainerStatuses", "containerStatuses"):
        found += status.get(key) or ()
    return found
