"""A simulated job with a throughput curve, scaled by the auto-scaler.

The simulation has what makes the search hard: noise, drift, a limit of pods, a cost of every rescale, and parameter
servers that run out of CPU. `run` returns how the search went; `cases` returns the cases of the tests and of
`make bench`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from elasticjob_master.core.autoscale import pending
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import Bounds, MemberUsage, RoleUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import Measurement, ScalingMemory, with_measurement

Curve = Callable[[int], float]
COOLDOWN = 300.0
TIMEOUT = 600.0
DAY = 86_400.0


def linear(size: int) -> float:
    """Return the throughput of perfect scaling."""
    return 100.0 * size


def saturating(serial: float) -> Curve:
    """Amdahl's law."""
    return lambda size: 100.0 * size / (1 + serial * (size - 1))


def network_bound(serial: float, network: float) -> Curve:
    """The universal scalability law: beyond a size, more members make the job slower."""
    return lambda size: 100.0 * size / (1 + serial * (size - 1) + network * size * (size - 1))


def input_bound(most: float) -> Curve:
    """The storage delivers at most so many samples per second."""
    return lambda size: min(100.0 * size, most)


def queueing(most: float) -> Curve:
    """Servers that get slower with their load."""
    return lambda size: 100.0 * size / (1 + (100.0 * size / most) ** 4) ** 0.25


@dataclass(frozen=True)
class Servers:
    """Two parameter servers: samples per second that one core serves, cores of each, and cores that each may get."""

    per_core: float
    cores: float = 2.0
    room: float = 0.0


@dataclass(frozen=True)
class Case:
    """The properties of a simulated job.

    Attributes:
        curve: samples per second by size.
        later: the curve after `drifts_at` seconds.
        noise: standard deviation of a measured window, relative to its rate.
        pods: the most members that the cluster can run.
        cost: seconds of training that a rescale costs.
    """

    name: str
    curve: Curve
    start: int = 2
    bounds: Bounds = field(default_factory=lambda: Bounds(1, 64))
    objective: float = 0.5
    noise: float = 0.0
    later: Curve | None = None
    drifts_at: float = DAY / 2
    pods: int = 10_000
    cost: float = 30.0
    seconds: float = DAY
    servers: Servers | None = None


@dataclass
class SearchResult:
    """The result of a simulation.

    Attributes:
        best: the best size at the end.
        sizes: all sizes in order, with a new list for each search.
        plans: the number of plans in each search, without those that did not get their pods.
        ratio: the throughput at the end, relative to that of the best size; at most 1.
        excess: members beyond the best size plus one, relative to the best size.
        regret: the missing part of the samples that the best size would have trained from the beginning.
    """

    best: int = 0
    sizes: list[list[int]] = field(default_factory=list)
    plans: list[int] = field(default_factory=list)
    ratio: float = 0.0
    excess: float = 0.0
    regret: float = 0.0
    reasons: list[str] = field(default_factory=list)

    @property
    def reversals(self) -> int:
        """The most changes of direction in one search."""
        return max(map(reversals, self.sizes))


def reversals(sizes: Sequence[int]) -> int:
    """Count the changes of direction in a series of sizes."""
    steps = [right - left for left, right in pairwise(sizes) if right != left]
    return sum((left > 0) != (right > 0) for left, right in pairwise(steps))


def best_size(curve: Curve, bounds: Bounds, objective: float) -> int:
    """Return the largest size up to which every further member adds what the objective demands."""
    size = bounds.minimum
    while size < bounds.maximum and size * (curve(size + 1) / curve(size) - 1) >= objective - 1e-9:
        size += 1
    return size


