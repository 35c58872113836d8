"""Adds node affinity to the pod of a replacement that avoids nodes by its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob_api.meta import Json

_WEIGHT = 100
"""The highest weight, which preferences of the user's template may have as well."""


@dataclass(frozen=True)
class AvoidedNodes:
    """Nodes that a pod avoids.

    Attributes:
        preferred: it runs there only if there is no other node.
        required: it never runs there.
    """

    preferred: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def avoiding(pod: Mapping[str, Any], nodes: AvoidedNodes) -> Json:
    """Return the manifest of a pod that avoids nodes; its template's own affinity stays."""
    affinity: Json = pod["spec"].get("affinity") or {}
    of_nodes: Json = dict(affinity.get("nodeAffinity") or {})
    if nodes.preferred:
        key = "preferredDuringSchedulingIgnoredDuringExecution"
        others = {"weight": _WEIGHT, "preference": {"matchFields": _none_of(nodes.preferred)}}
        of_nodes[key] = [*(of_nodes.get(key) or ()), others]
    if nodes.required:
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        fields = _none_of(nodes.required)
        terms = (of_nodes.get(key) or {}).get("nodeSelectorTerms")
        # One of the terms must hold, so each one excludes the nodes. An empty term holds for no
        # node.
        terms = [
            {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]}
            for term in terms or ()
            if term
        ]
        of_nodes[key] = {"nodeSelectorTerms": terms or [{"matchFields": fields}]}
    return {**pod, "spec": {**pod["spec"], "affinity": {**affinity, "nodeAffinity": of_nodes}}}


def _none_of(nodes: tuple[str, ...]) -> list[Json]:
    """Return requirements of which all must hold; the field takes one value in each."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
