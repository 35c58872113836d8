"""Replacing a straggler by a new pod: whom, when it pays, and when it would do harm.

That a member is slow does not say why. Its node may be; or its work is more than that of the
others, as of a rank that saves, and then whoever gets that work is as slow. So at most one member
at a time is replaced, a few in the life of the job, with pauses that double, and none whose work
has been done as slowly on another node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_master.core.stragglers import Slowness

LASTING_FACTOR = 5
"""A straggler is replaced when it was slow for so many times `stragglerSeconds`."""
_MOST_PART = 4
"""If more than one in so many members is slow (and more than one), it is not their nodes."""
_WORTH = 2.0
"""The time saved must be so many times the cost, as the next node may be slow, too."""
_FIRST_PAUSE = 600.0
_LONGEST_PAUSE = 6 * 3600.0


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """A straggler that is being replaced, or was.

    Attributes:
        plan: the number of the ScalePlan.
        pod: its name.
        role: its role.
        index: its index.
        rank: its rank in the world; -1: not known.
        node: where it ran; empty: not known.
        since: since when it was slow, in seconds since the epoch.
        replacement: the index of the member that took over; -1: none yet.
    """

    plan: int
    pod: str
    role: str
    index: int
    rank: int = -1
    node: str = ""
    since: float = 0.0
    replacement: int = -1


class ReplacementMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored about replaced stragglers.

    Attributes:
        replaced: those that were, and the one that is being replaced, if one is. A plan that failed is not among them.
        plan: the number of the latest plan.
        ended: that plan has ended.
        plans: how many plans there were, with those that failed; each doubles the pause.
        next_at: no replacement begins before, in seconds since the epoch.
    """

    replaced: tuple[Replaced, ...] = ()
    plan: int = 0
    ended: bool = False
    plans: int = 0
    next_at: float = 0.0


@dataclass(frozen=True)
class Straggler:
    """A member that has been slow for long enough to be replaced.

    Attributes:
        slowness: how slow it is.
        rank: its rank; -1: not known.
        seconds: for how long it has been slow.
        since: from when on, in seconds since the epoch.
        kept: its process goes on when the world changes, and holds what others save.
    """

    slowness: Slowness
    rank: int
    seconds: float
    since: float
    kept: bool = False

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return self.slowness.member.identity.pod_name

    @property
    def step_seconds(self) -> float:
        """Its own time for a step."""
        return self.slowness.member.step_times.step_seconds

    def replaced_by(self, plan: int) -> Replaced:
        """Return what is remembered of it when this plan replaces it."""
        who = self.slowness.member.identity
        return Replaced(
            plan, who.pod_name, who.role, who.index, self.rank, who.node_name, self.since
        )


@dataclass(frozen=True)
class Verdict:
    """What to do about the stragglers.

    Attributes:
        replace: the one to replace; None: nobody.
        reason: why, with the numbers, for users; of a refusal it stays the same as long as nothing changes.
    """

    replace: Straggler | None
    reason: str


def judge(
    memory: ReplacementMemory,
    stragglers: Sequence[Straggler],
    *,
    most: int,
    cost: float,
    horizon: float,
    wall: float,
    said: str = "",
) -> Verdict:
    """Return which of the stragglers to replace, or why none is.

    Args:
        memory: what was done so far.
        stragglers: the members that have been slow for long enough; at least one.
        most: how many may be replaced in the life of the job.
        cost: the seconds of training that a change of the world costs.
        horizon: the seconds of training that remain.
        wall: the present time in seconds since the epoch.
        said: the reason of the last refusal, which stays as long as it holds, whoever is the slowest at present.
    """
    refusals = []
    for straggler in sorted(stragglers, key=lambda each: -each.step_seconds / each.slowness.median):
        if refusal := _refusal(memory, straggler, cost=cost, horizon=horizon):
            refusals.append(refusal)
        elif len(memory.replaced) >= most:
            refusals.append(f"maxStragglerReplacements is {most}, and so many were replaced")
        elif wall < memory.next_at:
            refusals.append(f"the next replacement may begin at {format_time(memory.next_at)}")
        else:
            return Verdict(
                straggler, _reason(straggler, len(memory.replaced) + 1, most, cost, horizon)
            )
    return Verdict(None, said if said in refusals else refusals[0])


def created(memory: ReplacementMemory, replaced: Replaced, wall: float) -> ReplacementMemory:
    """Return the memory when the plan that replaces a straggler exists."""
    plans = memory.plans + 1
    return replace(
        memory,
        replaced=(*memory.replaced, replaced),
        plan=replaced.plan,
        ended=False,
        plans=plans,
        next_at=wall + _pause(plans),
    )


def ended(memory: ReplacementMemory, replacement: int | None, wall: float) -> ReplacementMemory:
    """Return the memory when the latest plan has ended.

    `replacement` is the member that took over, if one has.
    """
    replaced = list(memory.replaced)
    if replacement is None:
        replaced = [each for each in replaced if each.plan != memory.plan]
    else:
        replaced = [
            replace(each, replacement=replacement) if each.plan == memory.plan else each
            for each in replaced
        ]
    return replace(
        memory, replaced=tuple(replaced), ended=True, next_at=wall + _pause(memory.plans)
    )


def _pause(plans: int) -> float:
    """Return the seconds until the next replacement, after so many plans."""
    return float(min(_FIRST_PAUSE * 2.0 ** min(plans - 1, 20), _LONGEST_PAUSE))


def _refusal(
    memory: ReplacementMemory, straggler: Straggler, *, cost: float, horizon: float
) -> str:
    """Return why this straggler is not replaced, whatever else is; empty: nothing forbids it."""
    slow = straggler.slowness
    who = straggler.slowness.member.identity
    if straggler.kept:
        return f"{who.pod_name} keeps its process and what it holds when the world changes (onWorldChange Keep)"
    if slow.stragglers > max(1, slow.members // _MOST_PART):
        return f"{slow.stragglers} of the role {who.role} are slow at the same time, so it is not their nodes"
    for earlier in memory.replaced:
        same_work = who.index == earlier.replacement or (
            straggler.rank >= 0 and straggler.rank == earlier.rank
        )
        same_node = who.node_name and who.node_name == earlier.node
        if same_work and who.role == earlier.role and not same_node:
            return f"{who.pod_name} is as slow as {earlier.pod} on another node: it is the work, not the node"
    if _saved(straggler, horizon) < _WORTH * cost:
        return "the training time saved until the end would not be worth a change of the world"
    return ""


def _saved(straggler: Straggler, horizon: float) -> float:
    """Return the seconds of training that a member as fast as the slowest other one would save."""
    slow = straggler.slowness
    own = straggler.step_seconds
    if slow.member.step_times.own_work:
        return horizon * max(0.0, 1 - slow.slowest_other / own)
    # Who reports no work of its own waits for nobody, so that it slows down only itself.
    return horizon * max(0.0, 1 - slow.median / own) / slow.members


def _reason(straggler: Straggler, number: int, most: int, cost: float, horizon: float) -> str:
    own = straggler.step_seconds
    middle = straggler.slowness.median
    saved = _saved(straggler, horizon)
    return (
        f"{straggler.pod} needs {own:.3g} s for a step, the median of its role {middle:.3g} s, for "
        f"{_duration(straggler.seconds)}: a pod as fast as the others saves {_duration(saved)} of the next "
        f"{_duration(horizon)}, and the change costs {cost:.0f} s; replacement {number} of {most}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
