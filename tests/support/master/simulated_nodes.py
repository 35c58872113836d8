"""A master and members on nodes whose packets get lost, in virtual time.

The decisions are the master's own. What agents do is simulated: heartbeats, the watch of others,
and probes. What cannot get through is sent again until it does, as TCP does; a probe is not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from elasticjob_agent.watched_peers import (
    CHECK_SECONDS,
    KEEPALIVE_SECONDS,
    PROBE_SECONDS,
    RECONNECT_SECONDS,
    TRY_SECONDS,
)
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import (
    Command,
    MemberRemoved,
    Probe,
    Start,
    Stop,
    Watch,
)
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.member_events import (
    HeartbeatReceived,
    MemberConnected,
    MemberRegistered,
    NodesProbed,
    NodeUnreached,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity, Usage
from elasticjob_master.core.rendezvous.rules import RoleSize, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

MASTER = -1
START = 1000.0
FOREVER = float("inf")
HEARTBEAT_SECONDS = 2.0
TICK_SECONDS = 0.1
_ROUND_TRIP = 0.002
Span = tuple[float, float]


@dataclass
class SimulatedNodes:
    """A world of one member a node, and the faults of the network and of the processes.

    Attributes:
        lost: when no packet gets from one node to another, by their numbers.
        frozen: when the agent of a node, or the master, does nothing; its kernel answers.
        removed: when each member was removed, by its number.
        probes: how many probes were asked for.
    """

    size: int
    rng: random.Random
    per_node: int = 1
    lost: dict[tuple[int, int], list[Span]] = field(default_factory=lambda: defaultdict(list))
    frozen: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    removed: dict[int, float] = field(default_factory=dict)
    probes: int = 0
    now: float = START

    def __post_init__(self) -> None:
        self._number = count()
        self._decides_again = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.state = RendezvousState(
            timing=Timing(lost=300.0), sizes={"worker": RoleSize(1, self.size)}
        )
        self._watched: dict[int, tuple[str, ...]] = {}
        for index in range(self.size):
            self.join(index)
        self._at(self.now + 20.0, self._tick)  # no world is formed later
        self._decide()
        self.run(1.0)
        for index in range(self.size):
            self._at(self.now + self.rng.uniform(0, HEARTBEAT_SECONDS), self._beat, index)
        for index, addresses in self._watched.items():
            for address in addresses:
                phase = self.rng.uniform(0, KEEPALIVE_SECONDS)
                self._at(self.now + phase, self._keep_alive, index, address)

    # --- faults

    def cut(self, index: int, span: Span) -> None:
        """Let nothing get to a node or from it."""
        self.lose_from(index, span)
        self.lose_to(index, span)

    def lose_from(self, index: int, span: Span) -> None:
        """Lose what a node sends."""
        for other in (MASTER, *range(self.size)):
            self.lost[index, other].append(span)

    def lose_to(self, index: int, span: Span) -> None:
        """Lose what is sent to a node."""
        for other in (MASTER, *range(self.size)):
            self.lost[other, index].append(span)

    # --- time

    def heal(self) -> None:
        """End all faults."""
        self.lost.clear()
        self.frozen.clear()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, work = heappop(self._events)
            work()
        self.now = end

    def join(self, index: int) -> None:
        """Register a member and open its stream."""
        uid = str(index)
        node = f"node-{index // self.per_node}"
        self.apply(
            MemberRegistered(
                Identity(f"pod-{uid}", uid, "worker", index, 0, f"10.0.0.{uid}", node_name=node)
            )
        )
        self.apply(MemberConnected(uid, watches=True))

    def apply(self, event: Event) -> None:
        """Have the master handle an event, and decide, as it does for all but a heartbeat."""
        for command in advance(self.state, self.now, event) or ():
            self._execute(command)
        if not isinstance(event, HeartbeatReceived):
            self._decide()

    def _decide(self) -> None:
        for command in advance(self.state, self.now):
            self._execute(command)
        if self.state.suspicions.by_address and not self._decides_again:
            self._decides_again = True
            self._at(self._awake(MASTER, self.now + TICK_SECONDS), self._tick)

    def _tick(self) -> None:
        self._decides_again = False
        self._decide()

    def _at(self, time: float, work: Callable[..., None], *arguments: object) -> None:
        heappush(self._events, (time, next(self._number), lambda: work(*arguments)))

    # --- the network

    def _passes(self, source: int, target: int, time: float) -> bool:
        spans = self.lost.get((source, target))
        return spans is None or not any(begin <= time < end for begin, end in spans)

    def _answers(self, source: int, target: int, time: float) -> bool:
        return self._passes(source, target, time) and self._passes(target, source, time)

    def _delivered(self, source: int, target: int, time: float) -> float:
        """Return when a message arrives, and is read."""
        while not self._passes(source, target, time):
            if time == FOREVER:
                return time
            ends = [end for begin, end in self.lost[source, target] if begin <= time < end]
            time = max(ends) + self.rng.uniform(0, 0.4)
        return self._awake(target, time + _ROUND_TRIP)

    def _awake(self, index: int, time: float) -> float:
        for begin, end in sorted(self.frozen.get(index, ())):
            if begin <= time < end:
                time = end + self.rng.uniform(0, 0.05)
        return time

    # --- the agents

    def _send(self, index: int, event: Event) -> None:
        arrival = self._delivered(index, MASTER, self.now)
        if arrival < FOREVER:
            self._at(arrival, self.apply, event)

    def _beat(self, index: int) -> None:
        if str(index) in self.state.world_uids and index not in self.removed:
            self._send(index, HeartbeatReceived(str(index), Usage()))
        after = self._awake(index, self.now + HEARTBEAT_SECONDS)
        self._at(after, self._beat, index)

    def _keep_alive(self, index: int, address: str) -> None:
        if self._answers(index, self._index(address), self.now):
            self._at(self.now + KEEPALIVE_SECONDS, self._keep_alive, index, address)
        else:
            self._at(self.now + KEEPALIVE_SECONDS, self._check, index, address, self.now)

    def _check(self, index: int, address: str, began: float) -> None:
        """Try again, and report what does not answer."""
        self._at(self._awake(index, self.now), self._check_awake, index, address, began)

    def _check_awake(self, index: int, address: str, began: float) -> None:
        if self._tries(index, address, CHECK_SECONDS):
            self._at(self.now + KEEPALIVE_SECONDS, self._keep_alive, index, address)
            return
        self._at(self._awake(index, self.now + CHECK_SECONDS), self._report, index, address, began)

    def _report(self, index: int, address: str, began: float) -> None:
        ago = self.now - began
        self._send(index, NodeUnreached(str(index), address, ago))
        self._at(self.now + RECONNECT_SECONDS, self._keep_alive, index, address)

    def _tries(self, index: int, address: str, seconds: float) -> bool:
        target = self._index(address)
        times = [self.now]
        while times[-1] + TRY_SECONDS + 0.05 < self.now + seconds:
            times.append(times[-1] + TRY_SECONDS + 0.05)
        return any(self._answers(index, target, time) for time in times)

    def _execute(self, command: Command) -> None:
        index = int(command.uid)
        if isinstance(command, Watch):
            self._watched[index] = command.addresses
        elif isinstance(command, MemberRemoved):
            self.removed[index] = self.now
        elif isinstance(command, Start):
            self._carry_out(index, ProcessStarted(command.uid, command.round))
        elif isinstance(command, Stop):
            self._carry_out(index, ProcessExited(command.uid, command.round, 0, requested=True))
        elif isinstance(command, Probe):
            self.probes += bool(command.addresses)
            arrival = self._delivered(MASTER, index, self.now)
            if arrival < FOREVER:
                self._at(arrival, self._probe, index, command)

    def _carry_out(self, index: int, event: Event) -> None:
        arrival = self._delivered(MASTER, index, self.now)
        if arrival < FOREVER:
            self._at(arrival, self._send, index, event)

    def _probe(self, index: int, probe: Probe) -> None:
        unreached = frozenset(
            each for each in probe.addresses if not self._tries(index, each, PROBE_SECONDS)
        )
        event = NodesProbed(str(index), probe.number, unreached)
        end = self._awake(index, self.now + (PROBE_SECONDS if unreached else _ROUND_TRIP))
        self._at(end, self._send, index, event)

    def _index(self, address: str) -> int:
        return int(address.rpartition(".")[2])
