"""Counts each end of a member's pod once in the job's status.

The counters are those of the status; users can edit the pods. `started_indices` in the status lists
the members that have a pod, and loses a member when the end of its pod is counted. A pod that ends
before the operator has listed it has the counters of the status as annotations, until its end is
counted. So a pod that is observed again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticjob_api.elasticjob import BackOff, ElasticJob, ReplicaSpec, ReplicaStatus
from elasticjob_api.indices import IndexSet, format_indices, is_index, parse_indices
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.meta import Quantity
from msgspec.structs import replace

from elasticjob_operator.core.members import backoff, more_memory
from elasticjob_operator.core.members.failure_policy import Failure, classify
from elasticjob_operator.core.members.pod_reports import with_failure
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import RolePods


@dataclass
class _Counters:
    """A role's counters by member index, with a note for each end that is counted."""

    succeeded: IndexSet
    started: IndexSet
    restarts: dict[str, int]
    uncounted_restarts: dict[str, int]
    back_off: dict[str, BackOff]
    resources: dict[str, dict[str, Quantity]]
    counted_notes: list[str] = field(default_factory=list)
    uncounted_notes: list[str] = field(default_factory=list)

    def include(self, pod: Pod) -> bool:
        """Return whether the end of this pod is counted already."""
        key = str(pod.index)
        has_counters = (pod.restarts, pod.uncounted_restarts) == (
            self.restarts.get(key, 0),
            self.uncounted_restarts.get(key, 0),
        )
        return pod.training_ended and pod.index not in self.started and not has_counters

    def count(self, index: int, counts: dict[str, int]) -> None:
        """Count an end of this member's pod, in `restarts` or `uncounted_restarts`."""
        counts[str(index)] = min(counts.get(str(index), 0) + 1, MAX_COUNTER)
        self.started = self.started.with_index(index, present=False)


def count_terminations(
    result: ReconcileResult,
    job: ElasticJob,
    role: str,
    pods: RolePods,
    staying: IndexSet,
    now: float,
) -> None:
    """Count the ended pods of a role, record events, and fail the job if a limit is exceeded."""
    spec = job.spec.replica_specs[role]
    replica = result.status.replica_statuses[role]
    counters = _Counters(
        parse_indices(replica.succeeded_indices),
        parse_indices(replica.started_indices),
        dict(replica.restarts_by_index),
        dict(replica.uncounted_by_index),
        dict(replica.back_off),
        dict(replica.resources_by_index),
    )
    for pod in pods.ending.values():
        if pod.training_ended and pod.index in staying and pod.index not in counters.succeeded:
            if is_done(spec, pod):
                counters.succeeded = counters.succeeded.with_index(pod.index)
            elif pod is _newest(replica, pods, pod.index) and not counters.include(pod):
                if pod.training_succeeded:
                    _count_success_to_repeat(counters, spec, pod, now)
                else:
                    _count_failure(result, counters, spec, role, pod, now)
    started = _count_vanished(counters, replica, pods, staying, now)
    result.record_event("MemberFailed", counters.counted_notes, warning=True)
    result.record_event("MemberInterrupted", counters.uncounted_notes)
    result.set_replica_status(
        role,
        replace(
            replica,
            succeeded_indices=format_indices(counters.succeeded),
            started_indices=format_indices(started),
            restarts=replica.restarts + len(counters.counted_notes),
            restarts_by_index=counters.restarts,
            uncounted_restarts=replica.uncounted_restarts + len(counters.uncounted_notes),
            uncounted_by_index=counters.uncounted_restarts,
            back_off=counters.back_off,
            resources_by_index=counters.resources,
        ),
    )


def are_to_be_counted(observed: Observed) -> bool:
    """Return whether a member's latest pod has ended and the status does not count this yet."""
    for role, replica in observed.job.status.replica_statuses.items():
        pods = observed.pods_of(role)
        if not pods.ending or replica.removed:
            continue
        members = parse_indices(replica.indices) & parse_indices(replica.started_indices)
        members -= parse_indices(replica.succeeded_indices)
        latest = replica.incarnation_by_index
        if any(
            pod.training_ended
            and pod.index in members
            and pod.incarnation >= latest.get(str(pod.index), 0)
            for pod in pods.ending.values()
        ):
            return True
    return False


def is_done(spec: ReplicaSpec, pod: Pod) -> bool:
    """Return whether the member of this pod has succeeded for good.

    Without an agent, exit code 0 after SIGTERM is not a success: many programs end so on SIGTERM.
    """
    had_sigterm = pod.terminating and not spec.managed
    return (
        pod.training_ended
        and pod.training_succeeded
        and not (had_sigterm or spec.restart_on_success)
    )


