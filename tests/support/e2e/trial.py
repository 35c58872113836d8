"""Disturbs a job of a real framework, and checks the worlds in its log.

Its program prints `round R size N from step S` when a world begins, and `round R size N stopped
after step S`.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import psutil
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.dev.observer import JobObserver
from elasticjob_client.answers import open_master
from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import get_job

from tests.support.e2e.sandbox import Sandbox
from tests.support.wait import until

SECONDS = 240.0


@dataclass
class Trial:
    """One job under test, with the durations of its reactions.

    `python` is the interpreter of its training processes, and `script` ends their command.
    """

    sandbox: Sandbox
    observer: JobObserver
    name: str
    python: str
    script: str = "train.py"
    timings: dict[str, float] = field(default_factory=dict)

    async def trains(self, pods: int, *, after_round: int = 0, beyond: int = 0) -> int:
        """Wait until a world of this number of pods and of a later round has finished a step beyond
        `beyond`.

        Return its round.
        """

        def at_work() -> int | None:
            status = self.observer.status
            formed = status.world_size == pods and status.phase == job_pb2.JOB_PHASE_TRAINING
            trained = status.progress.step > beyond and status.round > after_round
            return status.round if formed and trained else None

        return await self.observer.until(
            f"a world of {pods} that trains beyond {beyond}", at_work, seconds=SECONDS
        )

    async def timed(self, what: str, pods: int) -> None:
        """Wait for the first step of the next world, and note the seconds since now."""
        begun = time.monotonic()
        status = self.observer.status
        await self.trains(pods, after_round=status.round, beyond=-1)
        formed = time.monotonic() - begun
        print(f"MEASURED {self.name}: {what}: the world is formed after {formed:.1f} s")
        await self.trains(pods, after_round=status.round, beyond=self.observer.status.progress.step)
        self.timings[what] = time.monotonic() - begun
        print(f"MEASURED {self.name}: {what}: {self.timings[what]:.1f} s")

    async def scale(self, pods: int) -> None:
        """Change the size, and wait until it trains."""
        before = self.observer.status.world_size
        self.sandbox.kubectl("scale", f"ej/{self.name}", f"--replicas={pods}")
        await self.timed(f"{before} to {pods} pods: request to next step", pods)

    def kill_process(self, rank: int) -> str:
        """Kill one training process.

        Return the index of its member, because any member may have joined first.
        """
        process = self._process_of(rank)
        index = process.environ()[names.ENV_INDEX]
        process.send_signal(signal.SIGKILL)
        return index

    def training_processes(self) -> list[psutil.Process]:
        """Return the processes that run the script, without their agents and torchruns."""
        found = []
        for pod in self.observer.pods:
            for process in self.sandbox.processes(pod):
                words = process.cmdline()
                starter = any(
                    "torch.distributed.run" in word or "elasticjob-agent" in word for word in words
                )
                if (
                    not starter
                    and words[0].startswith(self.python)
                    and words[-1].endswith(self.script)
                ):
                    found.append(process)
        return found

    async def trains_through_changes(self, processes: int = 2) -> None:
        """Begin with two pods of these processes, scale to three and back, and kill the master."""
        await self.trains(2, beyond=100)
        assert len(self.training_processes()) == processes
        await self.scale(3)
        await self.scale(2)
        await self.survives_kill_of_the_master(2)

    async def survives_kill_of_the_master(self, pods: int) -> None:
        """Kill the master, and wait until a later one sees the same world continue."""
        status = self.observer.status
        starts = status.master_starts
        round_ = status.round
        step = status.progress.step
        self.sandbox.processes(f"{self.name}-master")[0].send_signal(signal.SIGKILL)
        await self.observer.until(
            "a new master", lambda: self.observer.status.master_starts > starts, seconds=SECONDS
        )
        await self.trains(pods, beyond=step)
        assert self.observer.status.round == round_, (
            "a new world was formed although only the master ended"
        )
        # A process that fails while an agent is still disconnected is excused: the loss of that
        # agent may be the cause.
        await until("reports of all agents", self._all_have_reported)

    async def _all_have_reported(self) -> bool:
        """Return whether the present master knows the usage of each member."""
        cluster = Cluster(self.sandbox.kube, self.sandbox.namespace)
        async with open_master(cluster, await get_job(cluster, self.name)) as master:
            found: job_pb2.MemberList = await master.get("Members")
        return all(member.usage.memory_bytes for member in found.members)

    async def succeeds(self) -> None:
        """Wait until the job has succeeded."""
        observer = self.observer
        await observer.until(
            "the job's success",
            lambda: observer.job and observer.job.status.phase == "Succeeded",
            seconds=2 * SECONDS,
        )

    def log(self) -> str:
        """Return the output of all present pods; rank 0 is in any of them."""
        listed = self.sandbox.kubectl(
            "get", "pods", "-l", f"{names.LABEL_ROLE}=worker", "-o", "name"
        )
        return "".join(self.sandbox.kubectl("logs", pod) for pod in listed.split())

    def _process_of(self, rank: int) -> psutil.Process:
        (process, *_) = [each for each in self.training_processes() if _rank(each) == rank]
        return process


def _rank(process: psutil.Process) -> int:
    environment = process.environ()
    # Those of torchrun have their own RANK.
    return int(environment.get("RANK") or environment[names.ENV_RANK])


@dataclass(frozen=True)
class World:
    """A world as rank 0 has printed it: processes, first step, and last step if it was stopped."""

    round: int
    size: int
    first: int
    last: int | None


def worlds(log: str) -> list[World]:
    """Return the worlds of a log, in their order."""
    begun = sorted(
        set(re.findall(r"round (\d+) size (\d+) from step (\d+)", log)),
        key=lambda found: int(found[0]),
    )
    stopped = dict(re.findall(r"round (\d+) (?:size \d+ )?stopped after step (\d+)", log))
    return [
        World(
            int(number), int(size), int(first), int(stopped[number]) if number in stopped else None
        )
        for number, size, first in begun
    ]


def check_worlds(log: str, sizes: Sequence[int] = (), *, checkpoint_steps: int) -> list[World]:
    """Check that each world began where its predecessor was stopped, or else at a checkpoint.

    The first worlds have these sizes, and the last one has the last of them. Return all worlds.
    """
    found = worlds(log)
    assert [world.size for world in found[: len(sizes)]] == [*sizes], found
    assert found[-1].size in sizes[-1:] or not sizes, found
    assert found[0].first == 0
    for before, after in pairwise(found):
        if before.last is not None:
            assert after.first == before.last, f"steps were lost or done twice: {found}"
        else:
            assert after.first % checkpoint_steps == 0 or after.first == before.first, found
    return found
