"""Between the live state and the stored one."""

from __future__ import annotations

import time
from typing import get_args

from elasticjob_master.controller import Controller
from elasticjob_master.core import stored_state as stored
from elasticjob_master.core.rendezvous.host_discovery import Host, HostList
from elasticjob_master.core.rendezvous.members import Identity, Member, NodeCheckState
from elasticjob_master.core.rendezvous.rules import Phase
from elasticjob_master.core.stall import StallDetector
from elasticjob_master.core.step_times import StepTimes
from elasticjob_master.core.stored_state import StoredKeyValue, StoredMember, StoredProgress, StoredStall, StoredState
from elasticjob_master.persistence.autoscaler_snapshot import memory, store_memory
from elasticjob_master.persistence.shards_snapshot import ledger, store_ledger


def take(controller: Controller, *, job_uid: str) -> StoredState:
    """Return all that a later master must know."""
    rendezvous, progress = controller.rendezvous, controller.progress
    return StoredState(
        job_uid=job_uid,
        master_starts=controller.master_starts,
        phase=rendezvous.phase,
        round=rendezvous.round,
        world=list(rendezvous.world),
        finished=rendezvous.finished_at is not None,
        broken=rendezvous.world_failed,
        uneven=rendezvous.world_incomplete,
        standing_by=sorted(rendezvous.standby),
        members=[_store_member(member) for member in controller.members],
        host_version=controller.hosts.value.version,
        hosts=[(host.name, host.slots, host.address) for host in controller.hosts.value.hosts],
        progress=StoredProgress(
            round=progress.round,
            step=progress.step,
            total_steps=progress.total_steps,
            samples=progress.samples,
            metrics=dict(progress.metrics),
            reported_at=progress.reported_at,
        ),
        stall=_store_stall(controller.stall),
        ledgers=[store_ledger(each) for each in controller.ledgers],
        memory=store_memory(controller.autoscaler.memory),
        plans_emitted=controller.autoscaler.plans_emitted,
        samples=controller.history.samples(),
        events=controller.history.events(),
        keyvalue=StoredKeyValue(
            round=controller.keyvalue.round,
            values=controller.keyvalue.values(),
            answers=controller.keyvalue.addition_results(),
            barriers=controller.barriers.passed_counts(),
        ),
        unfit=[(*place, *found) for place, found in rendezvous.unfit.items()],
    )


def restore(controller: Controller, state: StoredState) -> None:
    """Go on from a stored state."""
    now = controller.now()
    for kept in state.members:
        controller.members.insert(_member(kept, now))
    phase: Phase = next((phase for phase in get_args(Phase) if phase == state.phase), "waiting")
    controller.rendezvous.restore(
        phase=phase,
        process_round=state.round,
        world=tuple(state.world),
        finished=state.finished,
        now=now,
        world_failed=state.broken,
        world_incomplete=state.uneven,
    )
    controller.rendezvous.standby = frozenset(state.standing_by)
    controller.keyvalue.restore(state.keyvalue.round, state.keyvalue.values, state.keyvalue.answers)
    controller.barriers.restore(state.keyvalue.round, state.keyvalue.barriers)
    controller.rendezvous.unfit = {(role, index): (pod, problem) for role, index, pod, problem in state.unfit}
    controller.hosts.publish(HostList(state.host_version, tuple(Host(*host) for host in state.hosts)))
    progress = controller.progress
    progress.round, progress.step, progress.total_steps = (
        state.progress.round,
        state.progress.step,
        state.progress.total_steps,
    )
    progress.samples, progress.reported_at = state.progress.samples, state.progress.reported_at
    progress.metrics.update(state.progress.metrics)
    controller.stall = _stall(state)
    controller.stragglers = tuple(sorted(kept.pod_name for kept in state.members if kept.straggler))
    for each in state.ledgers:
        controller.ledgers.restore(ledger(each, controller.members))
    controller.autoscaler.memory = memory(state.memory)
    controller.autoscaler.plans_emitted = state.plans_emitted
    controller.history.restore(state.samples, state.events)
    controller.master_starts = state.master_starts + 1


def encode(controller: Controller, *, job_uid: str, largest: int | None = None) -> stored.EncodedState:
    """Return the stored form, in at most `largest` bytes. Raises `StateTooLarge`."""
    return stored.encode_within(take(controller, job_uid=job_uid), largest)


def _store_member(member: Member) -> StoredMember:
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
        last_round=member.last_round,
        crashed=member.crashed_at is not None,
        draining=member.draining_since is not None,
        drain_seconds=member.drain_seconds,
        exiting=member.exiting,
        succeeded=member.succeeded,
        step=member.step,
        straggler=member.step_times.straggler,
        check=member.node_check.stage if member.node_check.stage in ("passed", "failed") else "",
        check_seconds=member.node_check.seconds,
        check_problem=member.node_check.problem,
    )


def _member(kept: StoredMember, now: float) -> Member:
    identity = Identity(
        pod_name=kept.pod_name,
        pod_uid=kept.pod_uid,
        role=kept.role,
        index=kept.index,
        incarnation=kept.incarnation,
        address=kept.address,
        node_name=kept.node_name,
        slots=kept.slots,
    )
    return Member(
        identity,
        kept.order,
        disconnected_since=now,
        process_round=kept.process_round,
        started=kept.started,
        last_round=kept.last_round,
        crashed_at=now if kept.crashed else None,
        draining_since=now if kept.draining else None,
        drain_seconds=kept.drain_seconds,
        exiting=kept.exiting,
        succeeded=kept.succeeded,
        last_heard_at=now,
        step=kept.step,
        step_times=StepTimes(straggler=kept.straggler),
        node_check=_check(kept),
    )


def _check(kept: StoredMember) -> NodeCheckState:
    """Return a check that was judged; one that was not begins anew, and the agent answers at once what it knows."""
    match kept.check:
        case "passed" | "failed":
            return NodeCheckState(kept.check, seconds=kept.check_seconds, problem=kept.check_problem)
        case _:
            return NodeCheckState()


def _store_stall(stall: StallDetector) -> StoredStall:
    return StoredStall(
        stepped_at=stall.stepped_at,
        usual=stall.usual,
        start_up=stall.start_up,
        since=stall.since,
        restarts=stall.restarts,
        restarted_at=stall.restarted_at,
    )


def _stall(state: StoredState) -> StallDetector:
    kept = state.stall
    stall = StallDetector(
        state.round,
        stepped_at=kept.stepped_at,
        usual=kept.usual,
        start_up=kept.start_up,
        since=kept.since,
        restarts=kept.restarts,
        restarted_at=kept.restarted_at,
    )
    stall.restore(time.time(), stepped_in_round=state.progress.round == state.round)
    return stall