def permanently_failed(spec: ReplicaSpec, replica: ReplicaStatus) -> IndexSet:
    """Return the members that have used up their restarts and get no more pods."""
    failed = [int(key) for key, n in replica.restarts_by_index.items() if n > spec.restart_limit]
    return IndexSet(index for index in failed if is_index(index))


def _count_success_to_repeat(counters: _Counters, spec: ReplicaSpec, pod: Pod, now: float) -> None:
    """Count the success of a pod whose member runs again, like an end from outside."""
    key = str(pod.index)
    before = counters.back_off.get(key)
    counters.back_off[key], consequence = backoff.after_termination(
        before, pod, now, from_outside=True
    )
    counters.count(pod.index, counters.uncounted_restarts)
    why = (
        "has succeeded; restartOnSuccess is true"
        if spec.restart_on_success
        else "was deleted, and ended with 0"
    )
    counters.uncounted_notes.append(f"{pod.name}: {why}, {consequence}")


def _count_failure(
    result: ReconcileResult, counters: _Counters, spec: ReplicaSpec, role: str, pod: Pod, now: float
) -> None:
    failure = classify(pod, spec.restart_rules)
    key = str(pod.index)
    own = counters.resources.get(key, {})
    by_plans = result.status.replica_statuses[role].resources
    if lowered := failure.out_of_memory and more_memory.is_lowered(spec, pod, own, by_plans):
        failure = failure.from_lowered_memory()
    result.status = with_failure(result.status, pod, failure.action, now)
    if failure.action != "Ignore":
        result.status = replace(result.status, last_failure=f"{pod.name}: {failure.summary}")
    if failure.action == "FailJob":
        result.failure = result.failure or JobFailure(
            f"{role} {pod.index} failed: {failure.reason}", "Permanent"
        )
        return
    before = counters.back_off.get(key)
    counters.back_off[key], consequence = backoff.after_termination(
        before, pod, now, from_outside=failure.from_outside, least_delay=failure.least_delay
    )
    if lowered or failure.action == "RestartWithMoreMemory":
        memory, note = more_memory.increased_memory(spec, pod)
        consequence = f"{consequence} {note}"
        if memory:
            counters.resources[key] = {**own, **memory}
    if failure.action == "Ignore":
        counters.count(pod.index, counters.uncounted_restarts)
        counters.uncounted_notes.append(f"{pod.name}: {failure.reason}; not counted, {consequence}")
        return
    counters.count(pod.index, counters.restarts)
    if counters.restarts[key] > spec.restart_limit:
        consequence = f"restartLimit {spec.restart_limit} is used up"
        _fail_job_above_limit(result, counters, spec, role, pod, failure)
    counters.counted_notes.append(f"{pod.name}: {failure.reason}; {consequence}")


def _fail_job_above_limit(
    result: ReconcileResult,
    counters: _Counters,
    spec: ReplicaSpec,
    role: str,
    pod: Pod,
    failure: Failure,
) -> None:
    """Fail the job if `minFailed` members (default: 1) have used up their restarts."""
    failed = sum(n > spec.restart_limit for n in counters.restarts.values())
    if failed >= (spec.completion.min_failed or 1):
        result.failure = result.failure or JobFailure(
            f"{role} {pod.index} failed and its restartLimit {spec.restart_limit} is used up: "
            f"{failure.reason}"
        )


def _newest(replica: ReplicaStatus, pods: RolePods, index: int) -> Pod | None:
    """Return the newest pod of a member; None if its last one is not among its pods.

    An older pod's end was counted before the newer one was created, maybe for a member since
    removed.
    """
    latest = replica.incarnation_by_index.get(str(index), 0)
    found = [pod for pod in pods.at(index) if pod.incarnation >= latest]
    return max(reversed(found), key=lambda pod: pod.incarnation, default=None)


def _count_vanished(
    counters: _Counters,
    replica: ReplicaStatus,
    pods: RolePods,
    staying: IndexSet,
    now: float,
) -> IndexSet:
    """Count the pods that have vanished.

    Return the members with a pod whose end is not counted yet.
    """
    started = parse_indices(replica.started_indices)
    replaced = map(int, replica.incarnation_by_index)
    outdated = [index for index in replaced if _newest(replica, pods, index) is None]
    with_newest = pods.present - IndexSet(index for index in outdated if index in pods.present)
    for index in (started & staying) - with_newest - counters.succeeded:
        key = str(index)
        counters.count(index, counters.uncounted_restarts)
        before = counters.back_off.get(key)
        counters.back_off[key], consequence = backoff.after_termination(
            before, None, now, from_outside=True
        )
        counters.uncounted_notes.append(
            f"the pod of index {index} has vanished; not counted, {consequence}"
        )
    counted = IndexSet(
        pod.index
        for pod in pods.ending.values()
        if pod.index in staying
        and pod is _newest(replica, pods, pod.index)
        and counters.include(pod)
    )
    return (with_newest & staying) - counted | (started - staying)
