"""Where a pod shall run: a member that replaces another one prefers other nodes, if the plan says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_WEIGHT = 100
"""The highest one: what the user's template prefers may have it, too."""


def avoiding_node(pod: Mapping[str, Any], node: str) -> Json:
    """Return a pod's manifest that prefers every other node to this one, beside what its template prefers.

    It is no requirement: where there is no other node, the pod runs on this one.
    """
    affinity: Json = pod["spec"].get("affinity") or {}
    of_nodes: Json = affinity.get("nodeAffinity") or {}
    others = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]}
    preferred = [
        *(of_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
        {"weight": _WEIGHT, "preference": others},
    ]
    of_nodes = {**of_nodes, "preferredDuringSchedulingIgnoredDuringExecution": preferred}
    return {**pod, "spec": {**pod["spec"], "affinity": {**affinity, "nodeAffinity": of_nodes}}}
