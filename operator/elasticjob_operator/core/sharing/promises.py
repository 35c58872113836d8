"""What an operator that begins to lead a pool may take as promised by the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob_operator.core.sharing.model import Pool, PooledJob
from elasticjob_operator.core.sharing.room import Room, total


def promised_at_start(pool: Pool, jobs: Sequence[PooledJob]) -> Mapping[str, int]:
    """Return the members for which each job may have pods, from what it has now.

    Jobs that run keep their size, so that lost pods come back. If that is more than there is, the
    last operator had promised some of them less, and each keeps the pods that it has.
    """
    running = [job for job in jobs if job.held]
    room = Room(pool.capacity)
    for job in running:
        room.take(total(job, max(job.held, job.desired)))
    fits = not any(room.overdrawn)
    return {job.name: max(job.held, job.desired) if fits else job.held for job in running}
