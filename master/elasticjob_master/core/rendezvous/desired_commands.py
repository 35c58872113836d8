"""What a member ought to be told now. The same wish is sent once on a stream, and again on the next stream."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api.health import NodeCheck

from elasticjob_master.core.rendezvous.commands import Check, Command, Drain, Exit, Start, Stop
from elasticjob_master.core.rendezvous.members import LastCommand, Member
from elasticjob_master.core.rendezvous.rules import Phase, Timing


@dataclass(frozen=True)
class Moment:
    """The state of the world at which all members are looked at.

    Attributes:
        inside: who belongs to the present world.
        at_once: the world is broken: there is nothing to be saved in its processes.
    """

    now: float
    round: int
    phase: Phase
    inside: frozenset[str]
    in_process_elastic: bool
    at_once: bool


def must_stop(process_round: int, *, round_: int, phase: Phase, in_process_elastic: bool) -> bool:
    """Tell whether a process of a round has to end because of a change of the world."""
    if in_process_elastic:
        return phase == "reforming"  # only when all are to start anew
    return process_round != round_ or phase in ("reforming", "waiting")


def desired_command(member: Member, moment: Moment) -> LastCommand | None:
    """Return the command that a connected member ought to have; None: none."""
    if member.succeeded or member.exiting:
        return LastCommand("exit")
    if member.draining_since is not None:
        # A process that adapts itself learns from host discovery that it has to go, and is given time to do so.
        by_itself = moment.in_process_elastic and moment.now - member.draining_since < member.drain_seconds / 2
        return None if by_itself and member.process_round else LastCommand("drain")
    phase, inside = moment.phase, member.uid in moment.inside and moment.phase in ("training", "finishing")
    if member.process_round:
        if moment.in_process_elastic and phase != "reforming":
            return member.last_command
        ends = must_stop(
            member.process_round, round_=moment.round, phase=phase, in_process_elastic=moment.in_process_elastic
        )
        return LastCommand("stop", member.process_round, moment.at_once) if ends or not inside else member.last_command
    if inside and phase == "training" and member.crashed_at is None and member.last_round < moment.round:
        return LastCommand("start", moment.round)
    return LastCommand("check", member.order) if member.node_check.stage == "running" else None


def issue_command(member: Member, told: LastCommand, *, now: float, timing: Timing, check: NodeCheck) -> Command:
    """Note that a member is told something, and return the command."""
    member.last_command = told
    match told.command:
        case "start":
            member.process_round, member.started = told.round, False
            return Start(member.uid, told.round)
        case "stop":
            grace = 0.0 if told.at_once else timing.stop
            member.stop_due = now + 2 * grace + timing.stop_margin
            return Stop(member.uid, told.round, grace)
        case "drain":
            member.stop_due = now + 2 * member.drain_seconds + timing.stop_margin if member.process_round else None
            # A little less than what the operator waits, so that the agent is the one that ends the process.
            return Drain(member.uid, 0.9 * member.drain_seconds)
        case "check":
            return Check(
                member.uid, told.round, member.node_check.peers, tuple(check.command), float(check.timeout_seconds)
            )
        case "exit":
            return Exit(member.uid, problem=member.node_check.problem if member.node_check.stage == "failed" else "")
