"""Computes how long a plan that has begun still waits for its new members."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time

from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling import disruption

SECONDS_BESIDE_DISRUPTION = 30
"""Seconds that new members have to find a node while a plan about leaving nodes waits.

New members that have none may never get one, and the pods of that plan are soon deleted.
"""


def time_left(
    observed: Observed, plan: ScalePlan, not_ready: Sequence[MemberKey], now: float
) -> tuple[float, str]:
    """Return the seconds that the plan may still wait, and the limit as users read it.

    Args:
        observed: the job and its plans.
        plan: a plan that executes.
        not_ready: its new members that are not ready; empty if it waits for something else.
        now: seconds since the epoch.
    """
    times = [plan.status.execution_time, *(move.since for move in plan.status.migrations)]
    since = parse_time(max(time for time in times if time is not None))
    seconds = plan.spec.timeout_seconds
    limit = f"timeoutSeconds {seconds}"
    if seconds > SECONDS_BESIDE_DISRUPTION and (urgent := _waiting(observed, not_ready, now)):
        seconds = SECONDS_BESIDE_DISRUPTION
        limit = f"{seconds} s, because ScalePlan {urgent} waits"
    return since + seconds - now, limit


def _waiting(observed: Observed, not_ready: Sequence[MemberKey], now: float) -> str:
    """Return the Disruption plan that waits while no new member has a node; empty for none."""
    pods = (pod for role, index in not_ready for pod in observed.pods_of(role).at(index))
    if not not_ready or any(pod.spec.node_name for pod in pods):
        return ""
    return disruption.needed_plan(observed, now)
