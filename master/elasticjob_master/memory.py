"""Between the live state and the stored one."""

from __future__ import annotations

from typing import get_args

from elasticjob_master.controller import Controller
from elasticjob_master.core import state as stored
from elasticjob_master.core.autoscale import Memory
from elasticjob_master.core.discovery import Host, HostList
from elasticjob_master.core.members import Identity, Member, Members
from elasticjob_master.core.rendezvous import Phase
from elasticjob_master.core.shards import Dataset, Ledger
from elasticjob_master.core.state import State, StoredLedger, StoredMember, StoredMemory, StoredProgress


def snapshot(controller: Controller, *, job_uid: str) -> State:
    """Return all that a later master must know."""
    rendezvous, progress, memory = controller.rendezvous, controller.progress, controller.scaler.memory
    return State(
        job_uid=job_uid,
        master_starts=controller.starts,
        phase=rendezvous.phase,
        round=rendezvous.round,
        world=list(rendezvous.world),
        finished=rendezvous.finished_at is not None,
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
        ledgers=[_store_ledger(ledger) for ledger in controller.ledgers],
        memory=StoredMemory(rates=dict(memory.rates), settled=memory.settled, asked=memory.asked),
        plans_emitted=controller.scaler.plans_emitted,
    )


def restore(controller: Controller, state: State) -> None:
    """Go on from a stored state."""
    now = controller.now()
    for kept in state.members:
        controller.members.put(_member(kept, now))
    phase: Phase = next((phase for phase in get_args(Phase) if phase == state.phase), "waiting")
    controller.rendezvous.restore(
        phase=phase, process_round=state.round, world=tuple(state.world), finished=state.finished, now=now
    )
    controller.hosts.publish(HostList(state.host_version, tuple(Host(*host) for host in state.hosts)))
    progress = controller.progress
    progress.round, progress.step, progress.total_steps = (
        state.progress.round,
        state.progress.step,
        state.progress.total_steps,
    )
    progress.samples, progress.reported_at = state.progress.samples, state.progress.reported_at
    progress.metrics.update(state.progress.metrics)
    for ledger in state.ledgers:
        controller.ledgers.restore(_ledger(ledger, controller.members))
    controller.scaler.memory = Memory(dict(state.memory.rates), state.memory.settled, state.memory.asked)
    controller.scaler.plans_emitted = state.plans_emitted
    controller.starts = state.master_starts + 1


def encode(controller: Controller, *, job_uid: str) -> bytes:
    """Return the stored form."""
    return stored.encode(snapshot(controller, job_uid=job_uid))


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
        away_since=now,
        process_round=kept.process_round,
        started=kept.started,
        last_round=kept.last_round,
        crashed_at=now if kept.crashed else None,
        draining_since=now if kept.draining else None,
        drain_seconds=kept.drain_seconds,
        exiting=kept.exiting,
        succeeded=kept.succeeded,
        heard_at=now,
        step=kept.step,
    )


def _store_ledger(ledger: Ledger) -> StoredLedger:
    dataset = ledger.dataset
    return StoredLedger(
        name=dataset.name,
        size=dataset.size,
        shard_size=dataset.shard_size,
        epochs=dataset.epochs,
        shuffle=dataset.shuffle,
        seed=dataset.seed,
        fresh=ledger.fresh,
        undone=ledger.undone(),
        early=ledger.early(),
        returned=ledger.returned,
        leases=ledger.holders(),
        answers=ledger.answers(),
    )


def _ledger(kept: StoredLedger, members: Members) -> Ledger:
    """Return a ledger; what was leased to somebody who is no member any more waits: nobody's end would free it."""
    dataset = Dataset(kept.name, kept.size, kept.shard_size, kept.epochs, kept.shuffle, kept.seed)
    ledger = Ledger(
        dataset,
        fresh=kept.fresh,
        undone=kept.undone,
        early=kept.early,
        returned=kept.returned,
        answers={uid: answer for uid, answer in kept.answers.items() if members.get(uid) is not None},
        restored=True,
    )
    for uid, ids in kept.leases.items():
        for shard_id in ids if members.get(uid) is not None else ():
            ledger.restore_lease(uid, shard_id)
    return ledger
