"""Kueue's objects as last observed: the Workloads of jobs, and the cluster's ResourceFlavors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.model.workload import (
    KUEUE_QUEUE,
    Flavor,
    FlavorSpec,
    Quota,
    Workload,
    is_workload_of,
)


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
