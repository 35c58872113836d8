"""The health monitor: when a missing step is a stall, and what happens then."""

from __future__ import annotations

import pytest
from elasticjob_api.health import Health
from elasticjob_api.step_report import StepReport
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.commands import CollectStacks, Command, Start, Stop
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.stacks import Stack
from elasticjob_master.job_facts import JobFacts


class Job(Controller):
    """A job of two members, with a simulated clock and simulated agents."""

    clock = 100.0
    answers = True

    def __init__(self, framework: str = "jax", health: Health | None = None) -> None:
        # Horovod with a launcher somewhere else, whose driver has its own processes.
        sizes = {"worker": RoleSize(1, 2), "launcher": RoleSize(0, 0)}
        facts = JobFacts(sizes=sizes, health=health or Health(stall_seconds=20))
        super().__init__(framework=framework, facts=facts)
        self.sent: list[Command] = []
        self.send = self.sent.append
        for index in (0, 1):
            self.register(
                Identity(f"job-worker-{index}", f"u{index}", "worker", index, address="127.0.0.1")
            )
            self.connect(MemberConnected(f"u{index}"), self.send)
        self.handle_commands()

    def now(self) -> float:
        return self.clock

    def handle_commands(self) -> None:
        """Let the master decide and the agents handle the commands, until there are no more."""
        while True:
            self.decisions.decide_now()
            if not self.sent:
                return
            commands = list(self.sent)
            self.sent[:] = []
            for command in commands:
                member = self.members.get(command.uid)
                assert member is not None
                if isinstance(command, Start):
                    self.handle(ProcessStarted(member.uid, command.round))
                elif isinstance(command, Stop):
                    event = ProcessExited(member.uid, command.round, 143, requested=True)
                    self.exited(member, event)
                elif isinstance(command, CollectStacks) and self.answers:
                    frames = (
                        ("barrier (elasticjob/key_value.py:1)",)
                        if member.uid == "u0"
                        else ("f (x:1)",)
                    )
                    self.stacks.answer(member.uid, command.number, {0: Stack(frames)})

    def wait(self, seconds: int, *, silent: bool = False) -> None:
        """Let time pass; the agents send heartbeats unless they are `silent`."""
        for _ in range(seconds):
            self.clock += 1.0
            for member in self.members:
                if not silent:
                    member.last_heard_at = self.clock
            self.handle_commands()
            self.tick_monitors(self.clock)

    def train(self, steps: int, *, process_round: int = 1) -> None:
        """Finish steps, one a second."""
        for _ in range(steps):
            self.wait(1)
            for member in self.members:
                self.step(member, StepReport(process_round, member.step + 1, seconds=1.0, steps=1))

    def reasons(self) -> list[str]:
        """Return the reasons of the events in the history, oldest first."""
        return [event.reason for event in self.history.events()]


async def test_members_that_live_and_do_not_step_are_a_stall() -> None:
    job = Job()
    job.train(15)
    job.wait(20)
    assert job.health_monitor.stall.since is None
    job.wait(2)
    assert job.health_monitor.stall.since is not None


@pytest.mark.guarantee("network-cut")
async def test_a_cut_network_is_no_stall() -> None:
    job = Job()
    job.train(15)
    for member in list(job.members):
        job.disconnect(member.uid, job.send)
    job.wait(25, silent=True)
    for index in (0, 1):
        assert job.connect(MemberConnected(f"u{index}", running_round=1), job.send) is not None
    job.wait(15)
    assert (job.health_monitor.stall.since, job.rendezvous.round) == (None, 1)


async def test_members_that_are_silent_are_no_stall_but_suspected() -> None:
    job = Job(health=Health(stall_seconds=20, lost_seconds=60))
    job.train(15)
    job.wait(100, silent=True)
    assert job.health_monitor.stall.since is None
    assert {member.state for member in job.members} == {"suspected"}


async def test_a_finished_training_is_no_stall() -> None:
    job = Job()
    job.train(15)
    for member in list(job.members):
        job.exited(member, ProcessExited(member.uid, 1, 0))
    job.wait(200)
    assert job.health_monitor.stall.since is None


@pytest.mark.parametrize("framework", ["jax", "horovod"])
async def test_on_a_stall_all_processes_restart_once_if_the_job_says_so(
    framework: str,
) -> None:
    job = Job(framework, Health(stall_seconds=20, on_stall="Restart"))
    job.train(15)
    job.wait(30)
    assert (job.rendezvous.round, job.health_monitor.stall.restarts) == (2, 1)
    assert job.health_monitor.stall.since is not None, "until there is a step"
    job.train(1, process_round=2)
    assert job.health_monitor.stall.since is None
    assert [each for each in job.reasons() if "tall" in each or each == "Resumed"] == [
        "Stalled",
        "StallExplained",
        "RestartedForStall",
        "Resumed",
    ]


async def test_a_process_that_continues_in_the_next_world_keeps_its_steps() -> None:
    job = Job("horovod")
    job.train(15)
    job.rendezvous.round = (
        2  # the next round begins while the world still runs, as when a member joins
    )
    job.train(5)
    assert job.progress.step == 20
    assert job.progress.reporter_count() == 2


@pytest.mark.guarantee("training-hangs")
@pytest.mark.parametrize(("answers", "seconds"), [(True, 3), (False, 12)])
async def test_a_restart_waits_for_the_stacks_of_the_stall_but_not_for_long(
    answers: bool, seconds: int
) -> None:
    job = Job(health=Health(stall_seconds=20, on_stall="Restart"))
    job.answers = answers
    job.train(15)
    while job.health_monitor.stalled_since is None:
        job.wait(1)
    assert job.rendezvous.round == 1
    job.wait(min(seconds, 9))
    assert job.rendezvous.round == (2 if answers else 1)
    job.wait(seconds)
    assert job.rendezvous.round == 2
    why = "rank 0 waits in elasticjob barrier; rank 1 does not: it is in f (x:1)"
    assert job.health_monitor.why_stalled == (why if answers else SILENT)
    job.train(1, process_round=2)
    assert job.health_monitor.why_stalled == "", "a step ends the stall"


SILENT = "ranks 0-1: its agent has not answered in time"
