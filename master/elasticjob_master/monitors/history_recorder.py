"""Records a job's history: members that join and leave, worlds, plans, and the throughput."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elasticjob_api.scaleplan import FINISHED, ScalePlan

from elasticjob_master.core.history import History, NewEvent, Sample
from elasticjob_master.core.rendezvous.commands import Command, Exit, MemberRemoved, Stop
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.monitors.view import JobView


def sample(job: JobView, now: float, wall: float) -> Sample:
    """Return a sample of now, not numbered yet."""
    rendezvous = job.rendezvous
    return Sample(
        number=0,
        time=round(wall, 1),
        round=rendezvous.round,
        world_size=len(rendezvous.world),
        step=job.progress.step,
        samples_per_second=float(f"{job.progress.samples_per_second(now):.4g}"),
    )


def world_formed(view: JobView) -> NewEvent:
    """Return the event of a new world."""
    rendezvous = view.rendezvous
    return NewEvent("WorldFormed", f"round {rendezvous.round} with {len(rendezvous.world)} members")


def events_of(view: JobView, commands: Iterable[Command], now: float) -> Iterator[NewEvent]:
    """Return the events of commands: members that must leave or start again, or are removed."""
    for command in commands:
        if isinstance(command, MemberRemoved):
            vanished = command.uid in view.rendezvous.suspicions.removed
            yield _member_removed(command.member, now, vanished=vanished)
        elif isinstance(command, Exit) and command.problem:
            message = f"{_pod(view, command.uid)}: {command.problem}"
            # The command is repeated on a new stream.
            if not view.history.has_event("NodeUnfit", message):
                yield NewEvent("NodeUnfit", message)
        elif isinstance(command, Stop) and command.reason:
            pod = _pod(view, command.uid)
            message = f"{pod} in round {view.rendezvous.round}: {command.reason}"
            if not view.history.has_event("WorldNotTaken", message):
                yield NewEvent("WorldNotTaken", message)


def _pod(view: JobView, uid: str) -> str:
    """Return the name of a member's pod."""
    member = view.members.get(uid)
    return uid if member is None else member.identity.pod_name


def plan_changed(history: History, plan: ScalePlan) -> NewEvent | None:
    """Return the event of a plan that was made or has ended, unless it is recorded already.

    So each is recorded once, whenever a master gets to see it. The end of a plan whose beginning is
    not recorded is not recorded either: it happened long ago.
    """
    name = plan.metadata.name
    spec = plan.spec
    status = plan.status
    made = f"{name} ({spec.source}): {spec.reason}" if spec.reason else f"{name} ({spec.source})"
    if status.phase not in FINISHED:
        return None if history.has_event("PlanMade", made) else NewEvent("PlanMade", made)
    if not history.has_event("PlanMade", made):
        return None
    ended = (
        f"{name}: {status.phase}; {status.message}" if status.message else f"{name}: {status.phase}"
    )
    return None if history.has_event("PlanEnded", ended) else NewEvent("PlanEnded", ended)


def _member_removed(member: Member, now: float, *, vanished: bool) -> NewEvent:
    pod = member.identity.pod_name
    if not member.leaving:
        silent = max(0.0, now - member.last_heard_at)
        reason = "; no other member reaches its node" if vanished else ""
        return NewEvent("MemberLost", f"{pod}: last heard of {silent:.1f} s ago{reason}")
    if member.node_check.stage == "failed":
        return NewEvent("MemberLeft", f"{pod}: its node is not fit")
    how = (
        "succeeded"
        if member.succeeded
        else "ended with its process"
        if member.exiting
        else "drained"
    )
    return NewEvent("MemberLeft", f"{pod}: {how}")
