"""The state that the auto-scaler keeps across worlds and across restarts of the master.

Each part belongs to one group of rules. The master stores all parts together as one flat JSON
object, so every stored name is unique. A field keeps its stored name when it is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, TypeVar

import msgspec
from msgspec import field
from msgspec.structs import replace

from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

T = TypeVar("T")


class MeasuredRate(msgspec.Struct, frozen=True):
    """The throughput measured at one size.

    Attributes:
        mean: samples per second, the mean of the windows measured at this size.
        weight: the number of windows in the mean. A part of a window counts as that part.
        at: when the size was last measured, in seconds since the epoch; 0 if unknown.
    """

    mean: float
    weight: float = 1.0
    at: float = 0.0


class NodeSize(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the pods have shown of the nodes' size.

    Attributes:
        members: the most members of the scaled role on one node; 0 if unknown.
        is_full: there were others on a second node, so such a node has no room for more.
    """

    members: int = 0
    is_full: bool = False

    def of(self, supposed: int) -> int:
        """Return the members of a node: the supposed number, unless the pods have shown another."""
        if self.is_full:
            return self.members
        while supposed < self.members:
            supposed *= 2
        return supposed


UNKNOWN_NODE = NodeSize()


class MeasuredRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The measured throughput and cost of rescales.

    Attributes:
        by_size: the rates by size; the size measured last comes last.
        setting: identifies what else the rates depend on, such as the parameter servers' CPU.
        strays: the latest consecutive rates of the present size that are far from its mean.
        noise: the standard deviation of repeated windows, relative to the rate.
        repeats: the number of repeated windows behind `noise`.
        rescale_costs: seconds of training that each of the last rescales cost.
        node: where nodes end.
    """

    by_size: Mapping[int, MeasuredRate] = {}
    setting: str = ""
    strays: tuple[float, ...] = ()
    noise: float = THRESHOLDS.noticeable
    repeats: int = 0
    rescale_costs: tuple[float, ...] = field(name="costs", default=())
    node: NodeSize = UNKNOWN_NODE

    @property
    def rescale_seconds(self) -> float:
        """Seconds of training that a rescale costs."""
        return median(self.rescale_costs or (THRESHOLDS.unknown_rescale_seconds,))

    def mean(self, size: int) -> float:
        """Return the samples per second at a measured size."""
        return self.by_size[size].mean


class SizeSearch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the search for the best size.

    Attributes:
        requested_size: the size that was requested last, or with which the search began.
        settled_size: the size that the search found; None while it runs.
        at_maximum: the settled size was the largest allowed one, so a larger one may be better.
        settled_rate: samples per second of the settled size when the search ended.
        needed_rate: samples per second that the finish time needed then; 0 without a finish time.
        settled_windows: windows since then, until the next look or comparison with the finish time.
        objective_key: identifies the objective of the search; empty before the first one.
        plans: the number of plans of this search.
        most_plans: the plans that it may make, besides those that go back to a measured size.
        drifted_from: the size at which this search began because the throughput has changed, or
            may have at other sizes; None if it began for another reason.
        unchanged_searches: the number of such searches in a row that ended where they began.
        inherited: the number of jobs in a row that took the settled size over without a search.
    """

    requested_size: int | None = field(name="asked", default=None)
    settled_size: int | None = field(name="settled", default=None)
    at_maximum: bool = field(name="bounded", default=False)
    settled_rate: float = field(name="reference", default=0.0)
    needed_rate: float = field(name="needed", default=0.0)
    settled_windows: int = field(name="waited", default=0)
    objective_key: str = field(name="objective", default="")
    plans: int = field(name="moves", default=0)
    most_plans: int = field(name="most_moves", default=THRESHOLDS.search_plans)
    drifted_from: int | None = None
    unchanged_searches: int = field(name="fruitless", default=0)
    inherited: int = 0

    @property
    def patience(self) -> int:
        """The factor of the wait for the next such search; each one without a result doubles it.

        So a throughput that changes by day and night is not searched for every day.
        """
        return 1 << min(self.unchanged_searches, THRESHOLDS.doublings)


