"""The first plan of a job, by what earlier jobs of its profile needed."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.candidate_sizes import allowed
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measurements import begin_search, with_settled
from elasticjob_master.core.autoscale.profile import MOST_JOBS, ProfiledJob
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    RolePeaks,
    ScalingMemory,
)


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
    settled = None
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
            settled = earlier
    after = begin_search(memory, size)
    if settled is not None:
        after = after.with_rates(by_size={size: MeasuredRate(settled.rate, at=now.wall)})
        after = with_settled(after, size, at_maximum=size >= now.bounds.maximum)
        after = after.with_search(inherited=settled.inherited + 1)
    # The first measurement shows the setting, which must not begin another search.
    after = after.with_servers(rates_stay_valid=bool(now.setting))
    decision = ScalingDecision(reason, after, size=size if size != now.size else None)
    decision = needs.with_requests(decision, peaks, now)
    return decision if decision.reason else None
