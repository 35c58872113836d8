"""The current activity of the auto-scaler, and the reason why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.monitors.view import JobView


@dataclass(frozen=True)
class Activity:
    """The current activity of the auto-scaler.

    Attributes:
        waiting_for: the missing condition for measuring or deciding; empty if none is missing.
        window_part: the part of the present window that has passed, up to 1.
        decision_seconds: the most seconds until the next decision; None if unknown.
    """

    waiting_for: str = ""
    window_part: float = 0.0
    decision_seconds: float | None = None


def present_activity(
    window: MeasurementWindow,
    job: JobView,
    scaling: JobScaling,
    now: float,
    *,
    plan_requested: bool,
) -> Activity:
    """Return what the auto-scaler does, for users.

    `plan_requested`: the plan of an earlier decision is being created.
    """
    missing = missing_for_measurement(job, scaling, available_members(job))
    if missing or window.window_start is None or window.size != scaling.desired:
        return Activity(missing)
    end = window.window_start + scaling.cooldown
    part = min(1.0, 1 - (end - now) / scaling.cooldown)
    if part >= 1 and (window.measured_from is None or window.last_growth == window.measured_from):
        return Activity("samples, of which the training reports none", part)
    if not scaling.enabled:
        return Activity("", part)
    if scaling.plan_unfinished or plan_requested:
        return Activity("the end of the present ScalePlan", part)
    return Activity("", part, max(0.0, end - now))


def missing_for_measurement(job: JobView, scaling: JobScaling, available: Sequence[Member]) -> str:
    """Return the reason why the job does not train at its full size; empty if it does."""
    rendezvous = job.rendezvous
    if rendezvous.phase != "training":
        return f"the world to train, which is {rendezvous.phase}"
    if rendezvous.confirmed_at is None:
        return "all processes"
    if job.members.disconnected:
        return f"{len(job.members.disconnected)} members to connect again"
    if job.progress.round != rendezvous.round or not job.progress.reporter_count():
        return "the first step of the present world"
    present = sum(member.identity.role == scaling.role for member in available)
    if present != scaling.desired:
        return f"{scaling.desired} members, of which {present} are available"
    return ""


def available_members(job: JobView) -> list[Member]:
    """Return the members of the present world that are available, by rank."""
    members = map(job.members.get, job.rendezvous.world)
    return [member for member in members if member is not None and member.available]
