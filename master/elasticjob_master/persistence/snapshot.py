"""Composes the stored state of the controller's components, and restores them from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args

import msgspec
from elasticjob_shards import Dataset, Ledger
from elasticjob_shards.account import Holder
from elasticjob_shards.checkpoint import pack, unpack

from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale import scaling_memory
from elasticjob_master.core.rendezvous.events import StateRestored, StateShared
from elasticjob_master.core.rendezvous.members import Identity, Member, Members, NodeCheckState
from elasticjob_master.core.rendezvous.rules import Phase
from elasticjob_master.core.step_times import StepTimes
from elasticjob_master.persistence import stored_state
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import Store
from elasticjob_master.persistence.stored_state import (
    StoredHolder,
    StoredKeyValue,
    StoredLedger,
    StoredMember,
    StoredState,
)

log = logging.getLogger(__name__)

_MOST = 10_000_000
"""A bound on the numbers in a stored set, larger than any real set."""
_IDENTITY = [field.name for field in fields(Identity)]
_MEMBER = (
    *("order", "process_round", "started", "joined_round", "last_round"),
    *("drain_seconds", "exiting", "succeeded", "step", "restarts"),
)
_DATASET = [field.name for field in fields(Dataset)]


def take(controller: Controller, *, job_uid: str) -> StoredState:
    """Return the state that a later master continues from."""
    rendezvous = controller.rendezvous
    hosts = controller.hosts
    return StoredState(
        job_uid=job_uid,
        master_starts=controller.master_starts,
        phase=rendezvous.phase,
        round=rendezvous.round,
        world=list(rendezvous.world),
        finished=rendezvous.finished_at is not None,
        world_failed=rendezvous.world_failed,
        world_incomplete=rendezvous.world_incomplete,
        successors=sorted(rendezvous.successors),
        members=[store_member(member) for member in controller.members],
        host_version=hosts.latest.version,
        hosts=list(hosts.latest.hosts),
        progress=controller.progress.stored(),
        stall=controller.health_monitor.stall.stored(),
        ledgers=[store_ledger(each) for each in controller.ledgers],
        memory=scaling_memory.stored(controller.scaling.autoscaler.memory),
        last_plan_number=controller.scaling.last_number,
        samples=controller.history.samples(),
        events=controller.history.events(),
        keyvalue=StoredKeyValue(
            round=controller.keyvalue.round,
            values=controller.keyvalue.values,
            addition_results=controller.keyvalue.addition_results,
            passed_barriers=controller.barriers.passed,
        ),
        unfit=[(*place, *found) for place, found in rendezvous.unfit.items()],
        broken_nodes=list(rendezvous.broken_nodes),
        replacements=controller.scaling.replacer.memory,
        series=controller.history.series(),
        spent=controller.history.all_spent(),
        accounting=controller.accounting.stored(),
    )


def restore(controller: Controller, state: StoredState) -> None:
    """Continue from a stored state."""
    now = controller.now()
    rendezvous = StateRestored(
        members=tuple(restore_member(stored, now) for stored in state.members),
        phase=_phase(state.phase),
        round=state.round,
        world=tuple(state.world),
        finished=state.finished,
        world_failed=state.world_failed,
        world_incomplete=state.world_incomplete,
        successors=frozenset(state.successors),
        unfit={(role, index): (pod, problem) for role, index, pod, problem in state.unfit},
        broken_nodes=tuple(state.broken_nodes),
    )
    controller.restore(rendezvous, state.master_starts)
    key_value = state.keyvalue
    controller.keyvalue.begin_round(key_value.round, key_value.values, key_value.addition_results)
    controller.barriers.begin_round(key_value.passed_barriers)
    controller.hosts.restore(state.host_version, state.hosts)
    controller.progress.restore(state.progress)
    controller.health_monitor.restore(
        state.stall,
        process_round=state.round,
        stepped_in_round=state.progress.round == state.round,
        stragglers=[stored.pod_name for stored in state.members if stored.straggler],
        wall=time.time(),
    )
    for each in state.ledgers:
        controller.ledgers.restore(restore_ledger(each, controller.members))
    controller.scaling.autoscaler.memory = _scaling_memory(state)
    controller.scaling.replacer.memory = state.replacements
    controller.scaling.use_number(state.last_plan_number)
    controller.history.restore(state.samples, state.events, state.series, state.spent)
    controller.accounting.restore(state.accounting)


def _scaling_memory(state: StoredState) -> scaling_memory.ScalingMemory:
    """Return the auto-scaler's memory; an empty one if it cannot be read, as it can be measured."""
    try:
        return scaling_memory.restored(state.memory)
    except msgspec.ValidationError as error:
        log.warning("the auto-scaler measures anew, as its stored memory cannot be read: %s", error)
        return scaling_memory.ScalingMemory()


