"""Composes the stored state of the controller's components, and restores them from it."""

from __future__ import annotations

import logging
import time
from typing import get_args

import msgspec

from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale import scaling_memory
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.rules import Phase
from elasticjob_master.persistence import stored_state
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import Store
from elasticjob_master.persistence.stored_ledger import restore_ledger, store_ledger
from elasticjob_master.persistence.stored_member import restore_member, store_member
from elasticjob_master.persistence.stored_state import StoredKeyValue, StoredState

log = logging.getLogger(__name__)


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
        broken=rendezvous.world_failed,
        uneven=rendezvous.world_incomplete,
        standing_by=sorted(rendezvous.standby),
        members=[store_member(member) for member in controller.members],
        host_version=hosts.latest.version,
        hosts=list(hosts.stored()),
        progress=controller.progress.stored(),
        stall=controller.health_monitor.stall.stored(),
        ledgers=[store_ledger(each) for each in controller.ledgers],
        memory=scaling_memory.stored(controller.scaling.autoscaler.memory),
        plans_emitted=controller.scaling.last_number,
        samples=controller.history.samples(),
        events=controller.history.events(),
        keyvalue=StoredKeyValue(
            round=controller.keyvalue.round,
            values=controller.keyvalue.values(),
            answers=controller.keyvalue.addition_results(),
            barriers=controller.barriers.passed_counts(),
        ),
        unfit=[(*place, *found) for place, found in rendezvous.unfit.items()],
        broken_nodes=list(rendezvous.broken_nodes),
        replacements=controller.scaling.replacer.memory,
        series=controller.history.series(),
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
        world_failed=state.broken,
        world_incomplete=state.uneven,
        standby=frozenset(state.standing_by),
        unfit={(role, index): (pod, problem) for role, index, pod, problem in state.unfit},
        broken_nodes=tuple(state.broken_nodes),
    )
    controller.restore(rendezvous, state.master_starts)
    key_value = state.keyvalue
    controller.keyvalue.restore(key_value.round, key_value.values, key_value.answers)
    controller.barriers.restore(key_value.round, key_value.barriers)
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
    controller.scaling.autoscaler.restore(_scaling_memory(state))
    controller.scaling.replacer.restore(state.replacements)
    controller.scaling.use_number(state.plans_emitted)
    controller.history.restore(state.samples, state.events, state.series)
    controller.accounting.restore(state.accounting)


def _scaling_memory(state: stored_state.StoredState) -> scaling_memory.ScalingMemory:
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
        controller.share_state()
    controller.subscribe("changed", state_writer.changed)
    controller.subscribe("store_needed", state_writer.write_now)
    state_writer.subscribe(
        lambda state, began_at: controller.stored(state.round, state.host_version, began_at)
    )
