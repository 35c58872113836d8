"""Processes that go on from world to world and are told each one (`onWorldChange.

Notify`): who has to start again. Such a process takes a world when it has asked for its place in
it. One that does not, or that was lost, is of no use to the others: it is started again, in the
present world, as processes of other roles are.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def check_world_taken(job: RendezvousState, member: Member, now: float) -> None:
    """Have a process started again that was told a new world and does not take it in the time of a stop.

    If others follow meanwhile it has no more time, but whenever it has taken one of them.
    """
    told = member.last_command is not None and member.last_command.command == "world_changed"
    waited_for = (
        told
        and member.disconnected_since is None
        and job.keeps_process(member)
        and job.phase == "training"
    )
    if not waited_for or not 0 < member.taken_round < job.round:
        member.take_due = None
    elif member.take_due is None:
        member.take_due = now + job.timing.stop
    elif now > member.take_due:
        member.take_due = None
        member.renewal = "asked"


def was_replaced(job: RendezvousState, member: Member, running_round: int) -> bool:
    """Return whether a process that an agent reports was lost.

    What it had leased is the others' by now.
    Where the state of earlier masters is lost no process is known, but then there is no world yet.
    """
    unknown = (
        bool(running_round and job.world) and not member.process_round and job.is_notified(member)
    )
    return unknown and (running_round < job.round or job.phase in ("reforming", "waiting"))


def renew_all(job: RendezvousState) -> None:
    """Have all of them killed and started again, as when the training hangs."""
    for member in job.members:
        if member.process_round and job.is_notified(member):
            member.renewal = "at_once"
