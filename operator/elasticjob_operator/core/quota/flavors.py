"""Places the pods of an admitted job on nodes of the ResourceFlavors that Kueue has assigned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.pooled_jobs import KUEUE_QUEUE

from elasticjob_operator.core.model.workload import PodSetUpdate, Quota, Workload


def with_flavors(pod: Mapping[str, Any], quota: Quota | None) -> Mapping[str, Any]:
    """Return a pod's manifest with the additions of its job's admission.

    These are node labels, tolerations, labels and annotations; existing values stay. The queue
    label is removed: a Kueue that queues single pods would count the pod a second time.
    """
    if quota is None or not quota.queue:
        return pod
    metadata = dict(pod["metadata"])
    spec = dict(pod["spec"])
    metadata["labels"] = {
        key: value for key, value in metadata["labels"].items() if key != KUEUE_QUEUE
    }
    for added in _additions(metadata["labels"][names.LABEL_ROLE], quota):
        metadata["labels"] = {**added.labels, **metadata["labels"]}
        metadata["annotations"] = {**added.annotations, **(metadata.get("annotations") or {})}
        if added.node_selector:
            spec["nodeSelector"] = {**added.node_selector, **(spec.get("nodeSelector") or {})}
        present = list(spec.get("tolerations") or ())
        if new := [each for each in added.tolerations if each not in present]:
            spec["tolerations"] = [*present, *new]
    return {**pod, "metadata": metadata, "spec": spec}


def _additions(role: str, quota: Quota) -> list[PodSetUpdate]:
    workload = quota.current
    if workload is None:
        # While the next Workload replaces the last one, the last one counts.
        assigned = [each for each in quota.workloads if each.status.admission is not None]
        if not assigned:
            return []
        workload = assigned[-1]
    flavors = (quota.flavors[name] for name in _flavors(role, workload) if name in quota.flavors)
    found = [
        PodSetUpdate(node_selector=each.node_labels, tolerations=each.tolerations)
        for each in flavors
    ]
    checks = workload.status.admission_checks
    return [
        *found,
        *(update for check in checks for update in check.pod_set_updates if update.name == role),
    ]


def _flavors(role: str, workload: Workload) -> list[str]:
    ours = (each.flavors.values() for each in workload.assignments if each.name == role)
    return sorted({flavor for flavors in ours for flavor in flavors})
