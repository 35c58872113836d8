"""Finds the priority of a job's Workload: by Kueue's label on the job, else by its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob_api.elasticjob import ElasticJob

KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"


@dataclass(frozen=True)
class PriorityChoice:
    """A class of priorities, and the field by which the user has chosen it."""

    kind: str
    name: str
    field: str

    @property
    def group(self) -> str:
        """Its API group."""
        return "kueue.x-k8s.io" if self.kind == "WorkloadPriorityClass" else "scheduling.k8s.io"


def priority_class(job: ElasticJob, workload: Mapping[str, Any]) -> PriorityChoice | None:
    """Return the class that gives the Workload its priority; None for a job without one."""
    if name := job.metadata.labels.get(KUEUE_PRIORITY):
        return PriorityChoice("WorkloadPriorityClass", name, f"metadata.labels[{KUEUE_PRIORITY}]")
    for pod_set in workload["spec"]["podSets"]:
        if name := pod_set["template"]["spec"].get("priorityClassName"):
            return PriorityChoice("PriorityClass", name, f"priorityClassName of {pod_set['name']}")
    return None


def with_priority(
    workload: Mapping[str, Any], chosen: PriorityChoice, value: int
) -> dict[str, Any]:
    """Return the manifest of a Workload with the class and its value."""
    reference = {"group": chosen.group, "kind": chosen.kind, "name": chosen.name}
    return {
        **workload,
        "spec": {**workload["spec"], "priorityClassRef": reference, "priority": value},
    }
