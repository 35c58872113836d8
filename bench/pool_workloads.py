"""Public workloads of a shared cluster, played with the pool's own decisions and with simple peers.

`python -m bench.pool_workloads [WORKLOAD ...]` prints mean and 99th percentile of the completion
times, as parts of those of first come, the latest job in relation to its time with equal shares up
to its own size, and how many take more than 1.5 times as long. It also prints what the mean would
be if each job had the cluster alone with up to its own size: no policy that gives nobody more can
be better. The workloads and step times are those of Pollux's and Sia's artifacts, and no part of
this tree (bench/measured_worlds.py says where they are read): 64 GPUs in nodes of 4, users' tuned
sizes and batch sizes, which never change. A change of a job's size stops it for 30 s, and a member
that leaves frees its GPU after that. Nothing is decided between two ticks of 30 s. Placement is
packed. A third of the jobs never says how long it takes, and what a job shows of its throughput is
off by up to 5 %.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from elasticjob_api.elasticpool import Policy
from elasticjob_operator.core.sharing.model import Pool
from elasticjob_operator.core.sharing.simulation import (
    CHANGE_SECONDS,
    Decide,
    SimulatedJob,
    first_come,
    play,
    pooled,
)

from bench.measured_worlds import profiles_folder, rates_of

GPUS = 64
_LONGEST = 400_000.0
_LATE = 1.5


@dataclass
class Job(SimulatedJob):
    """A job of a workload.

    Attributes:
        most: the largest size that its batch allows.
    """

    most: int = GPUS

    @property
    def fastest(self) -> float:
        """Return the most samples per second at any size up to its own."""
        return max(map(self.rate, range(1, self.asked + 1)))


def shortest_first(jobs: Sequence[SimulatedJob], now: float) -> None:
    """Run those with the least time left at their own sizes, all lengths known; suspend others."""
    free = GPUS
    chosen = []
    for job in sorted(jobs, key=lambda each: each.samples / each.rate(each.asked)):
        if job.asked <= free:
            chosen.append(job)
            free -= job.asked
    for job in jobs:
        job.resize(job.asked if job in chosen else 0, now)


def equal_shares(most_of: Callable[[Job], int]) -> Decide:
    """Return the peer that gives all jobs the same size, as far as they take it, by arrival."""

    def decide(jobs: Sequence[SimulatedJob], now: float) -> None:
        sizes = dict.fromkeys((job.name for job in sorted(jobs, key=lambda each: each.arrives)), 0)
        most = {job.name: most_of(job) for job in jobs if isinstance(job, Job)}
        free = GPUS
        while free > 0 and any(size < most[name] for name, size in sizes.items()):
            for name in sizes:
                if free > 0 and sizes[name] < most[name]:
                    sizes[name] += 1
                    free -= 1
        for job in jobs:
            job.resize(sizes[job.name], now)

    return decide


def by_policy(policy: Policy) -> Decide:
    """Return the decisions of a pool with a policy."""
    return pooled(Pool("bench", policy, (GPUS,), cooldown_seconds=300.0))


def workload(folder: Path, name: str) -> list[Job]:
    """Return the jobs of a workload."""
    chance = random.Random(name)  # noqa: S311
    jobs = []
    with (folder / "workloads" / f"{name}.csv").open(newline="") as rows:
        for row in csv.DictReader(rows):
            profile = folder / "profiles" / row["application"]
            batch = int(row["batch_size"])
            with (profile / f"validation-{batch}.csv").open(newline="") as lines:
                steps = int(list(csv.DictReader(lines))[-1]["iteration"])
            job = Job(
                row["name"],
                float(row["time"]),
                int(row["num_replicas"]),
                rates_of(profile, batch),
                steps * batch,
                tells=chance.random() > 1 / 3,
                noise=chance.uniform(0.95, 1.05),
                most=min(GPUS, batch),
            )
            jobs.append(job)
    return jobs


PEERS: dict[str, Decide] = {
    "first come": first_come((GPUS,)),
    "shortest first": shortest_first,
    "equal shares": equal_shares(lambda job: job.most),
    "Fair": by_policy("Fair"),
    "Throughput": by_policy("Throughput"),
}


def main(names: Sequence[str]) -> None:
    """Print the table."""
    profiles = profiles_folder()
    if profiles is None:
        sys.exit("no traces: give their folder in ELASTICJOB_TRACES")
    for name in names or ("pollux-1", "sia-philly-1"):
        jobs = workload(profiles.parent, name)
        alone = fmean(CHANGE_SECONDS + job.samples / job.fastest for job in jobs)
        base = play(jobs, PEERS["first come"], _LONGEST)
        equal = play(workload(profiles.parent, name), equal_shares(lambda job: job.asked), _LONGEST)
        part = alone / base.mean
        sys.stdout.write(f"{name:14} alone           mean {alone:6.0f} s ({part:.2f})\n")
        for peer, decide in PEERS.items():
            found = play(workload(profiles.parent, name), decide, _LONGEST)
            parts = [found.seconds[job] / equal.seconds[job] for job in equal.seconds]
            sys.stdout.write(
                f"{name:14} {peer:15} mean {found.mean:6.0f} s ({found.mean / base.mean:.2f})"
                f"  p99 {found.percentile:6.0f} s ({found.percentile / base.percentile:.2f})"
                f"  {found.changes_per_hour:.1f} changes/h"
                f"  latest {max(parts):.2f}, {sum(each > _LATE for each in parts)} late\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
