"""Decides whether a straggler is replaced by a new pod.

A member may be slow because of its node. Or it may have more work than the others, like a rank
that saves checkpoints; then its replacement is as slow. So one member at a time is replaced, only a
few in the life of the job, and after pauses that double. A member is not replaced if its work was
as slow on another node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_master.core.stragglers import Slowness

LASTING_FACTOR = 5
"""A straggler is replaced when it was slow for this multiple of `stragglerSeconds`."""
_MOST_PART = 4
"""If several members are slow, and more than one in this number, it is not because of the nodes."""
_WORTH = 2.0
"""The saved time must be this multiple of the cost, because the next node may be slow, too."""
_FIRST_PAUSE = 600.0
_LONGEST_PAUSE = 6 * 3600.0


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """A straggler that is being replaced, or was replaced.

    Attributes:
        rank: the rank in the world; -1: not known.
        node: the node of the pod; empty: not known.
        since: when it became slow, in seconds since the epoch.
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
    """The stored facts about replaced stragglers.

    Attributes:
        replaced: the replaced stragglers, and the one that is being replaced. Those of failed plans
            are not among them.
        plan: the number of the latest plan.
        ended: that plan has ended.
        plans: the number of plans, with failed ones. Each doubles the pause.
        next_at: when the next replacement may begin, in seconds since the epoch.
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
        rank: its rank; -1: not known.
        seconds: the time for which it has been slow.
        since: when it became slow, in seconds since the epoch.
        kept: its process continues when the world changes, and holds state that others save.
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
        """Return the record of its replacement by this plan."""
        who = self.slowness.member.identity
        return Replaced(
            plan, who.pod_name, who.role, who.index, self.rank, who.node_name, self.since
        )


@dataclass(frozen=True)
class Verdict:
    """The decision about the stragglers.

    Attributes:
        replace: the straggler to replace, if any.
        reason: a text for users, with the numbers. The reason of a refusal remains while nothing
            changes.
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
    last_refusal: str = "",
) -> Verdict:
    """Return which of the stragglers to replace, or why none is.

    Args:
        memory: the replacements so far.
        stragglers: the members that have been slow for long enough; at least one.
        most: the number of replacements allowed in the life of the job.
        cost: the seconds of training that a change of the world costs.
        horizon: the seconds of training that remain.
        wall: seconds since the epoch.
        last_refusal: the reason of the last refusal. It remains while it holds, even if another
            member is the slowest now.
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
    if last_refusal in refusals:
        return Verdict(None, last_refusal)
    return Verdict(None, refusals[0])


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
    """Return the seconds until the next replacement, after this number of plans."""
    return float(min(_FIRST_PAUSE * 2.0 ** min(plans - 1, 20), _LONGEST_PAUSE))


def _refusal(
    memory: ReplacementMemory, straggler: Straggler, *, cost: float, horizon: float
) -> str:
    """Return why this straggler must never be replaced, or an empty text."""
    slow = straggler.slowness
    who = straggler.slowness.member.identity
    if straggler.kept:
        kept = "keeps its process and what it holds when the world changes (onWorldChange Keep)"
        return f"{who.pod_name} {kept}"
    if slow.stragglers > max(1, slow.members // _MOST_PART):
        several = f"{slow.stragglers} of the role {who.role} are slow at the same time"
        return f"{several}, so it is not their nodes"
    for earlier in memory.replaced:
        same_work = who.index == earlier.replacement or (
            straggler.rank >= 0 and straggler.rank == earlier.rank
        )
        same_node = who.node_name and who.node_name == earlier.node
        if same_work and who.role == earlier.role and not same_node:
            comparison = f"{who.pod_name} is as slow as {earlier.pod} on another node"
            return f"{comparison}: it is the work, not the node"
    if _saved(straggler, horizon) < _WORTH * cost:
        return "the training time saved until the end would not be worth a change of the world"
    return ""


def _saved(straggler: Straggler, horizon: float) -> float:
    """Return the seconds of training that a member as fast as the slowest other one would save."""
    slow = straggler.slowness
    own = straggler.step_seconds
    if slow.member.step_times.own_work:
        return horizon * max(0.0, 1 - slow.slowest_other / own)
    # A member that reports no own work does not wait for others. It slows down only itself.
    return horizon * max(0.0, 1 - slow.median / own) / slow.members


def _reason(straggler: Straggler, number: int, most: int, cost: float, horizon: float) -> str:
    own = straggler.step_seconds
    middle = straggler.slowness.median
    saved = _saved(straggler, horizon)
    return (
        f"{straggler.pod} needs {own:.3g} s for a step, the median of its role {middle:.3g} s, "
        f"for {_duration(straggler.seconds)}: "
        f"a pod as fast as the others saves {_duration(saved)} of the next {_duration(horizon)}, "
        f"and the change costs {cost:.0f} s; replacement {number} of {most}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
