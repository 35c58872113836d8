"""A rendezvous with simulated agents, for the tests of worlds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from elasticjob_api.refusals import NotCurrent
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import (
    Command,
    Drain,
    Exit,
    MemberRemoved,
    ReleaseLeases,
    Start,
    Stop,
    WorldChanged,
)
from elasticjob_master.core.rendezvous.events import DrainOrdered, Event
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    MemberDisconnected,
    MemberRegistered,
    PlaceTaken,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.core.rendezvous.rules import RoleSize, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

from tests.support.master.census_check import check_census

MINIMUM = 2


@dataclass
class SimulatedAgent:
    """An agent that handles commands as the real one does, when the test says so.

    Attributes:
        running: the round of its process; 0: none runs.
        notified: the rounds of the worlds that were sent to its process after its start. Unless
            it is `deaf`, it has taken the last one.
        joined: the round of the latest of these that it has taken.
        last: the last round it has started a process in.
        unreported: round and exit code of the process that has ended last, and whether its exit was
            requested.
    """

    identity: Identity
    connected: bool = False
    running: int = 0
    notified: list[int] = field(default_factory=list)
    joined: int = 0
    deaf: bool = False
    last: int = 0
    unreported: tuple[int, int, bool] | None = None
    draining: bool = False
    ended: bool = False
    inbox: deque[Command] = field(default_factory=deque)
    starts: list[int] = field(default_factory=list)
    excused_in: list[int] = field(default_factory=list)


class SimulatedRendezvous:
    """A rendezvous with simulated agents; the test advances the time."""

    def __init__(
        self, *, minimum: int = MINIMUM, desired: int = 3, rules: Rules | None = None
    ) -> None:
        self.now = 1000.0
        self.commands_of_events: list[Command] = []
        self.begin_state(
            RendezvousState(
                rules=rules or Rules(),
                timing=Timing(lost=10.0),
                sizes={"worker": RoleSize(minimum, desired)},
            )
        )
        self.agents: dict[str, SimulatedAgent] = {}
        self.incarnations: dict[tuple[str, int], int] = {}
        self.worlds: dict[int, tuple[str, ...]] = {}
        self.leases_lost: list[str] = []

    def begin_state(self, state: RendezvousState) -> None:
        """Continue with another state, as a master that has started just now."""
        self.rendezvous = state
        self.members = state.members

    def apply(self, event: Event) -> None:
        """Apply an event; the next `advance` executes what follows."""
        self.commands_of_events += advance(self.rendezvous, self.now, event)

    def join(self, index: int, role: str = "worker") -> SimulatedAgent:
        incarnation = self.incarnations.get((role, index), -1) + 1
        self.incarnations[role, index] = incarnation
        uid = f"{index}.{incarnation}" if role == "worker" else f"{role}-{index}.{incarnation}"
        agent = SimulatedAgent(
            Identity(f"j-{role}-{uid}", uid, role, index, incarnation, f"10.0.0.{index}")
        )
        self.agents[uid] = agent
        self.connect(agent)
        return agent

    def connect(self, agent: SimulatedAgent) -> None:
        uid = agent.identity.pod_uid
        try:
            self.members.check_registration(agent.identity)
        except NotCurrent:
            self.kill(agent)  # the operator has replaced it
            return
        self.apply(MemberRegistered(agent.identity))
        agent.connected = True
        agent.inbox.clear()
        joined_round = self.joined_round(agent)
        self.apply(MemberConnected(uid, agent.running, joined_round, agent.draining))
        if agent.running == 0 and agent.unreported is not None:
            process_round, code, asked = agent.unreported
            self.apply(ProcessExited(uid, process_round, code, requested=asked))
        self.advance()

    def joined_round(self, agent: SimulatedAgent) -> int:
        """Return the round of the world that the agent's process has joined."""
        return agent.joined

    def disconnect(self, agent: SimulatedAgent) -> None:
        agent.connected = False
        agent.inbox.clear()
        self.apply(MemberDisconnected(agent.identity.pod_uid))
        self.advance()

    def kill(self, agent: SimulatedAgent) -> None:
        agent.ended = True
        agent.running = 0
        agent.joined = 0
        if agent.connected:
            self.disconnect(agent)

    def fail(self, how: str, agent: SimulatedAgent, *, retry: bool) -> None:
        """Kill or disconnect an agent, or crash its process, where there is something to fail."""
        if how == "kill":
            self.kill(agent)
        elif how == "disconnect" and agent.connected:
            self.disconnect(agent)
        elif how == "crash" and agent.running:
            self.end_process(agent, 1, asked=False, retry=retry)

    def end_process(
        self,
        agent: SimulatedAgent,
        code: int,
        *,
        asked: bool,
        retry: bool = False,
        seconds_ago: float = 0.0,
    ) -> None:
        process_round = agent.running
        agent.running = 0
        agent.joined = 0
        agent.notified = []
        agent.unreported = (process_round, code, asked)
        if agent.connected:
            uid = agent.identity.pod_uid
            self.apply(ProcessExited(uid, process_round, code, asked, retry, seconds_ago))
            self.advance()

    def advance(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for agent in self.agents.values():
            member = self.members.get(agent.identity.pod_uid)
            if agent.connected and member is not None:
                member.last_heard_at = self.now
        commands = self.commands_of_events + advance(self.rendezvous, self.now)
        check_census(self.rendezvous, self.now)
        self.commands_of_events = []
        for command in commands:
            self.check(command)
            if isinstance(command, ReleaseLeases):
                self.leases_lost.append(command.uid)
                continue
            agent = self.agents[command.uid]
            if isinstance(command, MemberRemoved):
                agent.connected = False
                agent.inbox.clear()
            elif agent.connected:
                agent.inbox.append(command)

    def advance_without_heartbeats_of(self, agent: SimulatedAgent, seconds: float) -> list[Command]:
        """Advance the time, in which all agents but one send heartbeats; return the commands."""
        self.now += seconds
        for member in self.members:
            if member.uid != agent.identity.pod_uid:
                member.last_heard_at = self.now
        return advance(self.rendezvous, self.now)

    def check(self, command: Command) -> None:
        if not isinstance(command, Start):
            return
        rendezvous = self.rendezvous
        assert command.round == rendezvous.round
        assert command.uid in rendezvous.world
        self.worlds.setdefault(command.round, rendezvous.world)
        assert self.worlds[command.round] == rendezvous.world, "one world a round"
        member = self.members.get(command.uid)
        assert member is not None
        assert not member.leaving, "no Start to a member that leaves"
        assert len(set(rendezvous.world)) == len(rendezvous.world)
        if rendezvous.round - 1 in self.worlds:
            before = self.worlds[rendezvous.round - 1]
            kept = [uid for uid in rendezvous.world if uid in before]
            assert kept == [uid for uid in before if uid in kept], "survivors keep their order"
            assert list(rendezvous.world[: len(kept)]) == kept, "new ones come last"

    def handle_command(self, agent: SimulatedAgent) -> None:
        """Handle the agent's next command."""
        command = agent.inbox.popleft()
        match command:
            case Start():
                if command.round > agent.last and not agent.draining:
                    assert agent.running == 0, "never two rounds on one member"
                    agent.running = agent.last = command.round
                    agent.unreported = None
                    agent.starts.append(command.round)
                    agent.excused_in += [command.round] if command.crash_excused else []
                    self.apply(ProcessStarted(agent.identity.pod_uid, command.round))
                    self.advance()
            case WorldChanged():
                if agent.running and command.round > max(agent.running, *agent.notified, 0):
                    agent.notified.append(command.round)
                if agent.running and not agent.deaf:
                    self.take_world(agent)
            case Stop():
                if agent.running == command.round:
                    self.end_process(agent, 0, asked=True)
            case Drain():
                agent.draining = True
                if agent.running:
                    self.end_process(agent, 0, asked=True)
                self.kill(agent)
            case Exit():
                self.kill(agent)

    def handle_all(self) -> None:
        """Let the agents handle their commands."""
        for agent in self.alive():
            while agent.inbox:
                self.handle_command(agent)

    def drain(self, agent: SimulatedAgent, seconds: float = 60.0) -> None:
        """Order that an agent's pod leaves within a time."""
        self.apply(DrainOrdered({agent.identity.pod_name: seconds}))
        self.advance()

    def take_world(self, agent: SimulatedAgent) -> None:
        """Let the agent's process take the latest world that was sent to it."""
        agent.joined = agent.notified[-1] if agent.notified else 0
        if agent.connected:
            self.apply(PlaceTaken(agent.identity.pod_uid, agent.joined))
            self.advance()

    def run_until_quiet(self) -> None:
        """Advance until nothing changes, with all agents connected and handling their commands."""
        for _ in range(400):
            self.advance(0.25)
            for agent in self.alive():
                if not agent.connected:
                    self.connect(agent)
            self.handle_all()

    def alive(self) -> list[SimulatedAgent]:
        return [agent for agent in self.agents.values() if not agent.ended]

    def running(self) -> list[str]:
        return [
            agent.identity.pod_uid
            for agent in self.alive()
            if agent.running == self.rendezvous.round > 0
        ]


def world_of(count: int, **options: int) -> tuple[SimulatedRendezvous, list[SimulatedAgent]]:
    job = SimulatedRendezvous(minimum=1, desired=options.get("desired", count))
    agents = [job.join(index) for index in range(count)]
    job.run_until_quiet()
    assert job.rendezvous.phase == "training"
    return job, agents
