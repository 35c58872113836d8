"""When a world ends, and when the next one is formed."""

from __future__ import annotations

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def apply_transitions(job: RendezvousState, now: float) -> None:
    """Take the step that the facts allow now, if any."""
    if job.phase == "training":
        _confirm(job, now)
        if job.rules.in_process_elastic:
            _extend(job, now)
        elif job.world_failed or job.world_incomplete or _change_due(job, now):
            job.phase = "reforming"
    elif job.phase == "finishing":
        _finish(job, now)
    if job.phase == "reforming":
        job.stop_without_grace = job.stop_without_grace or job.world_failed
        if not any(m.process_round and m.disconnected_since is None for m in job.world_members()):
            job.phase = "waiting"
    if job.phase == "waiting" and _can_form(job, now):
        _form(job, now)


def _change_due(job: RendezvousState, now: float) -> bool:
    if any(m.draining_since is not None for m in job.world_members()):
        return True
    joiners = job.joiners() if job.confirmed_at is not None else []
    return bool(joiners) and job.joins_settled(now)


def _extend(job: RendezvousState, now: float) -> None:
    """Give a framework that adapts itself a new world beside the running one."""
    if job.confirmed_at is None or now - (job.formed_at or 0.0) < job.timing.world_interval:
        return
    present = {m.uid for m in job.members if m.available or (m.uid in job.world_uids and not m.leaving)}
    if not present:
        return
    changed = present != job.world_uids and (present < job.world_uids or job.joins_settled(now))
    if changed or any(_idle(job, m) for m in job.world_members()):
        _form(job, now)


def _idle(job: RendezvousState, member: Member) -> bool:
    """Tell whether a member's process has ended although it was not to: it gets another one in the next world only."""
    ended = not member.process_round and member.last_round >= job.round and member.crashed_at is None
    return ended and member.available


def _finish(job: RendezvousState, now: float) -> None:
    if not any(m.process_round for m in job.world_members()):
        if job.rules.deciding_role is None:
            job.phase = "waiting"
    elif job.world_failed and job.finished_at is not None and now - job.finished_at > job.timing.finishing:
        job.phase = "reforming"


def _can_form(job: RendezvousState, now: float) -> bool:
    if job.sizes is None or (job.finished_at is not None and job.rules.deciding_role is not None):
        return False
    if job.reconnect_deadline is not None and now < job.reconnect_deadline and job.members.disconnected:
        return False
    present = [m for m in job.members if m.available]
    if not present or any(m.crashed_at is not None for m in present):
        return False
    if not job.rules.in_process_elastic and any(m.process_round for m in present):
        return False  # a process of an earlier world is still being stopped
    if job.finished_at is not None:
        return True  # who came too late, or failed beside a finished one, finishes from the last checkpoint
    all_desired = job.rules.all_ready and job.round == 0
    return world_formation.has_enough_members(
        job.counted_members(), job.sizes, all_desired=all_desired
    ) and job.joins_settled(now)


def _form(job: RendezvousState, now: float) -> None:
    """Make the next world."""
    adapts = job.rules.in_process_elastic
    kept = [m for m in job.members if m.available or (adapts and m.uid in job.world_uids and not m.leaving)]
    job.set_world(world_formation.rank_order(job.world, kept))
    job.round += 1 + job.unstored_rounds
    job.unstored_rounds = 0
    job.phase = "training"
    job.formed_at, job.confirmed_at = now, None
    job.world_failed = job.world_incomplete = job.member_lost = job.member_finished = job.stop_without_grace = False


def _confirm(job: RendezvousState, now: float) -> None:
    if job.confirmed_at is None and job.formed_at is not None:
        started = all(m.started or m.crashed_at is not None or m.leaving for m in job.world_members())
        if started or now - job.formed_at > job.timing.start:
            job.confirmed_at = now
