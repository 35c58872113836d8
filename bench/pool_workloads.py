"""Public workloads of a shared cluster, played with the pool's own decisions and with simple peers.

`python -m bench.pool_workloads [WORKLOAD ...]` prints mean and 99th percentile of the completion
times, as parts of those of first come, and what the mean would be if each job had the cluster alone
with up to its own size: no policy that gives nobody more can be better. The workloads and step
times are those of Pollux's and Sia's artifacts, and no part of this tree (bench/measured_worlds.py
says where they are read): 64 GPUs in nodes of 4, users' tuned sizes and batch sizes, which never
change. A change of a job's size stops it for 30 s, and a member that leaves frees its GPU after
that. Nothing is decided between two ticks of 30 s. Placement is packed. A third of the jobs never
says how long it takes, and what a job shows of its throughput is off by up to 5 %.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from elasticjob_api.elasticpool import Policy
from elasticjob_operator.core.sharing.model import NEARLY_DONE_SECONDS, Pool, PooledJob
from elasticjob_operator.core.sharing.share import share

from bench.measured_worlds import profiles_folder, rates_of

GPUS = 64
TICK = 30.0
CHANGE_SECONDS = 30.0
_LONGEST = 400_000.0


@dataclass
class Job:
    """A job of a workload: its wish, its true curve, and its state."""

    name: str
    arrives: float
    asked: int
    rate: Callable[[int], float]
    most: int
    samples: float
    tells: bool
    noise: float
    desired: int
    size: int = 0
    leaving: int = 0
    stopped_until: float = 0.0
    changed: float = -1e9
    ended: float = 0.0
    rates: dict[int, float] = field(default_factory=dict)
    least_said: float | None = None
    ends_at: float | None = None
    changes: int = 0
    ran: float = 0.0

    @property
    def fastest(self) -> float:
        """Return the most samples per second at any size up to its own."""
        return max(map(self.rate, range(1, self.asked + 1)))

    def advance(self, now: float) -> None:
        """Train until the next tick."""
        if not self.size:
            return
        self.ran += TICK
        begun = max(now, self.stopped_until)
        rate = self.rate(self.size)
        seconds = now + TICK - begun
        if seconds <= 0:
            return
        if self.samples <= rate * seconds:
            self.ended = begun + self.samples / rate
            return
        self.samples -= rate * seconds
        self.rates[self.size] = rate * self.noise
        if self.tells:
            said = self.samples
            self.least_said = said if self.least_said is None else min(said, self.least_said)
            left = self.samples / rate
            if left <= NEARLY_DONE_SECONDS and self.ends_at is None:
                self.ends_at = now + left

    def resize(self, size: int, now: float) -> None:
        """Give it another size, which stops it for a time unless it has just been started."""
        if size == self.size:
            return
        if size < self.size:
            self.leaving = self.size - size
        self.changes += self.size > 0
        self.size = size
        self.stopped_until = now + CHANGE_SECONDS


Decide = Callable[[Sequence[Job], float], None]


def first_come(jobs: Sequence[Job], now: float) -> None:
    """Start jobs with their own sizes in the order of arrival; a later one that fits may start."""
    free = GPUS - sum(job.size for job in jobs)
    for job in sorted(jobs, key=lambda each: each.arrives):
        if not job.size and job.asked <= free:
            job.resize(job.asked, now)
            free -= job.asked


def shortest_first(jobs: Sequence[Job], now: float) -> None:
    """Run those with the least time left at their own sizes, all lengths known; suspend others."""
    free = GPUS
    chosen = []
    for job in sorted(jobs, key=lambda each: each.samples / each.rate(each.asked)):
        if job.asked <= free:
            chosen.append(job)
            free -= job.asked
    for job in jobs:
        job.resize(job.asked if job in chosen else 0, now)


def equal_shares(jobs: Sequence[Job], now: float) -> None:
    """Give all jobs the same size, as far as they take it, in the order of arrival."""
    sizes = dict.fromkeys((job.name for job in sorted(jobs, key=lambda each: each.arrives)), 0)
    most = {job.name: job.most for job in jobs}
    free = GPUS
    while free > 0 and any(size < most[name] for name, size in sizes.items()):
        for name in sizes:
            if free > 0 and sizes[name] < most[name]:
                sizes[name] += 1
                free -= 1
    for job in jobs:
        job.resize(sizes[job.name], now)


def pooled(policy: Policy) -> Decide:
    """Return the decisions of a pool."""
    pool = Pool("bench", policy, (GPUS,), cooldown_seconds=300.0)

    def decide(jobs: Sequence[Job], now: float) -> None:
        found = [
            PooledJob(
                name=job.name,
                size=job.size,
                held=job.size + job.leaving,
                desired=job.desired,
                requested=job.desired,
                wanted=job.asked,
                minimum=1,
                member=(1,),
                fixed=(0,),
                since=job.arrives,
                waits_since=job.arrives,
                changed=job.changed,
                is_kept=now < job.stopped_until,
                ends_at=job.ends_at,
                work=job.least_said if job.rates else None,
                rates=job.rates,
            )
            for job in jobs
        ]
        sharing = share(pool, found, now)
        by_name = {job.name: job for job in jobs}
        for resize in sharing.resizes:
            job = by_name[resize.job]
            job.desired = resize.size
            job.resize(resize.size, now)
            job.changed = now
        for job in jobs:
            if not job.size:
                job.changed = now
            # What a started job still lacks comes without a plan, and begins no cooldown.
            job.resize(sharing.promised[job.name], now)
        assert sum(job.size + job.leaving for job in jobs) <= GPUS

    return decide


def play(jobs: list[Job], decide: Decide) -> tuple[float, float, float]:
    """Return mean and 99th percentile of the completion times, and changes per hour of a job."""
    now = 0.0
    ended: list[Job] = []
    live = list(jobs)
    while live and now < _LONGEST:
        present = [job for job in live if job.arrives <= now]
        if present:
            decide(present, now)
        for job in present:
            job.advance(now)
            job.leaving = 0
        now += TICK
        ended += [job for job in live if job.ended]
        live = [job for job in live if not job.ended]
    times = sorted(job.ended - job.arrives for job in ended)
    hours = sum(job.ran for job in ended) / 3600
    changes = sum(job.changes for job in ended) / hours
    rank = min(len(times) - 1, math.ceil(0.99 * len(times)) - 1)
    return (fmean(times) if not live else math.inf), times[rank], changes


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
            asked = int(row["num_replicas"])
            job = Job(
                row["name"],
                float(row["time"]),
                asked,
                rates_of(profile, batch),
                min(GPUS, batch),
                steps * batch,
                tells=chance.random() > 1 / 3,
                noise=chance.uniform(0.95, 1.05),
                desired=asked,
            )
            jobs.append(job)
    return jobs


PEERS: dict[str, Decide] = {
    "first come": first_come,
    "shortest first": shortest_first,
    "equal shares": equal_shares,
    "Fair": pooled("Fair"),
    "Throughput": pooled("Throughput"),
}


def main(names: Sequence[str]) -> None:
    """Print the table."""
    profiles = profiles_folder()
    if profiles is None:
        sys.exit("no traces: give their folder in ELASTICJOB_TRACES")
    for name in names or ("pollux-1", "sia-philly-1"):
        jobs = workload(profiles.parent, name)
        alone = fmean(CHANGE_SECONDS + job.samples / job.fastest for job in jobs)
        base = play(jobs, first_come)
        sys.stdout.write(f"{name:14} alone           mean {alone:6.0f} s ({alone / base[0]:.2f})\n")
        for peer, decide in PEERS.items():
            mean, last, changes = play(workload(profiles.parent, name), decide)
            sys.stdout.write(
                f"{name:14} {peer:15} mean {mean:6.0f} s ({mean / base[0]:.2f})"
                f"  p99 {last:6.0f} s ({last / base[1]:.2f})  {changes:.1f} changes/h\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
