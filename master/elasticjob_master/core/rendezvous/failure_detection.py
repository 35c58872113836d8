"""Finds the members that are lost or late, and those at fault when processes fail.

When one process of a world fails, the others soon fail too, because they wait for it. Only the
first one is at fault, or those that others cannot have brought down: SIGKILL has ended the process,
or the node is broken. The time of the failure counts and not that of its report, because below
torchrun all members of a world end at once.

What has happened is known when each member has said what its process is: ended, or out of the
broken world. A process that says neither, such as one that waits in a collective, is waited for
only for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api import names

from elasticjob_master.core.rendezvous import node_check, notified_processes
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

_TIMEOUT_CHECK_SECONDS = 0.5
"""The time between two checks of all members for expired deadlines."""


def handle_timeouts(state: RendezvousState, now: float) -> list[Command]:
    """Remove lost members, mark suspected ones, and stop waiting for overdue exit reports."""
    if now - state.timeouts_checked_at < _TIMEOUT_CHECK_SECONDS:
        return []
    state.timeouts_checked_at = now
    commands: list[Command] = []
    heard_after = now - state.timing.suspected
    notifies = any(size.notified for size in (state.sizes or {}).values())
    for member in list(state.members):
        if not notifies and _is_well(member, heard_after):
            continue
        member.suspected = _is_suspected(member, state.timing, now)
        if _is_lost(member, state.timing, now):
            commands += state.remove_member(member)
        elif member.exit_due is not None and now > member.exit_due:
            commands += state.end_process(member)
            state.world_incomplete = True
        elif notifies and state.is_notified(member):
            notified_processes.check_world_taken(state, member, now)
    return commands


def resolve_crashes(state: RendezvousState, now: float) -> None:
    """Decide which members of failed processes have to exit, as soon as that can be known."""
    if not state.census.crashed:
        return
    crashed = sorted(
        (m for m in map(state.members.get, state.census.crashed) if m is not None),
        key=lambda member: member.order,
    )
    at_fault = _members_at_fault(state, crashed, now)
    if at_fault is None:
        return
    for member in crashed:
        member.crashed_at = None
        member.exiting = member in at_fault and not member.retry
        member.crash_excused = member not in at_fault
        if member.exiting and member.node_problem:
            node_check.reject_broken_node(state, member)
        elif member.exiting and member.ends_job:
            state.end_expected = member.identity.key, now + state.timing.job_end
        state.note(member.uid)
    state.world_failed = state.world_failed or any(state.in_world(m.uid) for m in crashed)


def end_broken_world(state: RendezvousState) -> None:
    """End a world that all have left, but for members whose agents are gone, too."""
    if not state.census.left or not state.members.disconnected or state.phase != "training":
        return
    there = [member for member in state.running() if member.disconnected_since is None]
    cut_off = any(member.disconnected_since is not None for member in state.world_members())
    if cut_off and all(member.left for member in there):
        state.world_failed = True


def ends_job(state: RendezvousState, member: Member, exit_code: int) -> bool:
    """Return whether the job ends if a failure with this exit code is the member's own."""
    size = (state.sizes or {}).get(member.identity.role)
    if exit_code == names.EXIT_DRAINED or size is None:
        return False
    action = size.actions.get(exit_code)
    if action == "FailJob" or (action is None and exit_code in names.PERMANENT_FAILURES):
        return True
    return action != "Ignore" and member.identity.index in size.without_restarts


def awaits_end(state: RendezvousState, now: float) -> bool:
    """Return whether the job is expected to end, because of a failure without a restart."""
    return state.end_expected is not None and now < state.end_expected[1]


def _members_at_fault(
    state: RendezvousState, crashed: Sequence[Member], now: float
) -> list[Member] | None:
    """Return the members that have to leave with their process' exit code, once that is known."""
    if state.rules.in_process_elastic:
        # The processes survive the failure of others, so each failure has its own cause.
        return list(crashed)
    if state.world_failed or state.phase in ("reforming", "waiting"):
        return []
    world = state.world_members()
    other_cause = any(m.succeeded or m.disconnected_since is not None for m in world)
    proven = [member for member in crashed if member.killed or member.node_problem]
    known = proven or other_cause
    window = state.timing.proven_window if known else _fault_window(state.timing, crashed)
    reported_at = min(m.crashed_at for m in proven or crashed if m.crashed_at is not None)
    # While another process runs, its failure or the loss of its member may still be the cause.
    others_run = any(m.disconnected_since is None and not m.left for m in state.running())
    others_run &= not other_cause or state.confirmed_at is not None  # or: stop starting the others
    if others_run and now - reported_at < window:
        return None
    if other_cause:
        return []
    if proven:
        return proven
    return [min(crashed, key=lambda member: member.failed_at)]


def _fault_window(timing: Timing, crashed: Sequence[Member]) -> float:
    """Return how long another failure may still be the cause. Those of torchruns come late."""
    late = max(m.crashed_at - m.failed_at for m in crashed if m.crashed_at is not None)
    return min(timing.fault_window + 2 * late, timing.fault_limit)


def _is_well(member: Member, heard_after: float) -> bool:
    """Return whether a connected member was heard of lately, and nothing of it is awaited."""
    return (
        member.last_heard_at >= heard_after
        and member.disconnected_since is None
        and member.stop_due is None
        and member.exit_due is None
        and not member.suspected
    )


def _is_lost(member: Member, timing: Timing, now: float) -> bool:
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


def _is_suspected(member: Member, timing: Timing, now: float) -> bool:
    """Return whether a member was disconnected or silent for `Timing.suspected`."""
    since = member.last_heard_at if member.disconnected_since is None else member.disconnected_since
    return not member.succeeded and now - since > timing.suspected
