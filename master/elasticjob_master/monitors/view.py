"""The part of a job that the monitors read."""

from __future__ import annotations

from typing import Protocol

from elasticjob_master.core.history import History
from elasticjob_master.core.progress import Progress
from elasticjob_master.core.rendezvous.members import Members
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.job_facts import JobFacts


class JobView(Protocol):
    """All that a monitor reads, and never changes. The controller has this shape."""

    members: Members
    rendezvous: RendezvousState
    progress: Progress
    history: History
    facts: JobFacts


def trains(job: JobView) -> bool:
    """Return whether the whole world trains, so that the time of a step says something about it."""
    rendezvous = job.rendezvous
    steady = rendezvous.phase == "training" and rendezvous.confirmed_at is not None
    complete = rendezvous.finished_at is None and not job.members.disconnected
    return steady and complete and not any(member.suspected for member in job.members)
