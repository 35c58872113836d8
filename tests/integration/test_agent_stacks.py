"""Reads the stacks of real training processes as the agent does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from elasticjob_agent import stacks, torchrun_ranks
from elasticjob_agent.stacks import Stacks
from elasticjob_agent.training_socket import TrainingSocket
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.wait import until

PROGRAM = """
import time, elasticjob
def sleeps():
    elasticjob.report_step(1)
    time.sleep(3600)
sleeps()
"""


class Setting:
    """A training process in a shell, and the agent's part that reads its stack."""

    def __init__(self, socket: TrainingSocket, shell: int) -> None:
        self.stacks = Stacks(socket, lambda: 1 << 40, None)
        self._shell = shell

    async def read(self, *, may_pause: bool = False) -> pb.ProcessStack:
        request = pb.CollectStacks(number=3, may_pause=may_pause)
        found = await self.stacks.collect(request, [self._shell], ())
        assert found is not None
        assert found.number == 3
        return found.processes[0]


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    stepped = asyncio.Event()
    async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
        socket = TrainingSocket(
            channel=channel, pod_uid="uid", on_report=lambda _report: stepped.set()
        )
        await socket.open()
        socket.begin_round(1, pb.World(), 1)
        shell = subprocess.Popen(
            ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", PROGRAM],
            env={**os.environ, names.ENV_SOCKET: str(socket.path)},
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(stepped.wait(), 60)
            yield Setting(socket, shell.pid)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            await socket.close()


@pytest.mark.guarantee("training-hangs")
async def test_the_stack_of_a_process_is_read_by_py_spy_or_told_by_the_program(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = await setting.read()
    assert read.frames[0].startswith("sleeps ("), read
    native = await setting.read(may_pause=True)
    assert any("sleep" in frame and "libc" in frame for frame in native.frames), native
    monkeypatch.setattr(stacks, "dying_with_parent", lambda _command: ["false"])
    told = await setting.read()
    assert (told.frames, told.problem) == (read.frames, "")
    assert len(told.other_threads) == len(read.other_threads)


@pytest.mark.guarantee("training-hangs")
async def test_a_stopped_process_stays_stopped_and_is_reported(setting: Setting) -> None:
    (pid,) = stacks._processes_of_ranks([setting._shell], (), None)
    os.kill(pid, signal.SIGSTOP)
    await until("the process is stopped", lambda: stacks._is_stopped(pid))
    found = await setting.read(may_pause=True)
    assert "stopped by a signal" in found.problem
    assert found.frames[0].startswith("sleeps (")
    assert stacks._is_stopped(pid)


@pytest.mark.guarantee("diagnosis-ends-no-agent")
async def test_the_stacks_are_read_whatever_local_rank_a_program_below_a_launcher_sets() -> None:
    rank = "LOCAL_RANK=1 OF_LAUNCHER=yes sleep 1000"
    odd = f"LOCAL_RANK={'9' * 5000} OF_LAUNCHER=yes sleep 1000"
    launcher = subprocess.Popen(["sh", "-c", f"{odd} & {rank} & wait"], start_new_session=True)
    try:
        await until("both processes", lambda: len(torchrun_ranks.processes("OF_LAUNCHER", ())) == 2)
        none, pid = stacks._processes_of_ranks([launcher.pid], (), "OF_LAUNCHER")
        assert (none, pid > 0) == (0, True)
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
