"""Runs a real master and real agents: a starved agent costs no training."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2, job_pb2, job_pb2_grpc

from tests.support.local_job import LocalJob
from tests.support.master_process import Master, run_master
from tests.support.wait import until

pytestmark = pytest.mark.thorough

STANDALONE = ("--standalone", "--framework=custom", "--min=2", "--workers=2")
LOST_SECONDS = 30
TRAINING = """
import elasticjob, itertools, os, sys, time
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
for step in itertools.count(1):
    if elasticjob.should_stop():
        elasticjob.confirm_stop()
        break
    elasticjob.report_step(step, samples=1)
    time.sleep(0.02)
"""


@dataclass
class Job:
    """A master and two agents that train."""

    master: Master
    agents: list[subprocess.Popen[bytes]]
    folder: Path
    job: job_pb2_grpc.JobServiceAsyncStub

    async def states(self) -> list[int]:
        members = (await self.job.GetMembers(job_pb2.GetMembersRequest(), timeout=10)).members
        return [member.state for member in members]

    async def wait_for_states(self, *states: int) -> None:
        wanted = sorted(states)
        await until(
            f"states {wanted}",
            self.states,
            lambda found: sorted(found) == wanted,
            seconds=LOST_SECONDS,
        )

    async def wait_for_steps(self) -> None:
        """Wait until both agents have reported a later step."""
        before = await self._steps()
        await until(
            f"steps beyond {before}",
            self._steps,
            lambda now: all(step > then for step, then in zip(now, before, strict=True)),
            seconds=LOST_SECONDS,
        )

    async def _steps(self) -> list[int]:
        members = (await self.job.GetMembers(job_pb2.GetMembersRequest(), timeout=10)).members
        return [member.step for member in members]

    def trainings(self) -> list[str]:
        """Return the pid of each training process that was ever started."""
        return [
            pid
            for path in sorted(self.folder.glob("started-*"))
            for pid in path.read_text().split()
        ]

    async def check_nothing_happened(self) -> None:
        status = await self.job.GetStatus(job_pb2.GetStatusRequest(), timeout=10)
        assert (status.round, status.world_size) == (1, 2), self.master.log.read_text()
        assert len(self.trainings()) == 2, "a training process was restarted"
        assert not re.search(r"lost|no member any more", self.master.log.read_text())


@pytest.fixture
async def job(local_job: LocalJob) -> AsyncIterator[Job]:
    folder = local_job.folder
    local_job.framework = "custom"
    script = folder / "train.py"
    script.write_text(TRAINING)
    async with (
        run_master(
            folder, *STANDALONE, ports=(names.GRPC_PORT, 0), address=local_job.host
        ) as master,
        master.channel() as channel,
    ):
        agents = [
            local_job.start_agent(
                index, sys.executable, str(script), str(folder / f"started-{index}")
            )
            for index in range(2)
        ]
        running = Job(master, agents, folder, job_pb2_grpc.JobServiceStub(channel))
        await until("both processes train", lambda: len(running.trainings()) == 2)
        await running.wait_for_steps()
        yield running
        agents[0].send_signal(signal.SIGCONT)


@pytest.mark.guarantee("slow-agent")
async def test_an_agent_without_cpu_for_15_seconds_is_suspected_and_not_lost(job: Job) -> None:
    agent = job.agents[0]
    agent.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    await job.wait_for_states(agent_pb2.MEMBER_STATE_SUSPECTED, agent_pb2.MEMBER_STATE_TRAINING)
    await asyncio.sleep(stopped + 15 - time.monotonic())
    agent.send_signal(signal.SIGCONT)
    await job.wait_for_states(agent_pb2.MEMBER_STATE_TRAINING, agent_pb2.MEMBER_STATE_TRAINING)
    await job.wait_for_steps()
    await job.check_nothing_happened()
