"""The first plan of a job whose profile says what earlier jobs needed, and what the first measurement makes of it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.candidate_sizes import allowed
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measured_worth import measured_text
from elasticjob_master.core.autoscale.profile import ProfiledJob
from elasticjob_master.core.autoscale.scaling_memory import (
    ExpectedRate,
    RolePeaks,
    ScalingMemory,
    begin_search,
    with_settled,
)

_SAME = 0.15
"""A rate that differs by no more than this part from that of the earlier job is the same."""
MOST_INHERITED = 4
"""After so many jobs that took a size over, one searches by itself: a poor one must not be handed
on for ever.
"""


def first_plan(
    peaks: Mapping[str, RolePeaks],
    earlier: ProfiledJob | None,
    memory: ScalingMemory,
    now: ScalingInputs,
    *,
    objective: str,
) -> ScalingDecision | None:
    """Return with what a job begins; None: the profile says nothing that could be used.

    Args:
        peaks: what members of the roles have used at most.
        earlier: the latest job that has settled at a size.
        memory: nothing is measured in it.
        now: the job's state; its bounds follow from `peaks`.
        objective: what it strives for: a size that was found for another objective is only where to begin.
    """
    size = now.size if earlier is None else allowed(earlier.size, now.bounds)
    requests = needs.requests_of(peaks, now, size)
    if earlier is None and requests is None:
        return None
    expected = None
    texts = [] if requests is None else [requests.text]
    if earlier is not None:
        texts.insert(
            0,
            f"as {earlier.job} needed on {earlier.at}, which settled at {earlier.size} with {earlier.rate:.1f} "
            f"samples/s: begin with {size}",
        )
        comparable = earlier.size == size and earlier.objective == objective and earlier.rate > 0
        if comparable and earlier.inherited < MOST_INHERITED:
            expected = ExpectedRate(size, earlier.rate, earlier.job, earlier.inherited)
    # Nothing is measured, so the setting, which is learned with the first measurement, begins no
    # other search.
    after = structs.replace(
        begin_search(memory, size), expected=expected, undoing=bool(now.setting)
    )
    return ScalingDecision(
        "; ".join(texts),
        after,
        size=size if size != now.size else None,
        resources={} if requests is None else requests.resources,
        replace=() if requests is None else requests.replace,
    )


def compared(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | ScalingMemory:
    """Settle if the job trains as fast as the earlier one did at this size.

    Else return the memory to search with.
    """
    expected = memory.expected
    if expected is None or memory.settled is not None:
        return memory
    if expected.size != now.size:
        return structs.replace(memory, expected=None)
    facts = (
        f"{measured_text(memory, now.size, now)}, {expected.job} had trained {expected.rate:.1f}"
    )
    if not now.window_is_over:
        return ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    memory = structs.replace(memory, expected=None)
    if abs(memory.rates[now.size] / expected.rate - 1) > _SAME:
        return memory
    bounded = now.size >= now.bounds.maximum
    settled = structs.replace(
        with_settled(memory, now.size, bounded=bounded), inherited=expected.inherited + 1
    )
    return ScalingDecision(f"{facts}: it is the same; settled at {now.size}", settled)
