"""What the auto-scaler does at present, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.monitors.view import JobView


@dataclass(frozen=True)
class Activity:
    """What the auto-scaler does at present.

    Attributes:
        waiting_for: what it needs to measure or to decide; empty: nothing.
        window_part: how much of the present window is over, up to 1.
        decision_seconds: the most seconds until its end, when it decides; None: not known.
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
    """Return what the auto-scaler does, for people.

    Args:
        window: what it measures.
        job: the job that it measures.
        scaling: how the job may be scaled.
        now: the clock of all decisions.
        plan_requested: a plan of an earlier decision is being created.
    """
    missing = awaited(job, scaling, available_members(job))
    if missing or window.window_start is None or window.size != scaling.desired:
        return Activity(missing)
    end = window.window_start + scaling.cooldown
    part = min(1.0, 1 - (end - now) / scaling.cooldown)
    if part >= 1 and (window.measured_from is None or window.last_growth == window.measured_from):
        return Activity("samples, of which the training reports none", part)
    if scaling.enabled and (scaling.plan_unfinished or plan_requested):
        return Activity("the end of the present ScalePlan", part)
    return Activity("", part, max(0.0, end - now) if scaling.enabled else None)


def awaited(job: JobView, scaling: JobScaling, available: list[Member]) -> str:
    """Return what is missing for the whole job to train at its size.

    Empty, if everything is in place.
    """
    rendezvous = job.rendezvous
    if rendezvous.phase != "training" or rendezvous.confirmed_at is None:
        return (
            f"the world to train, which is {rendezvous.phase}"
            if rendezvous.phase != "training"
            else "all processes"
        )
    if job.members.disconnected:
        return f"{len(job.members.disconnected)} members to connect again"
    if job.progress.round != rendezvous.round or not job.progress.reporter_count():
        return "the first step of the present world"
    there = sum(m.identity.role == scaling.role for m in available)
    return (
        "" if there == scaling.desired else f"{scaling.desired} members, of which {there} are there"
    )


def available_members(job: JobView) -> list[Member]:
    """Return the members of the present world that are available, by rank."""
    return [m for m in map(job.members.get, job.rendezvous.world) if m is not None and m.available]
