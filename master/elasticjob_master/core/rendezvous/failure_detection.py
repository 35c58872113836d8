"""Which members are lost or late, and which are at fault when processes fail.

When one process of a world fails, the others soon fail too, because they wait for it. Only the
first one is at fault. The time of the failure counts and not that of its report, because below
torchrun all members of a world end at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_master.core.rendezvous import notified_processes
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

_TIMEOUT_CHECK_SECONDS = 0.5
"""Between two checks of all members for expired deadlines."""


def handle_timeouts(state: RendezvousState, now: float) -> list[Command]:
    """Remove lost members, mark suspected ones, and stop waiting for overdue exit reports."""
    if now - state.timeouts_checked_at < _TIMEOUT_CHECK_SECONDS:
        return []
    state.timeouts_checked_at = now
    commands: list[Command] = []
    for member in list(state.members):
        member.suspected = is_suspected(member, state.timing, now)
        if is_lost(member, state.timing, now):
            commands += state.remove_member(member)
        elif member.exit_due is not None and now > member.exit_due:
            commands += state.end_process(member)
            state.world_incomplete = True
        elif state.is_notified(member):
            notified_processes.check_world_taken(state, member, now)
    return commands


def resolve_crashes(state: RendezvousState, now: float) -> None:
    """Decide which members of failed processes have to exit, as soon as that can be known."""
    crashed = [m for m in state.members if m.crashed_at is not None]
    if not crashed:
        return
    world = list(state.world_members())
    other_cause = (
        state.world_failed
        or state.phase in ("reforming", "waiting")
        or any(m.succeeded or m.disconnected_since is not None for m in world)
    )
    at_fault = members_at_fault(
        crashed,
        single_member=len(state.world) <= 1,
        other_cause=other_cause,
        in_process_elastic=state.rules.in_process_elastic,
        timing=state.timing,
        now=now,
    )
    if at_fault is None:
        return
    for member in crashed:
        member.crashed_at = None
        member.exiting = member in at_fault and not member.retry
        member.crash_excused = member not in at_fault
    state.world_failed = True


def members_at_fault(
    crashed: Sequence[Member],
    *,
    single_member: bool,
    other_cause: bool,
    in_process_elastic: bool,
    timing: Timing,
    now: float,
) -> list[Member] | None:
    """Return the members that have to leave with their process' exit code.

    None: it is too early to decide.

    Args:
        crashed: the members whose processes have failed, at least one.
        single_member: the world had one member.
        other_cause: another member was lost or has finished, or the world is being stopped. That
            explains the failures.
        in_process_elastic: the processes survive the failure of others, so each failure has its own
            cause.
        timing: the job's timeouts.
        now: the present time.
    """
    if in_process_elastic:
        return list(crashed)
    if other_cause:
        return []
    reported_at = min(member.crashed_at or 0.0 for member in crashed)
    if not single_member and now - reported_at < timing.fault_window:
        return None
    return [min(crashed, key=lambda member: member.failed_at)]


def is_lost(member: Member, timing: Timing, now: float) -> bool:
    """Return whether a member was disconnected or silent for too long, or does not stop.

    A disconnected member cannot report that it has stopped, so only the time since its
    disconnection counts.
    """
    if member.disconnected_since is not None:
        return not member.succeeded and now - member.disconnected_since > timing.lost
    if member.stop_due is not None and now > member.stop_due:
        return True
    if member.succeeded:
        return False
    return now - member.last_heard_at > timing.silent_factor * timing.lost


def is_suspected(member: Member, timing: Timing, now: float) -> bool:
    """Return whether a member was disconnected or silent for a third of `Timing.lost`."""
    since = member.last_heard_at if member.disconnected_since is None else member.disconnected_since
    return not member.succeeded and now - since > timing.lost / 3
