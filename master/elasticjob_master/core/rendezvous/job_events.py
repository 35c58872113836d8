"""Applies the events of the operator and of the master to the state."""

from __future__ import annotations

from elasticjob_master.core.rendezvous import notified_processes
from elasticjob_master.core.rendezvous.events import DrainOrdered, SettingsObserved, StateRestored
from elasticjob_master.core.rendezvous.state import RendezvousState

_MOST_UNSTORED_ROUNDS = 1
"""The number of worlds that a master can form before the first is stored, while storing works."""


def adopt_settings(state: RendezvousState, event: SettingsObserved) -> None:
    """Decide by these settings from now on."""
    state.sizes = event.sizes
    state.rules = event.rules
    state.timing = event.timing
    state.domains = event.domains
    state.node_check = event.node_check


def drain_pods(state: RendezvousState, event: DrainOrdered, now: float) -> None:
    """Drain the members of these pods, and pods that register later under these names."""
    state.draining_pods = event.seconds
    if event.seconds:
        for member in state.members:
            seconds = event.seconds.get(member.identity.pod_name)
            if seconds is not None:
                member.drain(seconds, now)
                state.note(member.uid)


def restart_training(state: RendezvousState) -> None:
    """Have all training processes killed and a new world formed."""
    if state.phase == "training":
        state.phase = "reforming"
    state.world_failed = True
    notified_processes.renew_all(state)


def extend_deadlines(state: RendezvousState, seconds: float) -> None:
    """Extend the deadlines of all members by the time in which the master received nothing."""
    for member in state.members:
        member.last_heard_at += seconds
        member.node_check.deadline += seconds
        if member.stop_due is not None:
            member.stop_due += seconds
        if member.exit_due is not None:
            member.exit_due += seconds
        if member.take_world_due is not None:
            member.take_world_due += seconds
        if member.disconnected_since is not None:
            member.disconnected_since += seconds


def restore(state: RendezvousState, event: StateRestored, now: float) -> None:
    """Continue from the state of an earlier master."""
    world = set(event.world)
    for member in event.members:
        state.members.restore(member, in_world=member.uid in world)
    state.restored = True
    state.phase = event.phase
    state.round = event.round
    if event.round:
        state.unstored_rounds = _MOST_UNSTORED_ROUNDS
    state.set_world(event.world)
    if event.world:
        state.formed_at = now
    if event.finished:
        state.finished_at = now
    state.world_failed = event.world_failed
    state.world_incomplete = event.world_incomplete
    state.successors = event.successors
    state.unfit = dict(event.unfit)
    state.broken_nodes = list(event.broken_nodes)
    state.reconnect_deadline = now + state.timing.lost