class Simulation:
    """The simulation of one case with one seed."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self._random = random.Random(f"{case.name} {seed}")  # noqa: S311 - a simulation
        self.memory = ScalingMemory()
        self.time = 0.0
        self.size = case.start
        self.cores = case.servers.cores if case.servers else 0.0
        self._trained = self._possible = 0.0
        self._known_best: dict[tuple[bool, float], int] = {}
        self.result = SearchResult(sizes=[[case.start]], plans=[0])

    def curve(self) -> Curve:
        """Return the present throughput curve."""
        case = self.case
        plain = case.later if case.later is not None and self.time >= case.drifts_at else case.curve
        if case.servers is None:
            return plain
        most = 2 * self.cores * case.servers.per_core
        return lambda size: plain(size) / (1 + (plain(size) / most) ** 8) ** 0.125

    def bounds(self) -> Bounds:
        """Return the sizes that the cluster can run."""
        return Bounds(
            self.case.bounds.minimum, max(self.case.bounds.minimum, min(self.case.bounds.maximum, self.case.pods))
        )

    def run(self) -> SearchResult:
        """Measure, decide and rescale until the time is over."""
        lost: float | None = None
        while self.time < self.case.seconds:
            self._advance(COOLDOWN)
            rate = self.curve()(self.size) * max(0.05, self._random.gauss(1.0, self.case.noise))
            self.memory = with_measurement(self.memory, self.size, Measurement(rate, lost))
            lost = None
            decision = decide(self.memory, self.inputs())
            if not decision.changes_nothing:
                self._change(decision)
                lost = self.case.cost
            self.memory = decision.memory if decision.changes_nothing else self.memory
        result = self.result
        result.best = self._best()
        result.ratio = min(1.0, self.curve()(self.size) / self.curve()(result.best))
        result.excess = max(0, self.size - result.best - 1) / result.best
        result.regret = 1 - self._trained / self._possible
        return result

    def inputs(self) -> ScalingInputs:
        """Return the inputs of the rules."""
        case, roles, room = self.case, {}, {}
        if case.servers is not None:
            load = self.curve()(self.size) / (2 * self.cores * case.servers.per_core)
            uses = tuple(
                MemberUsage(f"ps-{index}", cpu=load * self.cores, cpu_peak=load * self.cores, cpu_request=self.cores)
                for index in range(2)
            )
            roles, room = {"ps": RoleUsage(uses)}, {"cpu": 2 * (case.servers.room - self.cores + case.servers.cores)}
        return ScalingInputs(
            role="worker",
            size=self.size,
            bounds=case.bounds,
            objective=case.objective,
            horizon=case.seconds - self.time + 3600,
            wall=self.time,
            roles=roles,
            servers=("ps",),
            free_resources=room,
            setting=f"{self.cores}",
        )

    def _best(self) -> int:
        """Return the best size for the present curve; results are cached, as the curve rarely changes."""
        key = (self.time >= self.case.drifts_at, self.cores)
        if key not in self._known_best:
            self._known_best[key] = best_size(self.curve(), self.bounds(), self.case.objective)
        return self._known_best[key]

    def _change(self, decision: ScalingDecision) -> None:
        case, result = self.case, self.result
        result.reasons.append(decision.reason)
        moves_before = self.memory.moves
        self.memory = decision.memory
        if moves_before == 0 and self.memory.moves == 1 and result.plans[-1]:
            result.sizes.append([self.size])
            result.plans.append(0)
        result.plans[-1] += 1
        self.cores = decision.resources.get("ps", {}).get("cpu", self.cores)
        if decision.size is not None:
            wanted = decision.size
            assert case.bounds.minimum <= wanted <= case.bounds.maximum, (wanted, decision.reason)
            if wanted > case.pods:
                self._advance(TIMEOUT)
                self.size = max(self.size, case.pods)
                self.memory = pending.after_unfulfilled_plan(self.memory, self.size, self.time)
                result.plans[-1] -= 1
            else:
                self.size = wanted
                self.memory = pending.after_fulfilled_plan(self.memory, wanted)
            result.sizes[-1].append(self.size)
        self._advance(case.cost, trains=False)

    def _advance(self, seconds: float, *, trains: bool = True) -> None:
        curve, best = self.curve(), self._best()
        self._possible += seconds * curve(best)
        self._trained += seconds * min(curve(self.size), curve(best)) * trains
        self.time += seconds


def run(case: Case, seed: int = 0) -> SearchResult:
    """Simulate a case."""
    return Simulation(case, seed).run()


CURVES: dict[str, Curve] = {
    "linear": linear,
    "saturating, 2 % serial": saturating(0.02),
    "saturating, 8 % serial": saturating(0.08),
    "network-bound, peak at 26": network_bound(0.01, 0.0015),
    "network-bound, peak at 10": network_bound(0.02, 0.01),
    "input-bound at 12": input_bound(1200.0),
    "input-bound at 40": input_bound(4000.0),
    "queueing at 20": queueing(2000.0),
}


STARTS = (1, 2, 3, 5, 8, 12, 20, 32, 48, 64)


def cases() -> list[Case]:
    """Return every curve with many initial sizes, with and without noise, and cases with other difficulties."""
    all_cases = [
        Case(f"{name}; from {start}; noise {noise:.0%}", curve, start=start, noise=noise)
        for name, curve in CURVES.items()
        for start in STARTS
        for noise in (0.0, 0.02)
    ]
    all_cases += [
        Case(f"{name}; from 2; objective {objective:.0%}", curve, objective=objective, noise=0.01)
        for name, curve in CURVES.items()
        for objective in (0.3, 0.7)
    ]
    all_cases += [
        Case("drift: storage gets slow", input_bound(4000.0), later=input_bound(1000.0), noise=0.02, start=4),
        Case("drift: serial work is mended", saturating(0.1), later=saturating(0.01), noise=0.02, start=4),
        Case("drift: a neighbour takes half", linear, later=lambda n: 50.0 * n, noise=0.02, start=4),
        Case("drift: faster, at the bound", linear, later=lambda n: 200.0 * n, noise=0.02, bounds=Bounds(1, 16)),
        Case("PS-bound, no CPU to be had", linear, servers=Servers(300.0), noise=0.02),
        Case("PS-bound, CPU to be had", linear, servers=Servers(300.0, room=30.0), noise=0.02),
        Case("20 pods to be had", linear, pods=20, noise=0.02),
        Case("20 pods to be had, saturating", saturating(0.02), pods=20, noise=0.02),
        Case("a rescale costs 10 minutes", saturating(0.02), cost=600.0, noise=0.02),
        Case("1 to 1,000 members", saturating(0.002), bounds=Bounds(4, 1000), start=8, noise=0.02),
    ]
    return all_cases


def drawn(number: int) -> Case:
    """Return a random case, the same for the same number; no constant of the rules was tuned to these cases."""
    rng = random.Random(number)  # noqa: S311 - a simulation
    kind = rng.choice(("saturating", "network-bound", "input-bound", "queueing"))
    start = rng.choice(STARTS)
    if kind == "saturating":
        serial = math.exp(rng.uniform(math.log(0.004), math.log(0.25)))
        curve, parameters = saturating(serial), f"{serial:.1%} serial"
    elif kind == "network-bound":
        serial, peak = math.exp(rng.uniform(math.log(0.002), math.log(0.1))), rng.uniform(6.0, 100.0)
        curve, parameters = network_bound(serial, (1 - serial) / peak**2), f"{serial:.1%} serial, peak at {peak:.0f}"
    else:
        most = math.exp(rng.uniform(math.log(2.5), math.log(80.0)))
        curve = input_bound(100.0 * most) if kind == "input-bound" else queueing(100.0 * most)
        parameters = f"at {most:.1f}"
    return Case(f"drawn {number}: {kind}, {parameters}; from {start}", curve, start=start, noise=0.02)


def hard_cases() -> list[Case]:
    """Return cases with more noise than windows of five minutes usually have."""
    return [
        Case(f"{name}; from {start}; noise 5%", curve, start=start, noise=0.05)
        for name, curve in CURVES.items()
        for start in (1, 8, 20, 64)
    ]
