"""What a member ought to be told now. The same wish is sent once on a stream, and again on the next stream."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api.health import NodeCheck

from elasticjob_master.core.rendezvous.commands import Check, Command, Drain, Exit, Start, Stop
from elasticjob_master.core.rendezvous.members import Member, Told
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
    adapts_itself: bool
    at_once: bool


def stopping(process_round: int, *, round_: int, phase: Phase, adapts_itself: bool) -> bool:
    """Tell whether a process of a round has to end because of a change of the world."""
    if adapts_itself:
        return phase == "reforming"  # only when all are to start anew
    return process_round != round_ or phase in ("reforming", "waiting")


def wanted(member: Member, moment: Moment) -> Told | None:
    """Return the command that a connected member ought to have; None: none."""
    if member.succeeded or member.exiting:
        return Told("exit")
    if member.draining_since is not None:
        # A process that adapts itself learns from host discovery that it has to go, and is given time to do so.
        by_itself = moment.adapts_itself and moment.now - member.draining_since < member.drain_seconds / 2
        return None if by_itself and member.process_round else Told("drain")
    phase, inside = moment.phase, member.uid in moment.inside and moment.phase in ("training", "finishing")
    if member.process_round:
        if moment.adapts_itself and phase != "reforming":
            return member.told
        ends = stopping(member.process_round, round_=moment.round, phase=phase, adapts_itself=moment.adapts_itself)
        return Told("stop", member.process_round, moment.at_once) if ends or not inside else member.told
    if inside and phase == "training" and member.crashed_at is None and member.last_round < moment.round:
        return Told("start", moment.round)
    return Told("check", member.order) if member.check.stage == "running" else None


def tell(member: Member, told: Told, *, now: float, timing: Timing, check: NodeCheck) -> Command:
    """Note that a member is told something, and return the command."""
    member.told = told
    match told.command:
        case "start":
            member.process_round, member.started = told.round, False
            return Start(member.uid, told.round)
        case "stop":
            grace = 0.0 if told.at_once else timing.stop
            member.stop_due = now + 2 * grace + timing.margin
            return Stop(member.uid, told.round, grace)
        case "drain":
            member.stop_due = now + 2 * member.drain_seconds + timing.margin if member.process_round else None
            # A little less than what the operator waits, so that the agent is the one that ends the process.
            return Drain(member.uid, 0.9 * member.drain_seconds)
        case "check":
            return Check(member.uid, told.round, member.check.peers, tuple(check.command), float(check.timeout_seconds))
        case "exit":
            return Exit(member.uid, problem=member.check.problem if member.check.stage == "failed" else "")
