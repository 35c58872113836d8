"""Converts a member to its stored form and back."""

from __future__ import annotations

import msgspec

from elasticjob_master.core.rendezvous.members import Identity, Member, NodeCheckState
from elasticjob_master.core.step_times import StepTimes


class StoredMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member. Its times are not stored, and begin again after a restart."""

    order: int
    pod_name: str
    pod_uid: str
    role: str
    index: int
    incarnation: int = 0
    address: str = ""
    node_name: str = ""
    slots: int = 1
    process_round: int = 0
    started: bool = False
    joined_round: int = 0
    last_round: int = 0
    crashed: bool = False
    retry: bool = False
    draining: bool = False
    drain_seconds: float = 0.0
    exiting: bool = False
    succeeded: bool = False
    step: int = 0
    restarts: int = 0
    straggler: bool = False
    check: str = ""
    check_seconds: float = 0.0
    check_problem: str = ""


def store_member(member: Member) -> StoredMember:
    """Return the stored form of a member."""
    who = member.identity
    return StoredMember(
        pod_name=who.pod_name,
        pod_uid=who.pod_uid,
        role=who.role,
        index=who.index,
        incarnation=who.incarnation,
        address=who.address,
        node_name=who.node_name,
        slots=who.slots,
        order=member.order,
        process_round=member.process_round,
        started=member.started,
        joined_round=member.joined_round,
        last_round=member.last_round,
        crashed=member.crashed_at is not None,
        retry=member.crashed_at is not None and member.retry,
        draining=member.draining_since is not None,
        drain_seconds=member.drain_seconds,
        exiting=member.exiting,
        succeeded=member.succeeded,
        step=member.step,
        restarts=member.restarts,
        straggler=member.step_times.straggler,
        check=member.node_check.stage if member.node_check.stage in ("passed", "failed") else "",
        check_seconds=member.node_check.seconds,
        check_problem=member.node_check.problem,
    )


def restore_member(stored: StoredMember, now: float) -> Member:
    """Return a stored member, which is disconnected until its agent reconnects."""
    identity = Identity(
        pod_name=stored.pod_name,
        pod_uid=stored.pod_uid,
        role=stored.role,
        index=stored.index,
        incarnation=stored.incarnation,
        address=stored.address,
        node_name=stored.node_name,
        slots=stored.slots,
    )
    return Member(
        identity,
        stored.order,
        disconnected_since=now,
        process_round=stored.process_round,
        started=stored.started,
        joined_round=stored.joined_round,
        last_round=stored.last_round,
        crashed_at=now if stored.crashed else None,
        failed_at=now,
        retry=stored.retry,
        draining_since=now if stored.draining else None,
        drain_seconds=stored.drain_seconds,
        exiting=stored.exiting,
        succeeded=stored.succeeded,
        last_heard_at=now,
        step=stored.step,
        restarts=stored.restarts,
        step_times=StepTimes(straggler=stored.straggler),
        node_check=_node_check(stored),
    )


def _node_check(stored: StoredMember) -> NodeCheckState:
    """Return a check that had a result. Another check begins again."""
    match stored.check:
        case "passed" | "failed":
            return NodeCheckState(
                stored.check, seconds=stored.check_seconds, problem=stored.check_problem
            )
        case _:
            return NodeCheckState()