def _phase(stored: str) -> Phase:
    """Return a stored phase; "waiting" for the phase of a later version, which is unknown here."""
    return next((known for known in get_args(Phase) if known == stored), "waiting")


def encode(
    controller: Controller, *, job_uid: str, largest: int | None = None
) -> stored_state.EncodedState:
    """Return the stored form, in at most `largest` bytes. Raises `StateTooLarge`."""
    return stored_state.encode_within(take(controller, job_uid=job_uid), largest)


def connect(controller: Controller, state_writer: StateWriter, store: Store) -> None:
    """Write the changes of a controller, and notify it of each write."""
    if store.shared:
        controller.handle(StateShared())
    controller.subscribe("changed", state_writer.changed)
    controller.subscribe("store_needed", state_writer.write_now)
    state_writer.subscribe(
        lambda state, began_at: controller.stored(state.round, state.host_version, began_at)
    )


def store_member(member: Member) -> StoredMember:
    """Return the stored form of a member."""
    return StoredMember(
        **_attributes(member.identity, _IDENTITY),
        **_attributes(member, _MEMBER),
        crashed=member.crashed_at is not None,
        retry=member.crashed_at is not None and member.retry,
        draining=member.draining_since is not None,
        straggler=member.step_times.straggler,
        check=member.node_check.stage if member.node_check.stage in ("passed", "failed") else "",
        check_seconds=member.node_check.seconds,
        check_problem=member.node_check.problem,
    )


def restore_member(stored: StoredMember, now: float) -> Member:
    """Return a stored member, which is disconnected until its agent reconnects.

    A node check without a result begins again.
    """
    node_check = NodeCheckState(seconds=stored.check_seconds, problem=stored.check_problem)
    match stored.check:
        case "passed" | "failed":
            node_check.stage = stored.check
        case _:
            node_check = NodeCheckState()
    return Member(
        Identity(**_attributes(stored, _IDENTITY)),
        disconnected_since=now,
        crashed_at=now if stored.crashed else None,
        retry=stored.retry,
        failed_at=now,
        draining_since=now if stored.draining else None,
        last_heard_at=now,
        step_times=StepTimes(straggler=stored.straggler),
        node_check=node_check,
        **_attributes(stored, _MEMBER),
    )


def store_ledger(ledger: Ledger) -> StoredLedger:
    """Return the stored form."""
    return StoredLedger(
        **_attributes(ledger.dataset, _DATASET),
        fresh=ledger.fresh,
        waiting=pack(ledger.waiting()),
        failed=pack(ledger.failed),
        returned=ledger.returned,
        restored_world=ledger.restored_world,
        restored_round=ledger.restored_round,
        restored_from=ledger.restored_from,
        holders=[
            _store_holder(uid, holder) for uid, holder in ledger.holders().items() if holder.leased
        ],
    )


def restore_ledger(stored: StoredLedger, members: Members) -> Ledger:
    """Return a ledger. Leases of a pod that is not a member wait for other members."""
    account = Ledger(Dataset(**_attributes(stored, _DATASET)))
    holders = [(stored.uid, _holder(stored)) for stored in stored.holders]
    orphaned = [
        position
        for uid, holder in holders
        if members.get(uid) is None
        for position in holder.leased
    ]
    waiting = [*unpack(stored.waiting, most=_MOST), *orphaned]
    account.resume_from(
        fresh=stored.fresh, waiting=waiting, failed=unpack(stored.failed, most=_MOST)
    )
    account.returned = stored.returned + len(orphaned)
    account.restored_world = stored.restored_world or stored.restored_round
    account.restored_round = stored.restored_round
    account.restored_from = stored.restored_from
    for uid, holder in holders:
        if members.get(uid) is not None:
            account.resume_holder(uid, holder)
    return account


def _store_holder(uid: str, holder: Holder) -> StoredHolder:
    latest = holder.leased.intersection(holder.latest)
    return StoredHolder(
        uid=uid,
        request_id=holder.request_id,
        latest=pack(latest),
        earlier=pack(holder.leased - latest),
    )


def _holder(stored: StoredHolder) -> Holder:
    latest = unpack(stored.latest, most=_MOST)
    return Holder({*latest, *unpack(stored.earlier, most=_MOST)}, stored.request_id, latest)


def _attributes(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}
