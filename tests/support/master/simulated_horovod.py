"""Horovod processes that continue from world to world, below simulated agents.

The real rendezvous is their driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elasticjob_api.refusals import NotCurrent, NotReadyYet
from elasticjob_master.core.rendezvous.commands import (
    Command,
    Drain,
    Exit,
    HostsUpdated,
    Start,
    Stop,
)
from elasticjob_master.core.rendezvous.current_process import check_process
from elasticjob_master.core.rendezvous.elastic_driver import may_join
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.member_events import PlaceRequested, PlaceTaken
from elasticjob_master.core.rendezvous.rules import Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.persistence.snapshot import restore_member, store_member
from elasticjob_master.persistence.stored_state import StoredMember

from tests.support.master.simulated_agents import SimulatedAgent, SimulatedRendezvous

RULES = Rules(in_process_elastic=True, elastic_driver=True, deciding_role="worker")


@dataclass
class HorovodProcess:
    """One process.

    Attributes:
        joined: the round of the world in which it is, or was; 0: none.
        has_state: it has trained, or has got the state of one that has.
        announced: the latest round that was announced to it.
    """

    started: int
    phase: Literal["importing", "asking", "training"] = "importing"
    joined: int = 0
    has_state: bool = False
    announced: int = 0


class SimulatedHorovod(SimulatedRendezvous):
    """A job whose processes check that all of them get the same places in the same worlds."""

    def __init__(self, *, minimum: int = 1, desired: int = 3) -> None:
        super().__init__(minimum=minimum, desired=desired, rules=RULES)
        self.processes: dict[str, HorovodProcess] = {}
        self.worlds_by_round: dict[int, tuple[str, ...]] = {}
        self.first_states = 0

    def joined_round(self, agent: SimulatedAgent) -> int:
        process = self.processes.get(agent.identity.pod_uid)
        return process.joined if process else 0

    def kill(self, agent: SimulatedAgent) -> None:
        self._process_gone(agent)
        super().kill(agent)

    def end_process(
        self,
        agent: SimulatedAgent,
        code: int,
        *,
        asked: bool,
        retry: bool = False,
        seconds_ago: float = 0.0,
    ) -> None:
        self._process_gone(agent)
        super().end_process(agent, code, asked=asked, retry=retry, seconds_ago=seconds_ago)

    def _process_gone(self, agent: SimulatedAgent) -> None:
        """The others of its world get errors in their next step, and ask for another world."""
        gone = self.processes.pop(agent.identity.pod_uid, None)
        for process in self.processes.values():
            if (
                gone is not None
                and gone.joined
                and process.joined == gone.joined
                and process.phase == "training"
            ):
                process.phase = "asking"

    def check(self, command: Command) -> None:
        if isinstance(command, Start):
            super().check(command)

    def handle_command(self, agent: SimulatedAgent) -> None:
        uid = agent.identity.pod_uid
        command = agent.inbox[0]
        match command:
            case HostsUpdated():
                agent.inbox.popleft()
                process = self.processes.get(uid)
                if process is not None and process.joined:
                    process.announced = command.round
            case Start() | Stop() | Drain() | Exit():
                before = agent.running
                super().handle_command(agent)
                if agent.running and agent.running != before:
                    self.processes[uid] = HorovodProcess(agent.running)

    def proceed(self, agent: SimulatedAgent) -> None:
        """Let an agent's process make its next step: import, ask, look for an answer, commit."""
        uid = agent.identity.pod_uid
        process = self.processes.get(uid)
        if process is None:
            return
        if process.phase == "importing":
            process.phase = "asking"
        elif process.phase == "training":
            world = [
                p
                for p in self.processes.values()
                if p.joined == process.joined and p.phase == "training"
            ]
            if any(p.announced > p.joined for p in world):
                for each in world:  # all ranks leave it at the same commit
                    each.phase = "asking"
        elif agent.connected:
            self._ask(agent, process)

    def _ask(self, agent: SimulatedAgent, process: HorovodProcess) -> None:
        uid = agent.identity.pod_uid
        try:
            check_process(self.rendezvous, uid, process.started)
            self.apply(PlaceRequested(uid, process.joined))
            self.advance()
            member = check_process(self.rendezvous, uid, process.started)
        except (NotCurrent, NotReadyYet):
            return
        if may_join(self.rendezvous, member, process.joined):
            self._take_place(agent, process)
        elif member.leaving and not self.rendezvous.in_world(member.uid):
            self.end_process(agent, 134, asked=True)

    def _take_place(self, agent: SimulatedAgent, process: HorovodProcess) -> None:
        rendezvous = self.rendezvous
        if not process.joined:
            assert process.started == rendezvous.round, (
                "its environment has the rank and size of another world"
            )
        before = self.worlds_by_round.setdefault(rendezvous.round, rendezvous.world)
        assert before == rendezvous.world, f"another world in round {rendezvous.round}"
        others = [self.processes[uid] for uid in rendezvous.world if uid in self.processes]
        for other in others:
            known = other.joined == rendezvous.round or other.phase == "asking"
            assert known, f"{rendezvous.world} has begun while one of it is {other}"
        if not process.has_state and not any(other.has_state for other in others):
            holders = [p for p in self.processes.values() if p.has_state and p.joined]
            assert not holders, f"{rendezvous.world} begins from nothing beside {holders}"
            self.first_states += 1
        for other in others:
            other.has_state = True
        for other in self.processes.values():
            waits = other.phase == "training" and other.joined not in (
                process.joined,
                rendezvous.round,
            )
            if (
                waits
                and agent.identity.pod_uid in self.worlds_by_round[other.joined]
                and other.joined > process.joined
            ):
                raise AssertionError(f"{other} waits for one that is told {rendezvous.round}")
        process.joined = rendezvous.round
        process.phase = "training"
        if agent.connected:
            self.apply(PlaceTaken(agent.identity.pod_uid, rendezvous.round))
            self.advance()

    def stored_members(self) -> list[StoredMember]:
        """Return the members as they are stored now."""
        return [store_member(member) for member in self.members]

    def restart_master(self, stored: list[StoredMember] | None = None) -> None:
        """Have another master continue from what this one has stored, now or earlier.

        All streams end.
        """
        before = self.rendezvous
        stored = stored or self.stored_members()
        self.begin_state(RendezvousState(rules=RULES, timing=Timing(lost=10.0), sizes=before.sizes))
        self.apply(
            StateRestored(
                members=tuple(restore_member(each, self.now) for each in stored),
                phase=before.phase,
                round=before.round,
                world=before.world,
                finished=before.finished_at is not None,
                world_failed=before.world_failed,
                successors=before.successors,
            )
        )
        for agent in self.agents.values():
            agent.connected = False
            agent.inbox.clear()
        self.worlds.clear()

    def run_until_quiet(self) -> None:
        for _ in range(200):
            self.advance(0.25)
            for agent in self.alive():
                if not agent.connected:
                    self.connect(agent)
                while agent.inbox:
                    self.handle_command(agent)
                self.proceed(agent)

    def training(self) -> dict[str, int]:
        """Return the round of each process that trains."""
        return {uid: p.joined for uid, p in self.processes.items() if p.phase == "training"}
