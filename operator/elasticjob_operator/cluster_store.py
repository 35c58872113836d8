"""What belongs to the cluster and not to a job, as last observed: nodes, and Kueue's objects."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.pooled_jobs import KUEUE_QUEUE

from elasticjob_operator.core.model.nodes import Node, NodeCondition, leaving_reason
from elasticjob_operator.core.model.workload import (
    Flavor,
    FlavorSpec,
    Quota,
    Workload,
    is_workload_of,
)

T = TypeVar("T")


@dataclass(frozen=True)
class NodeChange:
    """Which parts of a node have changed."""

    leaving: bool
    labels: bool
    conditions: bool
    resources: bool


@dataclass
class NodeStore:
    """Nodes by name: why they are leaving, their labels, conditions and resources for pods."""

    leaving: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    conditions: dict[str, tuple[NodeCondition, ...]] = field(default_factory=dict)
    allocatable: dict[str, dict[str, int | str]] = field(default_factory=dict)

    def update(self, name: str, node: Node | None) -> NodeChange:
        """Cache a node that was added or changed, or forget one that was deleted (None)."""
        if node is None:
            return NodeChange(
                leaving=self.leaving.pop(name, None) is not None,
                labels=self.labels.pop(name, None) is not None,
                conditions=self.conditions.pop(name, None) is not None,
                resources=self.allocatable.pop(name, None) is not None,
            )
        return NodeChange(
            leaving=_set(self.leaving, name, leaving_reason(node)),
            labels=_set(self.labels, name, node.metadata.labels),
            conditions=_set(self.conditions, name, node.status.conditions),
            resources=_set(self.allocatable, name, node.status.allocatable),
        )


def _set(known: dict[str, T], name: str, value: T | None) -> bool:
    """Keep a value, or with None no value, and return whether it is another one."""
    before = known.pop(name, None)
    if value is not None:
        known[name] = value
    return before != value


@dataclass
class QuotaStore:
    """Workloads by the job that they name as their controller, and ResourceFlavors by name."""

    _workloads: dict[str, dict[str, Workload]] = field(default_factory=lambda: defaultdict(dict))
    _flavors: dict[str, FlavorSpec] = field(default_factory=dict)

    def update_workload(
        self, before: Workload | None, after: Workload | None
    ) -> list[tuple[str, str]]:
        """Cache a Workload that was added, changed or deleted (`after` None).

        Return the namespaces and names of the jobs that control it, or did before.
        """
        if before is not None:
            for uid in _controllers(before):
                self._workloads[uid].pop(before.metadata.uid, None)
                if not self._workloads[uid]:
                    del self._workloads[uid]
        if after is not None:
            for uid in _controllers(after):
                self._workloads[uid][after.metadata.uid] = after
        return [
            (each.metadata.namespace, owner.name)
            for each in (before, after)
            if each is not None
            for owner in each.metadata.owner_references
            if owner.controller
        ]

    def update_flavor(self, before: Flavor | None, after: Flavor | None) -> None:
        """Cache a ResourceFlavor that was added, changed or deleted (`after` None)."""
        if before is not None:
            self._flavors.pop(before.metadata.name, None)
        if after is not None:
            self._flavors[after.metadata.name] = after.spec

    def of(self, job: ElasticJob) -> Quota | None:
        """Return the quota of a job; None if it has neither a queue nor a Workload."""
        found = self._workloads.get(job.metadata.uid, {}).values()
        workloads = [each for each in found if is_workload_of(each, job)]
        workloads.sort(key=lambda each: each.number)
        queue = job.metadata.labels.get(KUEUE_QUEUE, "")
        if not (queue or workloads):
            return None
        return Quota(queue, tuple(workloads), self._flavors)


def _controllers(workload: Workload) -> list[str]:
    return [owner.uid for owner in workload.metadata.owner_references if owner.controller]
