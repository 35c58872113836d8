"""Whether a training process still belongs to the present world, whose data and checkpoints it may then change.

A world is formed without members that are lost or cut off at that moment. Their processes may run
for a while, and call the master as soon as they reach it again.
"""

from __future__ import annotations

from elasticjob_api.refusals import NotCurrent, NotReadyYet

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def runs(member: Member | None, process_round: int) -> bool:
    """Return whether the process of a round, if one is named, is the one that runs on a member."""
    return not process_round or (member is not None and member.process_round == process_round)


def check_process(state: RendezvousState, uid: str, process_round: int) -> Member:
    """Return the member whose process calls.

    Raises:
        NotReadyYet: it is not known yet what runs there.
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

    Args:
        state: the present state.
        uid: the member's pod UID.
        process_round: the round of the process; 0: not known, so any process of the member.

    Raises:
        NotReadyYet: it is not known yet what runs there, or the next world of a running process has yet to be formed.
        NotCurrent: the process has ended, or the others train without it.
    """
    member = check_process(state, uid, process_round)
    pod = member.identity.pod_name
    if process_round and (state.rules.in_process_elastic or state.goes_on(member)):
        # Its process goes on from world to world, with the round of its start.
        if not state.in_world(uid):
            reason = f"pod {pod} is not in the world of round {state.round}"
            raise NotCurrent(reason) if member.leaving else NotReadyYet(reason)
    elif 0 < process_round < state.round:
        raise NotCurrent(f"round is {process_round}; it is over, the present one is {state.round}")
    return member


def check_may_commit(state: RendezvousState, uid: str, process_round: int) -> None:
    """Check that the process of a round may make a checkpoint final now.

    Raises:
        NotReadyYet: as for `check_current`; or its agent is disconnected, so the next world may begin at any moment.
        NotCurrent: the process has ended, or the others train without it, or it has not taken the present world yet.
    """
    member = check_current(state, uid, process_round)
    if state.is_notified(member) and member.taken_round < state.round:
        taken = f"the process of pod {member.identity.pod_name} is in the world of round {member.taken_round}"
        raise NotCurrent(f"{taken}, the present one is {state.round}: call next_world() first")
    if member.disconnected_since is not None:
        raise NotReadyYet(f"pod {member.identity.pod_name} is disconnected")
