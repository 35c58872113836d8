"""What is known of the sizes and of changed resources, for users; no decision follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from elasticjob_master.core.autoscale.decision import Bounds, candidates
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.posterior import Posterior, fit, variance
from elasticjob_master.core.autoscale.resource_rules import mib
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    MeasuredRates,
    RolePeaks,
    ScalingMemory,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

_LOW = 0.05
_HIGH = 0.95
CURVE_POINTS = 24
"""The most points of a published curve."""
_CURVE_FACTOR = 2
"""It ends at this multiple of the sizes that matter, however many members are allowed."""


@dataclass(frozen=True)
class Evidence:
    """All that a belief follows from."""

    rates: MeasuredRates
    size: int
    bounds: Bounds
    objective: Objective


@dataclass(frozen=True)
class Expectation:
    """The throughput that the model expects at a size.

    Attributes:
        rate: samples per second.
        low: the rate is between `low` and `high` with a likelihood of 90 %.
        high: see `low`.
        too_small: the likelihood that the size does not nearly reach the best size's throughput.
        too_large: the likelihood that the size is well above the best one.
    """

    size: int
    rate: float
    low: float
    high: float
    too_small: float
    too_large: float


@dataclass(frozen=True)
class SizeBelief:
    """The evidence about one size.

    Attributes:
        measured: the rate measured there; None if the size was not measured.
        error: the standard error of the measured rate, relative to it.
        expected: None if too little was measured to expect anything.
    """

    size: int
    measured: MeasuredRate | None
    error: float
    expected: Expectation | None


@dataclass(frozen=True)
class Belief:
    """The evidence about the sizes.

    Attributes:
        sizes: the measured sizes in ascending order. With two of them, also the
            present size, the largest one allowed, and the ends of `best`.
        best: the best size is between these two with a likelihood of 90 %; None if unknown.
        curve: the expected throughput of sizes in equal ratios, for a drawing.
    """

    sizes: tuple[SizeBelief, ...] = ()
    best: tuple[int, int] | None = None
    curve: tuple[Expectation, ...] = ()


class BeliefOfLatestEvidence:
    """Keeps the belief of the latest evidence, because the fit takes long."""

    def __init__(self) -> None:
        self._evidence: Evidence | None = None
        self._belief = Belief()

    def form(self, evidence: Evidence) -> Belief:
        """Return the belief."""
        if evidence != self._evidence:
            self._belief = form_belief(evidence)
            self._evidence = evidence
        return self._belief


def form_belief(evidence: Evidence) -> Belief:
    """Return what the measurements show.

    A single measured size says nothing of others, so nothing is expected of them.
    """
    noise = evidence.rates.noise
    known = {size: rate for size, rate in evidence.rates.by_size.items() if rate.mean > 0}
    latest = max((rate.at for rate in known.values()), default=0.0)
    errors = {n: math.sqrt(variance(rate, noise, latest)) for n, rate in known.items()}
    if len(known) < 2:
        only = [SizeBelief(size, known[size], errors[size], None) for size in sorted(known)]
        return Belief(tuple(only))
    size = max(1, evidence.size)
    bounds = evidence.bounds
    lowest = max(1, min(bounds.minimum, size))
    allowed = [n for n in candidates(bounds, size, known) if n >= lowest]
    farthest = _CURVE_FACTOR * max(size, *known)
    drawn = _curve_sizes(min(lowest, *known), min(max(bounds.maximum, size, *known), farthest))
    sizes = sorted({*allowed, *drawn, *known, bounds.maximum})
    posterior = fit(known, noise, sizes, evidence.rates.node)
    bests = _best_sizes(posterior, allowed, evidence.objective.exact)
    best = _quantile(bests, _LOW), _quantile(bests, _HIGH)
    others = {size, max(1, bounds.maximum), *best}
    measured_only = [n for n in known if n not in others]
    shown = sorted({*measured_only[-(THRESHOLDS.stored - len(others)) :], *others})
    expected = {n: _expectation(n, posterior, bests) for n in {*shown, *drawn}}
    believed = [SizeBelief(n, known.get(n), errors.get(n, 0.0), expected[n]) for n in shown]
    return Belief(tuple(believed), best, tuple(expected[n] for n in drawn))


Best = tuple[int, int]
"""A best size, and the smallest one that is nearly as fast."""


def _best_sizes(
    posterior: Posterior, sizes: Sequence[int], objective: Objective
) -> list[tuple[Best, float]]:
    """Return what is best by some of the shapes, with their likelihood, in ascending order."""
    found: dict[Best, float] = {}
    for part in posterior.parts:
        worths = {n: objective.worths(part.means[n], n) for n in sizes}
        for number, weight in enumerate(part.weights):
            best = max(sizes, key=lambda n: worths[n][number])
            least = part.means[best][number] + math.log(1 - THRESHOLDS.noticeable)
            enough = min(n for n in sizes if n <= best and part.means[n][number] >= least)
            found[best, enough] = found.get((best, enough), 0.0) + weight
    return sorted(found.items())


def _expectation(
    size: int, posterior: Posterior, bests: Sequence[tuple[Best, float]]
) -> Expectation:
    """Return what the model expects of a size."""
    rate = posterior.rate(size)
    low, high = posterior.band(size, _LOW, _HIGH)
    small = math.fsum(weight for (_, enough), weight in bests if size < enough)
    waste = 1 + THRESHOLDS.worthwhile
    large = math.fsum(weight for (best, _), weight in bests if best * waste + 1 < size)
    return Expectation(
        size, rate, min(low, rate), max(high, rate), min(1.0, small), min(1.0, large)
    )


def _curve_sizes(low: int, high: int) -> list[int]:
    """Return sizes in equal ratios, because a curve bends most where it is small."""
    steps = CURVE_POINTS - 1
    return sorted({round(low * (high / low) ** (step / steps)) for step in range(CURVE_POINTS)})


def _quantile(bests: Sequence[tuple[Best, float]], likelihood: float) -> int:
    """Return the size that the best one does not exceed with this likelihood."""
    below = 0.0
    for (best, _), weight in bests:
        below += weight
        if below > likelihood:
            return best
    return bests[-1][0][0]


def outcome(memory: ScalingMemory, role: str) -> str:
    """Return the changes of a role's members and their results; empty if there were none."""
    peaks = memory.resources.peaks.get(role, RolePeaks())
    texts = []
    if peaks.before_lowering is not None:
        cpu, limit = peaks.before_lowering
        texts.append(f"lowered: each had {cpu:g} cores and {mib(limit)}")
    elif peaks.keeps_resources:
        texts.append("was lowered and needed it: has it back, and is not lowered again")
    if peaks.raised_memory:
        text = f"memory raised to {mib(peaks.raised_memory)}"
        if peaks.fills_memory:
            text += ": the program fills it, so it gets no more"
        elif peaks.memory_has_room:
            text += ": that is enough"
        texts.append(text)
    servers = memory.servers
    trial = servers.trial
    if trial is not None and trial.role == role:
        before = f"{trial.servers_before} members"
        if not trial.servers_before:
            before = f"{trial.cores_before:g} cores"
        return "; ".join([*texts, f"has more than {before}: whether that helps is being measured"])
    if role in servers.failed_cpu:
        texts.append("more CPU did not help")
    if role in servers.failed_servers:
        texts.append("more members did not help")
    return "; ".join(texts)
