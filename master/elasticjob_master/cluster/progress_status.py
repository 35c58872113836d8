"""`status.progress` of the ElasticJob, within the bounds of its schema. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elasticjob_api.times import format_time

from elasticjob_master.core.progress import Progress, format_eta, format_rate, format_steps
from elasticjob_master.script_order import ScriptResult

_MOST_PODS = 100
_LONGEST_PROBLEM = 1024
_LONGEST_REASON = 256
_LONGEST_WHY_STALLED = 512


def progress_status(
    progress: Progress,
    now: float,
    *,
    stalled_since: float | None = None,
    why_stalled: str = "",
    stragglers: Sequence[str] = (),
    why_not_replaced: str = "",
    unfit: Mapping[str, str] | None = None,
    script: ScriptResult | None = None,
    process_restarted: str = "",
) -> dict[str, Any]:
    """Return `status.progress`. Before the first reported step it contains findings only."""
    problems: dict[str, Any] = {}
    if stalled_since is not None:
        problems["stalledSince"] = format_time(stalled_since)
        if why_stalled:
            problems["whyStalled"] = why_stalled[:_LONGEST_WHY_STALLED]
    if stragglers:
        problems["stragglers"] = list(stragglers)[:_MOST_PODS]
        if why_not_replaced:
            problems["whyNotReplaced"] = why_not_replaced[:_LONGEST_REASON]
    if unfit:
        problems["unfit"] = {
            pod: unfit[pod][:_LONGEST_PROBLEM] for pod in sorted(unfit)[:_MOST_PODS]
        }
    if process_restarted:
        problems["processRestarted"] = process_restarted[:_LONGEST_REASON]
    if script is not None:
        problems["script"] = {
            "plan": script.plan,
            "exitCode": script.exit_code,
            "message": script.message,
        }
    if progress.reported_at is None:
        return problems
    rate = progress.samples_per_second(now)
    eta = progress.eta_seconds(now)
    reported: dict[str, Any] = {
        "step": progress.step,
        "lastReportTime": format_time(progress.reported_at),
        "metrics": {name: _rounded(value, 6) for name, value in progress.metrics.items()},
        "steps": format_steps(progress.step, progress.total_steps),
    }
    if rate > 0:  # it is 0 between two worlds and after the end
        reported |= {"samplesPerSecond": _rounded(rate), "rate": format_rate(rate)}
    if progress.total_steps:
        reported["totalSteps"] = progress.total_steps
    if eta is not None:
        seconds = math.ceil(min(eta, 1e9))
        reported |= {"etaSeconds": seconds, "eta": format_eta(seconds)}
    return reported | problems


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
