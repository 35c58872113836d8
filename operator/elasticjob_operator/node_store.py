"""The nodes as last observed, as far as jobs depend on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from elasticjob_operator.core.model.nodes import Node, NodeCondition, leaving_reason

T = TypeVar("T")


@dataclass(frozen=True)
class NodeChange:
    """Which parts of a node have changed."""

    leaving: bool
    labels: bool
    conditions: bool


@dataclass
class NodeStore:
    """Nodes by name: why they are leaving, their labels, and their conditions."""

    leaving: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    conditions: dict[str, tuple[NodeCondition, ...]] = field(default_factory=dict)

    def update(self, name: str, node: Node | None) -> NodeChange:
        """Cache a node that was added or changed, or forget one that was deleted (None)."""
        if node is None:
            return NodeChange(
                leaving=self.leaving.pop(name, None) is not None,
                labels=self.labels.pop(name, None) is not None,
                conditions=self.conditions.pop(name, None) is not None,
            )
        return NodeChange(
            leaving=_set(self.leaving, name, leaving_reason(node)),
            labels=_set(self.labels, name, node.metadata.labels),
            conditions=_set(self.conditions, name, node.status.conditions),
        )


def _set(known: dict[str, T], name: str, value: T | None) -> bool:
    """Keep a value, or with None no value, and return whether it is another one."""
    before = known.pop(name, None)
    if value is not None:
        known[name] = value
    return before != value
