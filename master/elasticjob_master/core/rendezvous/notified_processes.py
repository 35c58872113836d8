"""Finds the processes to restart in roles whose processes are notified of each new world.

In a role with `onWorldChange: Notify` a process continues from world to world. It takes a world
when it has asked for its place in it. A process that does not take the present world, or that was
lost, cannot train with the others. It is started again in the present world, like the processes of
other roles.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def check_world_taken(state: RendezvousState, member: Member, now: float) -> None:
    """Restart a process that does not take a new world within the time of a stop.

    Further worlds do not extend this time, unless the process takes one of them.
    """
    notified = member.last_command is not None and member.last_command.command == "world_changed"
    waited_for = (
        notified
        and member.disconnected_since is None
        and state.keeps_process(member)
        and state.phase == "training"
    )
    if not waited_for or not 0 < member.taken_round < state.round:
        member.take_world_due = None
    elif member.take_world_due is None:
        member.take_world_due = now + state.timing.stop
    elif now > member.take_world_due:
        member.take_world_due = None
        member.renewal = "asked"
        state.note(member.uid)


def was_replaced(state: RendezvousState, member: Member, running_round: int) -> bool:
    """Return whether a process that an agent reports has lost its leases to other members.

    If the state of earlier masters is lost, no process is known. But then there is no world yet.
    """
    unknown = (
        bool(running_round and state.world)
        and not member.process_round
        and state.is_notified(member)
    )
    return unknown and (running_round < state.round or state.phase in ("reforming", "waiting"))


def renew_all(state: RendezvousState) -> None:
    """Have all notified processes killed and started again."""
    for member in state.members:
        if member.process_round and state.is_notified(member):
            member.renewal = "at_once"
            state.note(member.uid)
