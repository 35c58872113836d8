"""Ports of a member's pod.

Its containers have one network stack, so each port is that of one container only.
"""

from __future__ import annotations

from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.frameworks import FRAMEWORKS

Json = dict[str, Any]


def port_error(job: ElasticJob, spec: ReplicaSpec) -> str | None:
    """Return which declared port of a pod cannot be opened, as another container or the agent listens there.

    The training container may declare the ports of its framework: it is what opens them.
    """
    pod: Json = spec.template["spec"]
    agents = {names.AGENT_READY_PORT} if spec.managed and not pod.get("hostNetwork") else set()
    frameworks = set(FRAMEWORKS[job.spec.framework].ports) if spec.managed else set()
    owners: dict[tuple[str, int], int] = {}
    for position, container in enumerate(pod["containers"]):
        for number, declared in enumerate(container.get("ports") or ()):
            port = declared.get("containerPort")
            protocol = declared.get("protocol") or "TCP"
            field = f"containers[{position}].ports[{number}].containerPort"
            if protocol == "TCP" and port in agents:
                return f"{field}: {port} is the agent's, which listens there when its member is ready; use another"
            if protocol == "TCP" and position > 0 and port in frameworks:
                return f"{field}: {port} is where the training processes of {job.spec.framework} meet; use another"
            if (owner := owners.setdefault((protocol, port), position)) != position:
                return f"{field}: {port} is a port of containers[{owner}] too, in the same pod; use another"
    return None