class PlanResults(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of the auto-scaler's plans.

    Attributes:
        last_ended: the number of the latest plan whose end is processed.
        reached_size: the size that a plan reached without all of its pods; None if none was short.
        retry_at: when a larger size may be requested again, in seconds since the epoch.
        pause_seconds: the length of the last pause; each pause is twice as long as the one before.
    """

    last_ended: int = field(name="judged", default=0)
    reached_size: int | None = field(name="had", default=None)
    retry_at: float = 0.0
    pause_seconds: float = field(name="pause", default=0.0)


class ServerTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """More CPU for parameter servers, or more of them, before it is known whether that helps.

    Attributes:
        size: the number of members of the scaled role.
        rate: samples per second before the trial.
        cores_before: the cores that each of these servers had before.
        servers_before: the number of servers before; 0 if the trial gives them more CPU.
        cores_given: the cores that each of these servers got; 0 if an earlier master stored it.
        others: the names of the servers that got no more.
    """

    role: str
    size: int
    rate: float
    cores_before: float = field(name="before")
    servers_before: int = field(name="servers", default=0)
    cores_given: float = field(name="given", default=0.0)
    others: tuple[str, ...] = ()


class FailedTrial(msgspec.Struct, frozen=True):
    """The number of members, and samples per second, at which a trial did not help."""

    size: int
    rate: float


class ServerTrials(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of more CPU for parameter servers, and of more servers.

    Attributes:
        trial: the present trial.
        rates_stay_valid: the next change of the setting does not affect the rates. It takes back
            what did not help, or gives roles their first requests.
        failed_cpu: where more CPU did not help, by role.
        failed_servers: where more servers did not help, by role.
    """

    trial: ServerTrial | None = field(name="relief", default=None)
    rates_stay_valid: bool = field(name="undoing", default=False)
    failed_cpu: Mapping[str, FailedTrial] = {}
    failed_servers: Mapping[str, FailedTrial] = {}


class RolePeaks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that a member of a role has used since the job began, and what came of changes.

    Attributes:
        cpu: the most cores that a member used in one sample.
        window_cpu: the most cores that a member used on average in a window; 0 if unknown.
        memory: the most bytes that a member used in one sample.
        since: the time of the first sample, in seconds since the epoch.
        lowered_at: when CPU or memory were last lowered, in seconds since the epoch.
        before_lowering: cores and bytes of each member before the first lowering; None if nothing
            is lowered.
        keeps_resources: a lowering was wrong, so there is no other one.
        raised_memory: bytes that each member got last to prevent an OOM kill; 0 if never.
        memory_has_room: in a window after that, no member was near its limit.
        fills_memory: the program uses all memory that it gets, so it gets no more.
        grown_at: when the most bytes last grew, in seconds since the epoch.
        tried_memory: bytes that a single member has, before the others get as little; else 0.
        memory_by_size: the most bytes that a member used, by the number of members.
    """

    cpu: float = 0.0
    window_cpu: float = field(name="steady", default=0.0)
    memory: int = 0
    since: float = 0.0
    lowered_at: float = 0.0
    before_lowering: tuple[float, int] | None = field(name="before", default=None)
    keeps_resources: bool = field(name="kept", default=False)
    raised_memory: int = field(name="raised_to", default=0)
    memory_has_room: bool = field(name="roomy", default=False)
    fills_memory: bool = field(name="filled", default=False)
    grown_at: float = 0.0
    tried_memory: int = 0
    memory_by_size: Mapping[int, int] = {}


class ResourceUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The CPU and memory that the members of each role need.

    Attributes:
        retry_at: when CPU and memory may be changed again after a failed plan, in seconds since the
            epoch.
        peaks: the most that members have used, by role.
    """

    retry_at: float = field(name="resources_at", default=0.0)
    peaks: Mapping[str, RolePeaks] = {}


class ScalingMemory(msgspec.Struct, frozen=True):
    """All of the state, by the rules that it belongs to."""

    rates: MeasuredRates = MeasuredRates()
    search: SizeSearch = SizeSearch()
    plans: PlanResults = PlanResults()
    servers: ServerTrials = ServerTrials()
    resources: ResourceUse = ResourceUse()

    def with_rates(self, **changes: Any) -> ScalingMemory:
        """Return the memory with other fields of `rates`."""
        return replace(self, rates=replace(self.rates, **changes))

    def with_search(self, **changes: Any) -> ScalingMemory:
        """Return the memory with other fields of `search`."""
        return replace(self, search=replace(self.search, **changes))

    def with_servers(self, **changes: Any) -> ScalingMemory:
        """Return the memory with other fields of `servers`."""
        return replace(self, servers=replace(self.servers, **changes))

    def with_peaks(self, role: str, peaks: RolePeaks) -> ScalingMemory:
        """Return the memory with other peaks of one role."""
        others = self.resources.peaks
        return replace(self, resources=replace(self.resources, peaks={**others, role: peaks}))


class _StoredRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The measured rates as they are stored: each attribute by size."""

    rates: dict[int, float] = {}
    weights: dict[int, float] = {}
    times: dict[int, float] = {}


def stored(memory: ScalingMemory) -> dict[str, Any]:
    """Return the memory as one flat JSON object."""
    by_size = memory.rates.by_size
    columns = _StoredRates(
        rates={size: rate.mean for size, rate in by_size.items()},
        weights={size: rate.weight for size, rate in by_size.items()},
        times={size: rate.at for size, rate in by_size.items()},
    )
    flat: dict[str, Any] = {}
    parts = (memory.search, memory.plans, memory.servers, memory.resources)
    for part in (columns, replace(memory.rates, by_size={}), *parts):
        flat.update(msgspec.to_builtins(part, str_keys=True))
    return flat


def restored(flat: Mapping[str, Any]) -> ScalingMemory:
    """Return the memory that was stored; a missing field has its default.

    Raises:
        msgspec.ValidationError: a field has another type.
    """
    columns = msgspec.convert(flat, _StoredRates, str_keys=True)
    by_size = {
        size: MeasuredRate(mean, columns.weights.get(size, 1.0), columns.times.get(size, 0.0))
        for size, mean in columns.rates.items()
    }

    def part(kind: type[T]) -> T:
        return msgspec.convert(flat, kind, str_keys=True)

    return ScalingMemory(
        rates=replace(part(MeasuredRates), by_size=by_size),
        search=part(SizeSearch),
        plans=part(PlanResults),
        servers=part(ServerTrials),
        resources=part(ResourceUse),
    )
