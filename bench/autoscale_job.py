"""A simulated job in a world, scaled by the master's real auto-scaler.

It ticks, measures, decides and learns. Only the throughput and the use of CPU are played. Time is
simulated, so that four hours take a fraction of a second.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from elasticjob_api.health import Health
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import (
    ContainerResources,
    EndedPlan,
    JobScaling,
    RoleResources,
)
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.rendezvous.members import Identity, Member, Usage
from elasticjob_master.monitors.autoscaler import AutoScaler

from bench.autoscale_worlds import HOUR, World

COOLDOWN = 300.0
WALL = 1e9
"""When the simulated jobs begin, in seconds since the epoch."""
_TICK = 15.0
_TIMEOUT = 600.0
"""Seconds until a plan whose pods cannot be had ends."""
_CORRELATION = 60.0
"""Seconds after which the noise of the throughput is another one."""
_SERVERS = 2


@dataclass(frozen=True)
class Plan:
    """A plan that was made: at how many seconds, and why."""

    at: float
    reason: str


@dataclass
class Outcome:
    """The result of a job.

    Attributes:
        best: the size that is worth most at the end.
        sizes: all sizes in order, with a new list for each search.
        plans: those that were made, by search, without those that did not get their pods.
        ratio: the throughput at the end, relative to that of the best size; at most 1.
        utility: the worth of throughput and members at the end, relative to that of the best size.
        excess: members beyond the best size plus one, relative to the best size.
        below_measured: the part by which the throughput at the end is below that of a size that
            was tried and is no larger than the best one.
        first_hour: samples trained in it, relative to those of an oracle, which has the best size
            from the start.
        whole: samples trained in all of the time, relative to those of an oracle.
        most_cores: the most that a server had.
        most_servers: the most that there were.
        member_hours: how many members there were, over the time.
        looks: searches that began with a plan although nothing seemed to have changed.
    """

    best: int = 0
    sizes: list[list[int]] = field(default_factory=list)
    plans: list[list[Plan]] = field(default_factory=lambda: [[]])
    ratio: float = 0.0
    utility: float = 0.0
    excess: float = 0.0
    below_measured: float = 0.0
    first_hour: float = 0.0
    whole: float = 0.0
    most_cores: float = 0.0
    most_servers: int = 0
    member_hours: float = 0.0
    looks: int = 0

    @property
    def turns(self) -> int:
        """The most changes of direction in one search."""
        return max(map(turns, self.sizes))

    @property
    def most_plans(self) -> int:
        """The most plans of one search."""
        return max(map(len, self.plans))

    def __str__(self) -> str:
        """Return what to look at when it went wrong."""
        reasons = [
            f"{plan.at / 60:4.0f} min {plan.reason}" for plans in self.plans for plan in plans
        ]
        return "\n".join(
            [f"best {self.best}, ratio {self.ratio:.3f}, sizes {self.sizes}", *reasons]
        )


def turns(sizes: Sequence[int]) -> int:
    """Count the changes of direction in a series of sizes."""
    steps = [right - left for left, right in pairwise(sizes) if right != left]
    return sum((left > 0) != (right > 0) for left, right in pairwise(steps))


class SimulatedJob:
    """The job, as the auto-scaler sees it; `run` lets time pass."""

    def __init__(
        self,
        world: World,
        seed: int = 0,
        *,
        objective: Objective | None = None,
        total: float = 0.0,
        autoscaler: AutoScaler | None = None,
    ) -> None:
        """Begin; without an objective it is `Efficiency`, as much as the world says.

        The training ends after `total` samples, and reports that; 0: neither. Without an
        auto-scaler it has the master's.
        """
        self.world = world
        self.now = 0.0
        self.total = total
        self.autoscaler = autoscaler or AutoScaler()
        self.clock_error: Callable[[float], float] = lambda _now: 0.0
        """The seconds by which the master's clock is fast."""
        self.outcome = Outcome(sizes=[[world.start]])
        self._random = random.Random(f"{world.name} {seed}")  # noqa: S311 - a simulation
        self._noise = self._samples = self._pause = 0.0
        self._round = 0
        self._known_best: dict[tuple[bool, float], int] = {}
        self._cores = world.servers.cores if world.servers is not None else 0.0
        self._servers = _SERVERS
        self._scaling = JobScaling(
            role="worker",
            desired=world.start,
            bounds=Bounds(world.minimum, world.maximum),
            enabled=True,
            objective=objective or Objective(efficiency=world.objective),
            cooldown=COOLDOWN,
        )
        self._begin_round(world.start)

    # --- the job

    def _begin_round(self, size: int) -> None:
        """Form a world with this number of workers."""
        self._round += 1
        self._round_began = self.now
        servers = self.world.servers
        identities = [
            Identity(f"j-worker-{n}", f"worker-{n}", "worker", n, node_name=self.world.node_of(n))
            for n in range(size)
        ]
        if servers is not None:
            identities += [Identity(f"j-ps-{n}", f"ps-{n}", "ps", n) for n in range(self._servers)]
        self._members = {
            each.pod_uid: Member(
                each, order, disconnected_since=None, process_round=self._round, started=True
            )
            for order, each in enumerate(identities, 1)
        }
        self._scaling = replace(self._scaling, desired=size, indices=frozenset(range(size)))
        if servers is not None:
            self._scaling = replace(
                self._scaling,
                roles={
                    "ps": RoleResources(ContainerResources(cpu=self._cores), desired=self._servers)
                },
                free_resources={"cpu": _SERVERS * (servers.room - self._served + servers.cores)},
                most_servers={"ps": servers.most},
                setting=f"ps {self._servers} x {self._cores:g}",
            )

    def _view(self) -> Any:
        """Return what monitors read of a job."""
        members = _Members(self._members.values())
        members.get = self._members.get
        rendezvous = SimpleNamespace(
            round=self._round,
            phase="training",
            world=tuple(self._members),
            confirmed_at=0.0,
            finished_at=None,
        )
        progress = SimpleNamespace(
            round=self._round,
            step=int(self._samples),
            samples=self._samples,
            reporter_count=lambda: self._scaling.desired,
            samples_per_second=lambda now: self.world.rate(
                self._scaling.desired, now, self._served
            ),
            total_steps=int(self.total),
            steps_per_second=lambda now: self.world.rate(self._scaling.desired, now, self._served),
            eta_seconds=self._eta,
        )
        return SimpleNamespace(
            members=members, rendezvous=rendezvous, progress=progress, history=None, health=Health()
        )

    @property
    def _served(self) -> float:
        """The cores of all servers, as those of each of two."""
        return self._cores * self._servers / _SERVERS

    def _eta(self, now: float) -> float:
        """Return the seconds to go: a day, if the training does not say how long it is."""
        if not self.total:
            return max(HOUR, 24 * HOUR - now)
        return max(0.0, self.total - self._samples) / self.world.rate(
            self._scaling.desired, now, self._served
        )

    def _train(self) -> tuple[float, float]:
        """Let a tick pass.

        Return the samples trained, and those that the best size would have trained.
        """
        world = self.world
        size = self._scaling.desired
        keep = math.exp(-_TICK / _CORRELATION)
        # The deviation of a mean over 300 s is this part of that of the noise itself.
        related = _CORRELATION / COOLDOWN
        part = math.sqrt(2 * related * (1 - related * (1 - math.exp(-1 / related))))
        self._noise = keep * self._noise + math.sqrt(1 - keep**2) * self._random.gauss(
            0, world.noise / part
        )
        trains = max(0.0, _TICK - self._pause)
        self._pause = max(0.0, self._pause - _TICK)
        self.now += _TICK
        rate = world.rate(size, self.now, self._served)
        rate *= world.slow_start(self.now - self._round_began)
        most = world.rate(self._best(), self.now, self._served)
        self._samples += rate * max(0.05, 1 + self._noise) * trains
        if world.servers is not None:
            usage = Usage(cpu_cores=world.servers.load(rate, self._served) * self._cores)
            for number in range(self._servers):
                self._members[f"ps-{number}"].usage = usage
        return min(rate, most) * trains, most * _TICK

    def _best(self) -> int:
        """Return the best size now; the result is cached, as it rarely changes."""
        key = (self.now >= self.world.later_at, self._served)
        if key not in self._known_best:
            self._known_best[key] = self.world.best(self.now, self._served)
        return self._known_best[key]

    def allow(self, minimum: int, maximum: int) -> None:
        """Edit the sizes that the job allows."""
        self.world = replace(self.world, minimum=minimum, maximum=maximum)
        self._known_best = {}
        self._scaling = replace(self._scaling, bounds=Bounds(minimum, maximum))

    @property
    def scaling(self) -> JobScaling:
        """The ways in which the job may be scaled now."""
        return self._scaling

    def _wall(self) -> float:
        return WALL + self.now + self.clock_error(self.now)

    # --- the auto-scaler

    def run(self, hours: float = 4.0) -> Outcome:
        """Train for this time, or until the training has ended."""
        trained = possible = 0.0
        outcome = self.outcome
        while self.now < hours * HOUR and not 0 < self.total <= self._samples:
            outcome.member_hours += self._scaling.desired * _TICK / HOUR
            samples, most = self._train()
            trained = trained + samples
            possible = possible + most
            if self.now <= HOUR:
                outcome.first_hour = trained / possible
            decision = self.autoscaler.tick(
                self._view(), self._scaling, self.now, wall=self._wall(), plan_requested=False
            )
            if decision is not None:
                self._execute(decision)
            outcome.most_cores = max(outcome.most_cores, self._cores)
            outcome.most_servers = max(outcome.most_servers, self._servers)
        outcome.whole = trained / possible
        self._judge()
        return outcome

    def _execute(self, decision: ScalingDecision) -> None:
        """Play the operator."""
        outcome = self.outcome
        number = self._round
        before = self.autoscaler.memory.search
        after = decision.memory.search
        outcome.looks += before.settled_size is not None and after.drifted_from is not None
        # A look, or a search that a part of a window has begun, makes its first plan at once.
        restarted = decision.size is not None and after.plans <= before.plans
        if (restarted or before.plans == 0) and outcome.plans[-1]:
            outcome.sizes.append([self._scaling.desired])
            outcome.plans.append([])
        outcome.plans[-1].append(Plan(self.now, decision.reason))
        self.autoscaler.plan_created(decision)
        wanted = self._scaling.desired if decision.size is None else decision.size
        assert self.world.minimum <= wanted <= self.world.maximum, decision.reason
        reached = min(wanted, max(self._scaling.desired, self.world.pods))
        phase = "Succeeded"
        self._pause = self.world.rescale
        if reached < wanted:
            phase = "PartiallySucceeded"
            self._pause = _TIMEOUT
            outcome.plans[-1].pop()
        self._cores = decision.resources.get("ps", {}).get("cpu", self._cores)
        self._servers = decision.servers.get("ps", self._servers)
        self._begin_round(reached)
        outcome.sizes[-1].append(reached)
        ended = EndedPlan(number, phase, decision.size, reached, "no room")
        self.autoscaler.plan_ended(ended, wall=self._wall())

    def _judge(self) -> None:
        world = self.world
        outcome = self.outcome
        size = self._scaling.desired
        outcome.best = self._best()

        def rate(size: int) -> float:
            return world.rate(size, self.now, self._served)

        outcome.ratio = min(1.0, rate(size) / rate(outcome.best))
        worth = world.worth(size, self.now, self._served)
        outcome.utility = math.exp(worth - world.worth(outcome.best, self.now, self._served))
        outcome.excess = max(0, size - outcome.best - 1) / outcome.best
        tried = [rate(n) for sizes in outcome.sizes for n in sizes if n <= outcome.best]
        outcome.below_measured = max(0.0, 1 - rate(size) / max(tried)) if tried else 0.0


class _Members(list[Member]):
    """All members, with the methods of a job's view."""

    disconnected: tuple[str, ...] = ()
    get: Any = None
