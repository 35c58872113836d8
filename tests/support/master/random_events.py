"""What may happen to simulated agents in a random history, whatever their processes do."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.master.simulated_agents import SimulatedAgent, SimulatedRendezvous

ANY = st.integers(0, 9)
"""Chooses one of the agents."""


class RandomEvents(RuleBasedStateMachine):
    """Agents join, drain and are lost, and their streams break, in any order."""

    job: SimulatedRendezvous

    def pick(self, number: int, agents: list[SimulatedAgent]) -> SimulatedAgent | None:
        return agents[number % len(agents)] if agents else None

    @rule(index=st.integers(0, 4))
    def join(self, index: int) -> None:
        for agent in self.job.alive():
            if agent.identity.index == index:
                self.job.kill(agent)
        self.job.join(index)

    @rule(number=ANY)
    def handle_command(self, number: int) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if a.inbox])
        if agent:
            self.job.handle_command(agent)

    @rule(number=ANY)
    def lose_stream(self, number: int) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if a.connected])
        if agent:
            self.job.disconnect(agent)

    @rule(number=ANY)
    def reconnect(self, number: int) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if not a.connected])
        if agent:
            self.job.connect(agent)

    @rule(number=ANY)
    def lose_pod(self, number: int) -> None:
        agent = self.pick(number, self.job.alive())
        if agent:
            self.job.kill(agent)

    @rule(number=ANY)
    def drain(self, number: int) -> None:
        agent = self.pick(number, self.job.alive())
        if agent:
            self.job.drain(agent, 5.0)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 2.5, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.job.advance(seconds)
