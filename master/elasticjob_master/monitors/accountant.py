"""Classifies the current activity and the resources of the job for its account."""

from __future__ import annotations

from elasticjob_master.core.accounting import Activity, Moment, Resources
from elasticjob_master.monitors.view import JobView


def moment(job: JobView, *, stalled_since: float | None) -> Moment:
    """Return what the job does; `stalled_since` is in seconds since the epoch."""
    return Moment(
        activity=_activity(job, stalled=stalled_since is not None),
        round=job.rendezvous.round,
        complete=not job.members.disconnected,
        stalled_since=stalled_since,
    )


def held(job: JobView) -> Resources:
    """Return the members, the CPU cores that they use, their GPUs, and what they cost an hour."""
    costs = job.facts.hourly_costs or {}
    cpus = gpus = cost = 0.0
    for member in job.members:
        cpus += member.usage.cpu_cores
        key = member.identity.key
        gpus += job.facts.gpus.get(key[0], 0)
        cost += costs.get(key, costs.get(key[0], 0.0))
    return Resources(len(job.members), cpus, gpus, cost)


def _activity(job: JobView, *, stalled: bool) -> Activity:
    rendezvous = job.rendezvous
    if rendezvous.phase == "waiting":
        if rendezvous.finished_at is not None:
            return "finished"
        return "suspended" if job.facts.suspended else "waiting"
    if stalled:
        return "stalled"
    # A world trains from its first finished step on: before, its processes start, load and compile.
    stepped = job.progress.round == rendezvous.round
    return "training" if stepped and rendezvous.phase != "reforming" else "starting"
