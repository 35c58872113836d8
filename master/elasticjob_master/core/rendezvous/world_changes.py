"""When a world ends, and when the next one is formed."""

from __future__ import annotations

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import Situation


def step(job: Situation, now: float) -> None:
    """Take the step that the facts allow now, if any."""
    if job.phase == "training":
        _confirm(job, now)
        if job.rules.adapts_itself:
            _extend(job, now)
        elif job.broken or job.uneven or _change_due(job, now):
            job.phase = "reforming"
    elif job.phase == "finishing":
        _finish(job, now)
    if job.phase == "reforming":
        job.stop_at_once = job.stop_at_once or job.broken
        if not any(m.process_round and m.away_since is None for m in job.world_members()):
            job.phase = "waiting"
    if job.phase == "waiting" and _can_form(job, now):
        _form(job, now)


def _change_due(job: Situation, now: float) -> bool:
    if any(m.draining_since is not None for m in job.world_members()):
        return True
    joiners = job.joiners() if job.confirmed_at is not None else []
    return bool(joiners) and job.settled(now)


def _extend(job: Situation, now: float) -> None:
    """Give a framework that adapts itself a new world beside the running one."""
    if job.confirmed_at is None or now - (job.formed_at or 0.0) < job.timing.hold:
        return
    present = {m.uid for m in job.members if m.available or (m.uid in job.inside and not m.leaving)}
    if not present:
        return
    changed = present != job.inside and (present < job.inside or job.settled(now))
    if changed or any(_idle(job, m) for m in job.world_members()):
        _form(job, now)


def _idle(job: Situation, member: Member) -> bool:
    """Tell whether a member's process has ended although it was not to: it gets another one in the next world only."""
    ended = not member.process_round and member.last_round >= job.round and member.crashed_at is None
    return ended and member.available


def _finish(job: Situation, now: float) -> None:
    if not any(m.process_round for m in job.world_members()):
        if job.rules.deciding_role is None:
            job.phase = "waiting"
    elif job.broken and job.finished_at is not None and now - job.finished_at > job.timing.finishing:
        job.phase = "reforming"


def _can_form(job: Situation, now: float) -> bool:
    if job.sizes is None or (job.finished_at is not None and job.rules.deciding_role is not None):
        return False
    if job.resume_until is not None and now < job.resume_until and job.members.away:
        return False
    present = [m for m in job.members if m.available]
    if not present or any(m.crashed_at is not None for m in present):
        return False
    if not job.rules.adapts_itself and any(m.process_round for m in present):
        return False  # a process of an earlier world is still being stopped
    if job.finished_at is not None:
        return True  # who came too late, or failed beside a finished one, finishes from the last checkpoint
    all_desired = job.rules.all_ready and job.round == 0
    return world_formation.enough(job.counted(), job.sizes, all_desired=all_desired) and job.settled(now)


def _form(job: Situation, now: float) -> None:
    """Make the next world."""
    adapts = job.rules.adapts_itself
    kept = [m for m in job.members if m.available or (adapts and m.uid in job.inside and not m.leaving)]
    job.set_world(world_formation.order(job.world, kept))
    job.round += 1 + job.forgotten
    job.forgotten = 0
    job.phase = "training"
    job.formed_at, job.confirmed_at = now, None
    job.broken = job.uneven = job.hurt = job.success = job.stop_at_once = False


def _confirm(job: Situation, now: float) -> None:
    if job.confirmed_at is None and job.formed_at is not None:
        started = all(m.started or m.crashed_at is not None or m.leaving for m in job.world_members())
        if started or now - job.formed_at > job.timing.start:
            job.confirmed_at = now
