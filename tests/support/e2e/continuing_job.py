"""Runs a job whose processes continue from world to world, and checks what they have trained."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import psutil

from tests.support.framework_python import LIBRARY
from tests.support.local_job import LocalJob


@dataclass(frozen=True)
class Step:
    """A commit, as one process has printed it."""

    time: float
    process: int
    step: int
    rank: int
    size: int
    round: int
    digest: str


class Run:
    """One job of a program with worlds, and what its processes have printed."""

    def __init__(
        self,
        job: LocalJob,
        framework: str,
        python: str,
        script: str,
        environment: Mapping[str, str],
        *,
        lost_seconds: int,
        least: int = 2,
    ) -> None:
        self.job = job
        job.framework = framework
        self.command = (python, script)
        self.environment = {
            "FOLDER": str(job.folder),
            "PYTHONPATH": LIBRARY,
            "GLOO_SOCKET_IFNAME": "lo",
            **environment,
        }
        job.start_master(least, "--on-world-change=Notify", f"--lost-seconds={lost_seconds}")

    def add(self, index: int, **environment: str) -> subprocess.Popen[bytes]:
        return self.job.start_agent(index, *self.command, **self.environment, **environment)

    def steps(self) -> list[Step]:
        found = re.findall(
            r"^([\d.]+) (\d+) step (\d+) rank (\d+) of (\d+) round (\d+) (\w+)$",
            self.job.log(),
            re.MULTILINE,
        )
        return [
            Step(float(when), int(process), int(step), int(rank), int(size), int(round_), digest)
            for when, process, step, rank, size, round_, digest in found
        ]

    def trains(self, size: int, *, after: int = 0, beyond: int = 0) -> int:
        """Wait until all ranks of a world after a round have committed; return its round."""

        def ranks() -> int:
            here = [s for s in self.steps() if s.size == size and s.round > after]
            newest = max((s.round for s in here), default=0)
            done = {s.rank for s in here if s.round == newest and s.step > beyond}
            return newest if len(done) == size else 0

        self.job.wait(f"a world of {size} after round {after} trains", ranks)
        return ranks()

    def finish(self, *agents: subprocess.Popen[bytes]) -> list[int]:
        (self.job.folder / "finish").touch()
        self.job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
        return [agent.returncode for agent in agents]

    def started_again(self) -> int:
        """Return how many processes have started again, by themselves or by their agents.

        They had begun to receive from a killed process. Gloo forgets such a receive.
        """
        return len(re.findall(r"exited with (?:0|143) \(requested: True\)", self.job.log()))

    def check(self, processes: int) -> None:
        """Check that all ranks have the same parameters, and that no sample is lost or twice."""
        steps = self.steps()
        digests: dict[tuple[int, int], set[str]] = {}
        for each in steps:
            digests.setdefault((each.round, each.step), set()).add(each.digest)
        assert [key for key, found in digests.items() if len(found) > 1] == []
        assert processes in (0, len({each.process for each in steps}))
        ends = re.findall(r"end: step (\d+) (\w+) error ([\d.e-]+) exact (\w+)", self.job.log())
        assert len({(step, digest) for step, digest, *_ in ends}) == 1
        for _step, _digest, error, exact in ends:
            assert float(error) < 1e-9
            assert exact == "True", "a sample is lost, or in the model twice"


def child_of(agent: subprocess.Popen[bytes]) -> psutil.Process:
    (process,) = psutil.Process(agent.pid).children()
    return process


def check_a_frozen_pod_of_rank_0(run: Run) -> None:
    """Freeze the pod of rank 0 until the others train without it; then all train again."""
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    (first,) = {each.process for each in run.steps() if (each.round, each.rank) == (world, 0)}
    (agent,) = (agent for agent in agents if child_of(agent).pid == first)
    frozen = [psutil.Process(agent.pid), psutil.Process(first)]
    for process in frozen:
        process.suspend()
    world = run.trains(2, after=world)
    for process in frozen:
        process.resume()
    run.trains(3, after=world)  # its agent has started another process
    assert run.finish(*agents) == [0, 0, 0]
    run.check(processes=4)


def check_a_stop_of_all_processes(run: Run) -> None:
    """Stop all pods; new ones continue after the last step."""
    agents = [run.add(index) for index in range(2)]
    world = run.trains(2, beyond=3)
    for agent in agents:
        agent.send_signal(signal.SIGTERM)
    run.job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    last = max(step.step for step in run.steps())
    agents = [run.add(index) for index in range(2)]
    world = run.trains(2, after=world)
    assert min(step.step for step in run.steps() if step.round == world) == last + 1
    assert run.finish(*agents) == [0, 0]
    run.check(processes=4)


def check_an_error_of_the_program(run: Run) -> None:
    """Let one of three processes fail; the others train on."""
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    (run.job.folder / f"fail-{child_of(agents[2]).pid}").touch()
    run.trains(2, after=world)
    assert run.finish(*agents) == [0, 0, 1]
    assert "an error of the program" in run.job.log()
    run.check(processes=3)


def check_a_member_that_comes_too_late(run: Run) -> None:
    """Let a third one join two that have finished, but whose processes have not ended."""
    agents = [run.add(index) for index in range(2)]
    run.trains(2)
    (run.job.folder / "hold").touch()
    (run.job.folder / "finish").touch()
    run.job.wait("both have finished", lambda: run.job.log().count("end: step") == 2)
    last = max(step.step for step in run.steps())
    agents.append(run.add(2))
    run.job.wait("it is in a world", lambda: "training: 3 members in the world" in run.job.log())
    (run.job.folder / "hold").unlink()
    assert run.finish(*agents) == [0, 0, 0]
    late = [step for step in run.steps() if step.size == 1]
    assert [step.step for step in late] == [last + 1], "it continues at the end"
    assert run.job.log().count("exact True") == 3


def check_a_loss_of_all_processes(run: Run) -> None:
    """Kill all pods between the checkpoints of every tenth step, and train on with new ones."""
    agents = [run.add(index) for index in range(2)]
    world = run.trains(2, beyond=15)
    for agent in agents:
        for process in psutil.Process(agent.pid).children():
            process.kill()
        agent.kill()
        agent.wait()
    last = max(step.step for step in run.steps())
    agents = [run.add(index) for index in range(2)]
    world = run.trains(2, after=world)
    assert 10 < min(step.step for step in run.steps() if step.round == world) <= last
    assert run.finish(*agents) == [0, 0]
    run.check(processes=4)


def check_random_kills(run: Run, choose: random.Random, *, pods_only: bool = False) -> None:
    """Kill pods of three, or processes alone, at random times, some while a process joins."""
    agents = {index: run.add(index) for index in range(3)}
    world = run.trains(3)
    for _ in range(4):
        index = choose.choice(sorted(agents))
        time.sleep(choose.random())  # the moment of the kill
        killed = agents.pop(index)
        children = psutil.Process(killed.pid).children()
        for process in children:
            process.kill()
        if pods_only or not children or choose.random() < 0.3:
            killed.kill()  # the whole pod
        run.job.wait(
            "the end of the pod, or its next process", partial(_replaced, killed, children)
        )
        if killed.poll() is None:
            agents[index] = killed  # another failure excuses that of this process
        else:
            agents[index] = run.add(index)
        if choose.random() < 0.5:
            time.sleep(6 * choose.random())  # the next one comes while the new process joins
        else:
            world = run.trains(3, after=world)
    steps = max(step.step for step in run.steps())
    run.trains(3, beyond=steps + 10)
    assert run.finish(*agents.values()) == [0, 0, 0]
    run.check(processes=0)


def _replaced(agent: subprocess.Popen[bytes], killed: list[psutil.Process]) -> bool:
    if agent.poll() is not None:
        return True
    try:
        return bool(set(psutil.Process(agent.pid).children()) - set(killed))
    except psutil.NoSuchProcess:
        return False


def pauses(steps: list[Step]) -> dict[int, float]:
    """Return, by round, the seconds from the last step of any earlier world to its first one."""
    found = {}
    for round_ in sorted({each.round for each in steps}):
        before = [each.time for each in steps if each.round < round_]
        if before:
            found[round_] = min(s.time for s in steps if s.round == round_) - max(before)
    return found
