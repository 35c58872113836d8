"""Keeps failed pods after they were replaced, for `kubectl logs` and `kubectl describe`.

They are separated from the others before anything is decided, so they count for no member, drain or
plan. They have no mark: a retained pod has failed and is older than the latest pod of its member,
whose name is in the status.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.times import parse_time

from elasticjob_operator.core.members.backoff import run_times
from elasticjob_operator.core.members.failure_policy import is_counted
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.model.pod import Pod

MAX_RETAINED_PODS = 10
"""Retained pods of a job, the newest ones: one for each restart of the default `backoffLimit`."""


def with_retained_apart(observed: Observed) -> Observed:
    """Return what is observed with the replaced failed pods in `retained` instead of `pods`."""
    failed = [pod for pod in observed.pods.ending if pod.failed]
    if observed.job.status.phase is None or not failed:
        return observed
    latest = _latest_incarnations(observed, {(pod.role, pod.index) for pod in failed})
    retained = [
        pod
        for pod in failed
        if pod.incarnation < latest.get((pod.role, pod.index), 0)
        and may_be_retained(observed.job, pod)
    ]
    pods = observed.pods.without(retained)
    return dataclasses.replace(observed, pods=pods, retained=tuple(retained))


def may_be_retained(job: ElasticJob, pod: Pod) -> bool:
    """Return whether a pod may stay when it is replaced: it has ended by a counted failure.

    An end such as an eviction says nothing about the program, and may happen often.
    """
    return pod.failed and not pod.terminating and is_counted(job, pod)


def excess(observed: Observed) -> tuple[Pod, ...]:
    """Return the retained pods to delete.

    Those beyond the limit, or all while the API server refuses a change: a quota may count failed
    pods as well, and the job needs the room more than their logs.
    """
    newest_first = sorted(observed.retained, key=_ended_at, reverse=True)
    kept = [] if observed.last_refusal else newest_first[:MAX_RETAINED_PODS]
    return tuple(pod for pod in observed.retained if pod not in kept)


def _latest_incarnations(observed: Observed, members: Set[MemberKey]) -> Mapping[MemberKey, int]:
    """Return the incarnation of the latest pod of the master, and of these if they are members.

    The status has it before the pod is created. An earlier operator may have created a newer pod.
    """
    status = observed.job.status
    latest = {(names.ROLE_MASTER, -1): status.master.incarnations - 1}
    present = current_indices(status)
    for role, index in members:
        if index in present.get(role, ()):
            replica = status.replica_statuses[role]
            latest[role, index] = replica.incarnation_by_index.get(str(index), 0)
    for role, index in latest:
        incarnations = [pod.incarnation for pod in observed.pods_of(role).at(index)]
        latest[role, index] = max([latest[role, index], *incarnations])
    return latest


def _ended_at(pod: Pod) -> tuple[float, int, str]:
    """Return the sort key: the time of the failure, not of the creation."""
    _, ended = run_times(pod)
    created = pod.metadata.creation_timestamp
    if ended is None:
        ended = parse_time(created) if created else 0.0
    return ended, pod.incarnation, pod.name
