"""Counts a job's pods in its status, and tells from the counts whether the job can start."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import (
    MAX_DOMAINS,
    ElasticJob,
    ElasticJobStatus,
    ReplicaStatus,
)
from elasticjob_api.indices import format_indices, is_index, parse_indices
from elasticjob_api.job_sizes import needed_size, start_size
from elasticjob_api.job_status import ENDED
from msgspec.structs import replace

from elasticjob_operator.core.members.terminations import permanently_failed
from elasticjob_operator.core.model.observed import Observed


def with_counts(observed: Observed, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status with the current counts of pods."""
    job = observed.job
    replicas = {
        role: replace(
            replica,
            active=observed.pods_of(role).active_count,
            ready=observed.pods_of(role).ready_count,
            succeeded=len(parse_indices(replica.succeeded_indices)),
            failed=len(permanently_failed(job.spec.replica_specs[role], replica)),
            topology_domains=_topology_domains(observed, role, replica),
        )
        for role, replica in status.replica_statuses.items()
    }
    printed = replicas[printed_role(job)]
    # A failure that uses up a limit is counted, but no restart follows it.
    restarts = sum(replica.restarts - replica.failed for replica in replicas.values())
    return replace(
        status,
        replica_statuses=replicas,
        selector=selector(job),
        workers=f"{printed.ready}/{printed.desired}" if status.phase not in ENDED else "",
        restarts=max(min(restarts, job.spec.run_policy.backoff_limit), 0),
        uncounted_restarts=sum(replica.uncounted_restarts for replica in replicas.values()),
    )


def _topology_domains(observed: Observed, role: str, replica: ReplicaStatus) -> dict[str, str]:
    """Return the members of a role by topology domain, for a bounded number of domains.

    A member whose node is not known keeps the stored domain: an operator that has just started may
    not have listed the node yet.
    """
    key = observed.job.spec.topology_key
    if key is None:
        return {}
    stored = {
        index: domain
        for domain, indices in replica.topology_domains.items()
        for index in parse_indices(indices)
    }
    domains: dict[str, list[int]] = {}
    for pod in sorted(observed.pods_of(role), key=lambda pod: pod.index):
        labels = observed.node_labels.get(pod.spec.node_name)
        domain = labels.get(key) if labels is not None else stored.get(pod.index)
        is_placed = pod.spec.node_name and not pod.finished and not pod.terminating
        if domain is not None and is_placed and is_index(pod.index):
            domains.setdefault(domain, []).append(pod.index)
    return {domain: format_indices(domains[domain]) for domain in list(domains)[:MAX_DOMAINS]}


def has_no_members_yet(status: ElasticJobStatus) -> bool:
    """Return whether no member has ever had a pod."""
    return all(replica.highest_index < 0 for replica in status.replica_statuses.values())


def has_too_few_members(job: ElasticJob, status: ElasticJobStatus, role: str) -> bool:
    """Return whether a role has fewer ready members than the job needs to start, or to continue.

    This holds for a role that does not exist. An invalid job can depend on one, if another program
    has written that the job is active.
    """
    replica = status.replica_statuses.get(role)
    if replica is None:
        return True
    return _ready_or_succeeded(replica) < needed_size(job, status, role)


def printed_role(job: ElasticJob) -> str:
    """Return the role whose size `kubectl get` prints: worker, or the first one."""
    roles = job.spec.replica_specs
    return names.ROLE_WORKER if names.ROLE_WORKER in roles else next(iter(roles))


def selector(job: ElasticJob) -> str:
    """Return the label selector of the members that `kubectl get` prints."""
    return f"{names.LABEL_JOB_UID}={job.metadata.uid},{names.LABEL_ROLE}={printed_role(job)}"


def only_counts_differ(before: ElasticJobStatus, after: ElasticJobStatus) -> bool:
    """Return whether the write can wait a moment, so that many small changes become one write."""
    return _without_counts(before) == _without_counts(after)


def _without_counts(status: ElasticJobStatus) -> ElasticJobStatus:
    return replace(
        status,
        replica_statuses={
            role: replace(replica, active=0, ready=0, succeeded=0, failed=0, started_indices="")
            for role, replica in status.replica_statuses.items()
        },
        workers="",
        message="",
        conditions=[replace(condition, message="") for condition in status.conditions],
    )


def enough_to_start(job: ElasticJob, status: ElasticJobStatus) -> bool:
    """Return whether each role has as many members as the job needs to start."""
    return all(
        _ready_or_succeeded(replica) >= start_size(job, status, role)
        for role, replica in status.replica_statuses.items()
    )


def _ready_or_succeeded(replica: ReplicaStatus) -> int:
    return replica.ready + replica.succeeded


def missing_members(job: ElasticJob, status: ElasticJobStatus) -> str:
    """Return the message for members without which the job cannot start; empty if it can."""
    short = [
        f"{_ready_or_succeeded(replica)} of {size} {role}s ready"
        for role, replica in status.replica_statuses.items()
        if _ready_or_succeeded(replica) < (size := start_size(job, status, role))
    ]
    return f"waiting: {', '.join(short)}" if short else ""
