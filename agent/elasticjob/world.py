"""This process' place among all of the job's training processes."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """A set of training processes that work together, until the next change.

    Attributes:
        rank: this process, counted from 0; the longest-serving member is 0.
        size: the number of processes.
        round: the number of this world, counted from 1; 0 when there is no job.
        job: a name for the job that is never used again, good for a checkpoint's folder.
        address: where the other processes reach this one.
    """

    rank: int
    size: int
    round: int
    job: str
    address: str


def world() -> World:
    """Return the present world. It stays the same for the life of the process."""
    read = os.environ.get
    return World(
        rank=int(read("ELASTICJOB_RANK", "0")),
        size=int(read("ELASTICJOB_WORLD_SIZE", "1")),
        round=int(read("ELASTICJOB_ROUND", "0")),
        job=read("ELASTICJOB_JOB_UID") or "alone",
        address=read("ELASTICJOB_POD_IP") or "127.0.0.1",
    )
