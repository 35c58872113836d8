"""Whose fault it is when processes fail: one that dies for the loss of another is not to blame."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import Timing


def members_at_fault(
    crashed: Sequence[Member], *, alone: bool, excused: bool, in_process_elastic: bool, timing: Timing, now: float
) -> list[Member] | None:
    """Return who has to leave with its process' exit code; None: it is too early to tell.

    Args:
        crashed: the members whose processes have failed, at least one.
        alone: the world had one member.
        excused: another member was lost or has finished, or the world is being stopped anyway: reason enough to fail.
        in_process_elastic: the framework survives the failure of others, so everybody fails for reasons of its own.
        timing: the job's times.
        now: the present time.
    """
    if in_process_elastic:
        return list(crashed)
    if excused:
        return []
    first = min(crashed, key=lambda member: member.crashed_at or 0.0)
    if not alone and now - (first.crashed_at or 0.0) < timing.fault_window:
        return None
    return [first]


def is_lost(member: Member, timing: Timing, now: float) -> bool:
    """Tell whether a member is taken for lost: it is gone or silent for too long, or does not stop.

    One that is away cannot tell that it has stopped, so it has as much time as anybody who is away.
    """
    if member.disconnected_since is not None:
        return not member.succeeded and now - member.disconnected_since > timing.lost
    if member.stop_due is not None and now > member.stop_due:
        return True
    if member.succeeded:
        return False
    return now - member.last_heard_at > timing.silent_factor * timing.lost


def is_suspected(member: Member, timing: Timing, now: float) -> bool:
    """Tell whether a member has been gone or silent for a third of the time after which one that is gone is lost."""
    since = member.last_heard_at if member.disconnected_since is None else member.disconnected_since
    return not member.succeeded and now - since > timing.lost / 3
