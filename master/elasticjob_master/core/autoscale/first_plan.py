"""The first plan of a job, by what earlier jobs of its profile needed, and its first measurement."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.candidate_sizes import allowed
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measurements import begin_search, with_settled
from elasticjob_master.core.autoscale.profile import MOST_JOBS, ProfiledJob
from elasticjob_master.core.autoscale.scaling_memory import (
    ExpectedRate,
    Inheritance,
    RolePeaks,
    ScalingMemory,
)
from elasticjob_master.core.autoscale.situation import measured_text
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def first_plan(
    peaks: Mapping[str, RolePeaks],
    earlier: ProfiledJob | None,
    memory: ScalingMemory,
    now: ScalingInputs,
    *,
    objective: str,
) -> ScalingDecision | None:
    """Return the size and the requests with which a job begins; None if the profile has neither.

    Args:
        peaks: the most that members of each role have used in earlier jobs.
        earlier: the latest job that has settled at a size.
        memory: the auto-scaler's state, without measurements.
        now: the job's state; its bounds follow from `peaks`.
        objective: the key of the job's objective.
    """
    size = now.size
    expected = None
    reason = ""
    if earlier is not None:
        size = allowed(earlier.size, now.bounds)
        reason = (
            f"as {earlier.job} needed on {earlier.at}, which settled at {earlier.size} with "
            f"{earlier.rate:.1f} samples/s: begin with {size}"
        )
        # A size found for another objective, or a size taken over too often, is only a beginning.
        same = earlier.size == size and earlier.objective == objective and earlier.rate > 0
        if same and earlier.inherited < MOST_JOBS - 1:
            expected = ExpectedRate(size, earlier.rate, earlier.job, earlier.inherited)
    after = structs.replace(begin_search(memory, size), inheritance=Inheritance(expected))
    # The first measurement shows the setting, which must not begin another search.
    after = after.with_servers(rates_stay_valid=bool(now.setting))
    decision = ScalingDecision(reason, after, size=size if size != now.size else None)
    decision = needs.with_requests(decision, peaks, now)
    return decision if decision.reason else None


def compare_with_earlier_job(
    memory: ScalingMemory, now: ScalingInputs
) -> tuple[ScalingMemory, ScalingDecision | None]:
    """Return the memory after the first window is compared with the earlier job's throughput.

    If both are the same, the search settles, and the decision says so.
    """
    expected = memory.inheritance.expected
    if expected is None or memory.search.settled_size is not None:
        return memory, None
    without = structs.replace(memory, inheritance=Inheritance())
    if expected.size != now.size:
        return without, None
    measured = measured_text(memory, now.size, now)
    facts = f"{measured}, {expected.job} had trained {expected.rate:.1f}"
    if not now.window_is_over:
        return memory, ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    if abs(memory.rates.mean(now.size) / expected.rate - 1) > THRESHOLDS.worthwhile:
        return without, None
    settled = with_settled(memory, now.size, at_maximum=now.size >= now.bounds.maximum)
    inheritance = Inheritance(inherited=expected.inherited + 1)
    settled = structs.replace(settled, inheritance=inheritance)
    reason = f"{facts}: it is the same; settled at {now.size}"
    return settled, ScalingDecision(reason, settled)
