"""Horovod's elastic driver, for jobs without a launcher: which processes meet in which world.

A process keeps its state in memory and continues from world to world. It asks for its place in the
next one (it *joins*) when it has started, when a change was announced to it, at its next commit,
and when the present world has failed. No process is sent its place before all processes of the
world have asked: Horovod's processes end if they have begun to form a world and it fails. So

- a new process is started for the next world, and the change is announced to the others when the
  new process has asked. They train while it imports its packages;
- a world that has begun is not changed before each of its members has its place;
- when the present world has failed, the processes that still have the state continue at once,
  without waiting for new processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def advance(state: RendezvousState, now: float) -> None:
    """Form the next world if one is due, and begin it when all its processes have asked.

    There is a world: the phase is "training" or "finishing".
    """
    if state.sizes is None:
        return
    _begin(state, now)
    _settle(state, now)
    if state.awaits_reconnections(now):
        return
    holders = [m for m in state.members if m.process_round and m.joined_round]
    if holders:
        members = _next_members(state, holders, now)
        if members is not None:
            state.form_world(members, now)
            _begin(state, now)
    elif state.phase == "training" and any(_never_starts(state, uid) for uid in state.world):
        # No member has trained yet: begin again with those that are available.
        state.phase = "reforming"
        state.world_failed = True


def let_latecomers_go(state: RendezvousState) -> None:
    """Let members without the state of the training succeed, because the training has finished."""
    for member in state.members:
        if not member.joined_round and member.available and member.crashed_at is None:
            member.succeeded = True
            state.note(member.uid)


def announced(state: RendezvousState) -> bool:
    """Return whether the present world is to be announced to the processes of the last one."""
    return all(
        m is not None and (m.joined_round or m.joining) for m in map(state.members.get, state.world)
    )


def may_join(state: RendezvousState, member: Member, left_round: int) -> bool:
    """Return whether a process that has asked has a place in the present world.

    `left_round` is the round of the world that the process was in; 0: none.
    """
    return left_round < state.begun_round == state.round and state.in_world(member.uid)


def _begin(state: RendezvousState, now: float) -> None:
    """Begin the present world if all its members have asked, or an earlier master has begun it."""
    if state.begun_round == state.round:
        return
    members = list(state.world_members())
    has_begun = any(m.joined_round == state.round and not m.joining for m in members)
    complete = len(members) == len(state.world) and all(_is_ready(state, m) for m in members)
    if has_begun or (complete and state.may_start(now)):
        state.begun_round = state.round
    elif complete:
        state.store_needed = True


def _is_ready(state: RendezvousState, member: Member) -> bool:
    """Return whether a process waits for its place in the present world, or has it.

    A process that has left this world needs the next one.
    """
    if member.joining:
        started_for_it = bool(member.joined_round) or member.process_round == state.round
        return started_for_it and member.joined_round < state.round
    return member.joined_round == state.round


def _settle(state: RendezvousState, now: float) -> None:
    """Confirm the present world when each of its running processes has its place."""
    if state.confirmed_at is not None or state.begun_round != state.round:
        return
    if all(m.joined_round >= state.round or not m.process_round for m in state.world_members()):
        state.confirmed_at = now
        state.settled_uids = state.world_uids


def _next_members(state: RendezvousState, holders: list[Member], now: float) -> list[Member] | None:
    """Return the members of the next world; None if the present world stays."""
    if state.begun_round == state.round and state.confirmed_at is None:
        return None
    # Leaving members stay until others have the state.
    base = [m for m in holders if not m.leaving] or holders
    new = [m for m in state.world_members() if not m.joined_round and _is_starting(state, m)]
    complete = _uids((*base, *new)) == state.world_uids
    failed = any(m.joining and m.joined_round == state.round for m in base)
    stranded = failed or (any(m.joining for m in base) and not all(m.joining for m in new))
    if state.finished_at is not None:
        return base if stranded else None  # the others end by themselves
    if complete and not stranded:
        if state.confirmed_at is None:
            return None
        return _with_joiners(state, base, now)
    if not stranded and _uids(base) == state.settled_uids:
        # A new process has ended that was not announced to the others.
        return _with_joiners(state, base, now)
    if _enough(state, base):
        return base
    if complete and not failed:
        return None  # too few without the new processes, which are starting
    more = [*base, *(m for m in state.members if m.available and not m.process_round)]
    return more if _enough(state, more) else None


def _with_joiners(state: RendezvousState, base: list[Member], now: float) -> list[Member] | None:
    """Return a world enlarged by the members that have joined; None if no member has."""
    joiners = _joiners(state, now)
    return [*base, *joiners] if joiners else None


def _joiners(state: RendezvousState, now: float) -> list[Member]:
    """Return the members that can be added to the present world now."""
    if not state.joins_settled(now):
        return []
    free = [m for m in state.members if m.available and not m.process_round]
    holders_stay = any(m.process_round and m.joined_round and not m.leaving for m in state.members)
    if not holders_stay:
        return free
    return [m for m in free if not state.is_successor(m)]


def _is_starting(state: RendezvousState, member: Member) -> bool:
    """Return whether a process of a member without the state is starting for the present world."""
    if member.process_round:
        return member.process_round == state.round and not member.leaving
    return member.available and member.last_round < state.round


def _never_starts(state: RendezvousState, uid: str) -> bool:
    member = state.members.get(uid)
    return member is None or not _is_starting(state, member)


def _enough(state: RendezvousState, members: Iterable[Member]) -> bool:
    succeeded = (m for m in state.members if m.succeeded)
    counts = world_formation.count_by_role((*members, *succeeded))
    return world_formation.has_enough_members(counts, state.sizes or {}, all_desired=False)


def _uids(members: Collection[Member]) -> frozenset[str]:
    return frozenset(m.uid for m in members)
