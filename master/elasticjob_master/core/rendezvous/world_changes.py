"""The phases of a world and the transitions between them.

    waiting -> training: enough members are there, the join window has closed, and no process runs (`_form_world`).
    training -> reforming: the world has failed or is incomplete, a member drains, or joiners are ready.
    reforming -> waiting: no connected member of the world runs a process any more that has to end.
    training -> finishing: a member has finished successfully (done by `Rendezvous.process_exited`).
    finishing -> waiting: no member of the world runs a process any more, and no single role decides about the success.
    finishing -> reforming: the world has failed, and its processes do not end by themselves in time.

With an in-process elastic framework membership changes do not lead to reforming: it stays in
training, and the next world is formed while the processes of the last one run. The same holds for
the processes of single roles that are kept or notified. Where the master plays Horovod's elastic
driver, `elastic_driver` decides about that.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous import elastic_driver, world_formation
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def apply_transitions(job: RendezvousState, now: float) -> None:
    """Make the transitions that the facts allow now, if any."""
    if job.rules.elastic_driver and job.finished_at is not None:
        elastic_driver.let_latecomers_go(job)
    if job.rules.elastic_driver and job.phase in ("training", "finishing"):
        elastic_driver.advance(job, now)
    elif job.phase == "training":
        _confirm_world(job, now)
        if job.rules.in_process_elastic:
            _change_running_world(job, now)
        elif job.world_failed or job.world_incomplete or _membership_change_due(job, now):
            job.phase = "reforming"
    elif job.phase == "finishing":
        _leave_finishing(job, now)
    if job.phase == "reforming":
        job.stop_without_grace = job.stop_without_grace or job.world_failed
        if not any(job.running()):
            job.phase = "waiting"
    if job.phase == "waiting" and _can_form_world(job, now):
        _form_world(job, now)


def _membership_change_due(job: RendezvousState, now: float) -> bool:
    """Return whether a member has to leave the world, or joiners have waited for each other long enough."""
    if any(m.draining_since is not None for m in job.world_members()):
        return True
    joiners = job.joiners() if job.confirmed_at is not None else []
    if not joiners or not job.joins_settled(now):
        return False
    # Such as the first of a role that was added: until there are enough of it, the present world
    # trains on.
    if not world_formation.has_enough_members(
        job.counted_members(), job.sizes or {}, all_desired=False
    ):
        return False
    # While nothing can be stored no other world can be started, so the present one trains on until
    # a write that began after they had joined has succeeded.
    storable = not job.shared_state or job.stored_at >= max(
        member.joined_at or 0.0 for member in joiners
    )
    job.store_needed = job.store_needed or not storable
    return storable


def _change_running_world(job: RendezvousState, now: float) -> None:
    """Form the next world of an in-process elastic framework, if its members have changed, while it trains."""
    if job.confirmed_at is None or now - (job.formed_at or 0.0) < job.timing.world_interval:
        return
    present = {
        m.uid for m in job.members if m.available or (m.uid in job.world_uids and not m.leaving)
    }
    if not present:
        return
    changed = present != job.world_uids and (present < job.world_uids or job.joins_settled(now))
    if changed or any(_needs_process(job, m) for m in job.world_members()):
        _form_world(job, now)


def _needs_process(job: RendezvousState, member: Member) -> bool:
    """Return whether a member's process has ended early: only a new world gives it another one."""
    ended = (
        not member.process_round and member.last_round >= job.round and member.crashed_at is None
    )
    return ended and member.available


def _leave_finishing(job: RendezvousState, now: float) -> None:
    if not any(m.process_round for m in job.world_members()):
        if job.rules.deciding_role is None:
            job.phase = "waiting"
    elif (
        job.world_failed
        and job.finished_at is not None
        and now - job.finished_at > job.timing.finishing
    ):
        job.phase = "reforming"


def _can_form_world(job: RendezvousState, now: float) -> bool:
    if job.sizes is None or (job.finished_at is not None and job.rules.deciding_role is not None):
        return False
    if (
        job.reconnect_deadline is not None
        and now < job.reconnect_deadline
        and job.members.disconnected
    ):
        return False
    present = [m for m in job.members if m.available]
    if not present or any(m.crashed_at is not None for m in present):
        return False
    if any(m.process_round and not job.keeps_process(m) for m in present):
        return False  # a process of an earlier world is still being stopped
    if job.finished_at is not None:
        # members that are late, or failed beside a finished one, finish from the last checkpoint
        return True
    all_desired = job.rules.all_ready and job.round == 0
    enough = world_formation.has_enough_members(
        job.counted_members(), job.sizes, all_desired=all_desired
    )
    return enough and job.joins_settled(now)


def _form_world(job: RendezvousState, now: float) -> None:
    """Begin the next round with the available members.

    The processes of an in-process elastic world go on, also of members that are disconnected at the
    moment.
    """
    elastic = job.rules.in_process_elastic and not job.rules.elastic_driver
    members = [
        m
        for m in job.members
        if m.available or (elastic and m.uid in job.world_uids and not m.leaving)
    ]
    job.form_world(members, now)


def _confirm_world(job: RendezvousState, now: float) -> None:
    """Confirm the world when all its members run their processes, or when the start has taken too long."""
    if job.confirmed_at is None and job.formed_at is not None:
        started = all(
            m.started or m.crashed_at is not None or m.leaving for m in job.world_members()
        )
        if started or now - job.formed_at > job.timing.start:
            job.confirmed_at = now
