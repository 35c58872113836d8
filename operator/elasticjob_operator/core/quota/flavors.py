"""Where the pods of an admitted job run.

On nodes of the ResourceFlavors that Kueue has assigned to their pod set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api import names

from elasticjob_operator.core.model.workload import KUEUE_QUEUE, PodSetUpdate, Quota, Workload


def with_flavors(pod: Mapping[str, Any], quota: Quota | None) -> Mapping[str, Any]:
    """Return a pod's manifest with what its job's admission adds.

    Node labels, tolerations, labels and annotations. What its template and this operator have set
    stays; Kueue has seen it before it chose. The queue's label goes, by which Kueue would count the
    pod, where it queues single pods, a second time.
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
    assigned = [each for each in quota.workloads if each.status.admission is not None]
    workload = quota.current or (
        assigned[-1] if assigned else None
    )  # the last one while the next one replaces it
    if workload is None:
        return []
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
    assignments = workload.status.admission.pod_set_assignments if workload.status.admission else []
    return sorted(
        {flavor for each in assignments if each.name == role for flavor in each.flavors.values()}
    )
