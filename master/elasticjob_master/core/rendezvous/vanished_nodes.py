"""Removes members whose nodes have vanished, long before `lostSeconds`.

A node that vanishes closes no connection. The members that watch it report that it answers no more.
Others are then asked to reach it, and the members there are asked for a sign of life. Questions
decide, in this order:

1. Has a member there been heard of since, or has one of those asked reached the node? It is there.
2. Has the report become old? Its watcher repeats it.
3. Was the node silent for long enough before it was asked? Otherwise it is waited for: a shorter
   outage removes nobody.
4. Have those asked answered? At least half of them must have, all with no.
5. Are others suspected, too? For a moment they are waited for: lost together, they cost one world.
6. Has the master heard of half of the other members since? Otherwise it may itself be cut off.

If all say so, the members there are removed. One that comes back was removed wrongly: that happens
to a pod once, and then only `lostSeconds` counts. As always, it joins again with a new process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Literal

from elasticjob_master.core.rendezvous.commands import Command, Probe
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.core.rendezvous.watches import Suspicion
from elasticjob_master.core.report_intervals import intervals_for

SILENT_SECONDS = 1.6
"""Before others are asked. Their last try begins 0.4 s later: no outage of 2 s removes a member."""
ANSWER_SECONDS = 1.5
"""A probe takes 0.75 s."""
PAUSE_SECONDS = 0.2
"""Between two probes, each of which may be of many nodes."""
TOGETHER_SECONDS = 3.5
"""After the first failed connect: until then other suspicions are waited for."""
FORGET_SECONDS = 10.0
HELD_UP_SECONDS = 1.0
"""A master that has done nothing for so long may have the answers of those asked before it."""
MOST_SUSPICIONS = 64
PROBERS = 3

Verdict = Literal["there", "wait", "ask", "vanished"]


def suspect(state: RendezvousState, watcher: str, address: str, began: float, now: float) -> None:
    """Record that a member cannot reach the node of an address that it had reached before."""
    suspicions = state.suspicions
    uids = tuple(
        member.uid
        for member in state.world_members()
        if member.identity.address == address and not member.succeeded
    )
    if not suspicions.removed.isdisjoint(uids) or not uids:
        return
    if address not in suspicions.by_address:
        if len(suspicions.by_address) >= MOST_SUSPICIONS:
            return
        if not suspicions.by_address:
            suspicions.checked_at = now
        suspicions.by_address[address] = Suspicion(uids, began)
    suspicions.by_address[address].watchers.add(watcher)


def record_probe(state: RendezvousState, uid: str, number: int, unreached: frozenset[str]) -> None:
    """Record which addresses of a probe a member could not reach."""
    for address, suspicion in state.suspicions.by_address.items():
        if suspicion.number == number and uid in suspicion.asked:
            if address in unreached:
                suspicion.unreached_by.add(uid)
            else:
                suspicion.answered = True


def verdict(suspicion: Suspicion, heard_at: float, now: float) -> Verdict:
    """Return what is known of a suspected node, whose members were last heard of at a time."""
    if suspicion.answered or heard_at > suspicion.began:
        return "there"
    if now - suspicion.began > FORGET_SECONDS:
        return "there"
    if suspicion.asked_at is None:
        return "wait" if now - suspicion.began < SILENT_SECONDS else "ask"
    asked = len(suspicion.asked)
    answers = len(suspicion.unreached_by)
    if now - suspicion.asked_at < ANSWER_SECONDS and (answers < asked or not asked):
        return "wait"
    return "vanished" if asked and 2 * answers >= asked else "ask"


def advance(state: RendezvousState, now: float) -> list[Command]:
    """End suspicions, ask about others, and remove the members whose nodes have vanished."""
    suspicions = state.suspicions
    if not suspicions.by_address:
        return []
    if now - suspicions.checked_at > HELD_UP_SECONDS:
        _ask_again(suspicions.by_address.values())
    suspicions.checked_at = now
    found: dict[Verdict, list[str]] = {}
    for address, suspicion in suspicions.by_address.items():
        heard_at = max((m.last_heard_at for m in _suspects(state, suspicion)), default=now)
        found.setdefault(verdict(suspicion, heard_at, now), []).append(address)
    for address in found.get("there", ()):
        del suspicions.by_address[address]
    commands: list[Command] = []
    if "ask" in found and now - suspicions.probed_at >= PAUSE_SECONDS:
        commands = _ask(state, found["ask"], now)
    vanished = found.get("vanished", [])
    if not vanished:
        return commands
    began = min(suspicions.by_address[address].began for address in vanished)
    undecided = "ask" in found or "wait" in found
    if undecided and now - began < TOGETHER_SECONDS:
        return commands
    if not _hears_others(state, began, now):
        _ask_again(suspicions.by_address[address] for address in vanished)
        return commands
    for address in vanished:
        for member in _suspects(state, suspicions.by_address.pop(address)):
            suspicions.removed.add(member.uid)
            commands += state.remove_member(member)
    return commands


def _ask_again(suspicions: Iterable[Suspicion]) -> None:
    for suspicion in suspicions:
        suspicion.asked_at = None


def _ask(state: RendezvousState, addresses: Sequence[str], now: float) -> list[Command]:
    """Ask some members to reach these addresses, and the members there for a sign of life."""
    suspicions = state.suspicions
    suspicions.probed_at = now
    suspicions.probes += 1
    asked_about = [suspicions.by_address[address] for address in addresses]
    suspects = [member for suspicion in asked_about for member in _suspects(state, suspicion)]
    nodes = {member.identity.node_name for member in suspects} - {""}
    watchers = {uid for suspicion in asked_about for uid in suspicion.watchers}
    others = (
        member
        for member in state.world_members()
        if member.watches
        and member.disconnected_since is None
        and member.identity.address not in suspicions.by_address
        and member.identity.node_name not in nodes
    )
    lately = now - _silence(state)
    probers = nlargest(
        PROBERS,
        others,
        key=lambda m: (m.last_heard_at > lately, m.uid not in watchers, m.last_heard_at),
    )
    for suspicion in asked_about:
        suspicion.asked = frozenset(member.uid for member in probers)
        suspicion.asked_at = now
        suspicion.number = suspicions.probes
        suspicion.unreached_by.clear()
    commands: list[Command] = [Probe(m.uid, suspicions.probes, (*addresses,)) for m in probers]
    return commands + [Probe(member.uid, suspicions.probes) for member in suspects]


def _hears_others(state: RendezvousState, began: float, now: float) -> bool:
    """Return whether the master has heard of half of the other members since, or lately."""
    since = min(began, now - _silence(state))
    heard = sum(member.last_heard_at > since for member in state.world_members())
    return 2 * heard >= len(state.world) - 1


def _silence(state: RendezvousState) -> float:
    """Return the longest time between two messages of a member that is well."""
    return intervals_for(len(state.members), lost=state.timing.lost).heartbeat + 0.5


def _suspects(state: RendezvousState, suspicion: Suspicion) -> list[Member]:
    """Return the members whose node is suspected, as far as they still exist."""
    return [member for member in map(state.members.get, suspicion.uids) if member is not None]
