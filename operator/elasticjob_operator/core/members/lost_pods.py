"""Looks for pods that the watch no longer reports, because they or their labels were deleted.

A member gets another pod only when the API server has confirmed by the name that its last pod does
not exist. Nobody can edit a name, and the status says which one was the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ReplicaStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.pod_identity import MemberKey

from elasticjob_operator.core.model.actions import Action, ConfirmGone, DeletePod, EmitEvent
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod

CHECK_SECONDS = 2.0
"""Seconds between two reads of a pod that exists although no watch reports it."""
_MAX_CONFIRMED = 500
_MAX_NOTES = 10


def confirm_lost_pods(observed: Observed, now: float) -> list[Action]:
    """Return the request to look for the pods that are no longer observed.

    Empty if none is missing.
    """
    lost = {
        *observed.unconfirmed,
        *(name for name, at in observed.kept.items() if not 0 <= now - at < CHECK_SECONDS),
    }
    for role, replica in observed.job.status.replica_statuses.items():
        present = observed.pods_of(role).present
        for index in parse_indices(replica.started_indices) - present:
            name = last_pod_name(observed.job, role, index, replica)
            if observed.gone.get((role, index)) != name:
                lost.add(name)
    return [ConfirmGone(tuple(sorted(lost)[:_MAX_CONFIRMED]), now)] if lost else []


def delete_tampered_pods(observed: Observed) -> list[Action]:
    """Return the deletions of running pods whose labels or owner were edited.

    Services and watches select pods by these, so such a pod may be unreachable.
    """
    if not observed.tampered:
        return []
    tampered = [
        pod
        for pod in observed.pods
        if pod.metadata.uid in observed.tampered and not pod.terminating and not pod.finished
    ]
    if not tampered:
        return []
    notes = [
        f"{pod.name} is deleted, since {observed.tampered[pod.metadata.uid]}"
        for pod in tampered[:_MAX_NOTES]
    ]
    event = EmitEvent("PodTampered", "; ".join(notes), warning=True)
    return [*(DeletePod(pod.name, pod.metadata.uid) for pod in tampered), event]


def last_pod_name(job: ElasticJob, role: str, index: int, replica: ReplicaStatus) -> str:
    """Return the name of the latest pod of a member."""
    return names.member_pod(
        job.metadata.name, role, index, replica.incarnation_by_index.get(str(index), 0)
    )


def is_gone(observed: Observed, member: MemberKey, name: str, pods: Iterable[Pod]) -> bool:
    """Return whether it is certain that no process of the member's pod of this name runs.

    `pods` are the member's.
    """
    return observed.gone.get(member) == name or any(
        pod.name == name and pod.finished for pod in pods
    )


def is_uncreated(observed: Observed, member: MemberKey, name: str) -> bool:
    """Return whether certainly no pod of this name, the latest of the member, was created."""
    found = observed.uncreated.get(member)
    return found is not None and found.name == name
