"""Checks that a calling process belongs to the present world and may change data and checkpoints.

A world is formed without members that are lost or cut off. Their processes may run for a while and
call the master as soon as they reach it again.
"""

from __future__ import annotations

from elasticjob_api.refusals import NotCurrent, NotReadyYet

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def runs(member: Member | None, process_round: int) -> bool:
    """Return whether a member runs the process of a round; 0: any process."""
    return not process_round or (member is not None and member.process_round == process_round)


def check_round(process_round: int, present: int) -> None:
    """Refuse a process of another round than the present one.

    Raises:
        NotReadyYet: an earlier master has begun a later round.
        NotCurrent: the round is over.
    """
    if process_round > present:
        raise NotReadyYet(f"round is {process_round}; this master knows of {present} so far")
    if process_round < present:
        raise NotCurrent(f"round is {process_round}; it is over, the present one is {present}")


def check_process(state: RendezvousState, uid: str, process_round: int) -> Member:
    """Return the member whose process calls.

    Raises:
        NotReadyYet: the member is not registered or has not reported yet what it runs.
        NotCurrent: the process has ended.
    """
    member = state.members.get(uid)
    if member is None:
        raise NotReadyYet(f"pod UID {uid[:128]!r} is no member of this job; call Register first")
    pod = member.identity.pod_name
    if not runs(member, process_round):
        if member.disconnected_since is not None:
            raise NotReadyYet(
                f"round is {process_round}; pod {pod} has not told yet what runs there"
            )
        raise NotCurrent(
            f"round is {process_round}; pod {pod} runs no process of that round any more"
        )
    return member


def check_current(state: RendezvousState, uid: str, process_round: int) -> Member:
    """Return the member whose process calls, which must be one of the present world.

    A process of round 0 stands for any process of the member.

    Raises:
        NotReadyYet: the member has not reported yet what it runs, or the next world of its process
            is not formed yet.
        NotCurrent: the process has ended, or the others train without it.
    """
    member = check_process(state, uid, process_round)
    pod = member.identity.pod_name
    if process_round and (state.rules.in_process_elastic or state.continues(member)):
        # Its process continues from world to world and reports the round of its start.
        if not state.in_world(uid):
            reason = f"pod {pod} is not in the world of round {state.round}"
            raise NotCurrent(reason) if member.leaving else NotReadyYet(reason)
    elif 0 < process_round < state.round:
        check_round(process_round, state.round)
    return member


def check_may_commit(state: RendezvousState, uid: str, process_round: int) -> None:
    """Check that the process of a round may make a checkpoint final now.

    Raises:
        NotReadyYet: as for `check_current`, or its agent is disconnected, so the next world may
            begin at any moment.
        NotCurrent: as for `check_current`, or the process has not taken the present world yet.
    """
    member = check_current(state, uid, process_round)
    if state.is_notified(member) and member.taken_round < state.round:
        pod = member.identity.pod_name
        raise NotCurrent(
            f"the process of pod {pod} is in the world of round {member.taken_round}, "
            f"the present one is {state.round}: call next_world() first"
        )
    if member.disconnected_since is not None:
        raise NotReadyYet(f"pod {member.identity.pod_name} is disconnected")
