"""Compares processes that torchrun takes from standby to those that it starts cold.

A script acts as torchrun; tests/e2e/test_framework_torchrun.py does the same with the real one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run, alive
from tests.support.fake_master import FakeMaster, Received
from tests.support.standby import in_standby
from tests.support.standby_programs import (
    SHOW,
    Program,
    children,
    differences,
    waiting,
)
from tests.support.thorough import some_of
from tests.support.wait import until

TORCHRUN = f"""#!{sys.executable}
import os, subprocess, sys
import slow
size = int(os.environ["PET_NPROC_PER_NODE"])
def start(rank):
    env = {{
        **os.environ, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
        "TORCHELASTIC_RUN_ID": "none", "OMP_NUM_THREADS": "1",
    }}
    print("starts", rank, flush=True)
    return subprocess.Popen(
        args=(sys.executable, "-u", *sys.argv[1:]), env=env, start_new_session=True,
        stdout=open(f"out-{{rank}}", "w"),
    )
processes = [start(rank) for rank in range(size)]
print(*(process.pid for process in processes), flush=True)
sys.exit(max(abs(process.wait()) for process in processes))
"""
VARIABLES = {names.ENV_FRAMEWORK: "pytorch", names.ENV_SLOTS: "2"}


@pytest.fixture
def torchrun(program: Program) -> str:
    path = program.folder / "torchrun"
    path.write_text(TORCHRUN)
    path.chmod(0o755)
    return str(path)


class TorchrunWorlds:
    """The worlds of one agent with two processes that torchrun starts."""

    def __init__(self, master: FakeMaster, agent: AgentProcess, program: Program) -> None:
        self._master = master
        self._agent = agent
        self._program = program

    async def begin(self, round_: int) -> list[int]:
        """Begin a world; return the processes that torchrun has started or taken."""
        if round_ > 1:
            await self._master.order(stop=pb.Stop(round=round_ - 1, grace_seconds=5))
            await self._master.exited(round_ - 1)
        member = pb.Member(pod_name="job-worker-0", address="127.0.0.1", processes=2)
        world = pb.World(round=round_, members=[member])
        start = pb.Start(
            world=world,
            other_environments=[pb.ProcessEnvironment()],
        )
        await self._master.order(start=start)
        assert [await self._agent.line() for _ in range(2)] == ["starts 0", "starts 1"]
        return [int(pid) for pid in (await self._agent.line()).split()]

    async def in_standby(self) -> list[int]:
        """Wait until torchrun and both its processes are in standby; return the two."""

        def found() -> list[int]:
            return [
                pid
                for parent in waiting(self._agent)
                for pid, words in children(parent)
                if in_standby(pid, words)
            ]

        await until("two below torchrun", found, lambda pids: len(pids) == 2)
        await self._master.handled()
        return found()

    async def facts(self) -> list[Any]:
        """Return what both processes see."""
        outputs = [self._program.folder / f"out-{rank}" for rank in range(2)]
        await until(
            "both show it",
            lambda: all(path.exists() and path.read_text().endswith("\n") for path in outputs),
        )
        return [json.loads(path.read_text()) for path in outputs]


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_torchrun_takes_its_processes_from_standby_and_they_see_what_cold_ones_see(
    fake_master: FakeMaster, run: Run, program: Program, torchrun: str
) -> None:
    program.script(SHOW)
    variables = {**program.environment(), **VARIABLES}
    cold = await run(torchrun, "train.py", "--lr", **{**variables, names.ENV_STANDBY: ""})
    worlds = TorchrunWorlds(fake_master, cold, program)
    await worlds.begin(1)
    await worlds.facts()
    await worlds.begin(2)
    expected = await worlds.facts()
    cold.process.terminate()
    await cold.end()
    fake_master.received = Received()
    agent = await run(torchrun, "train.py", "--lr", **variables)
    worlds = TorchrunWorlds(fake_master, agent, program)
    await worlds.begin(1)
    first = await worlds.facts()
    standby = await worlds.in_standby()
    assert await worlds.begin(2) == standby
    warm = await worlds.facts()
    for facts in (*expected, *first, *warm):
        facts["environment"].pop(names.ENV_SOCKET)
        facts["environment"].pop(names.ENV_STANDBY, None)
        facts.pop("parent")
        # There is also the pipe for reports.
        facts["descriptors"] = [facts["descriptors"][number] for number in "012"]
    assert [differences(*both) for both in zip(warm, expected, strict=True)] == [{}, {}]
    for facts in (*first, *expected):
        facts["environment"].pop(names.ENV_ROUND)
    assert [differences(*both) for both in zip(first, expected, strict=True)] == [{}, {}]


@pytest.mark.parametrize("killed", some_of([0, 1, "torchrun"], first=1))
async def test_a_process_below_torchrun_that_is_killed_in_standby_is_started_cold(
    fake_master: FakeMaster, run: Run, program: Program, torchrun: str, killed: int | str
) -> None:
    program.script("import slow, time\nprint('up', flush=True)\ntime.sleep(600)")
    agent = await run(torchrun, "train.py", **program.environment(), **VARIABLES)
    worlds = TorchrunWorlds(fake_master, agent, program)
    await worlds.begin(1)
    standby = await worlds.in_standby()
    (launcher,) = waiting(agent)
    os.kill(launcher if killed == "torchrun" else standby[int(killed)], signal.SIGKILL)
    if killed == "torchrun":
        await until("its children end", lambda: not any(alive(pid) for pid in standby))
    pids = await worlds.begin(2)
    assert len({*pids, *standby}) == (4 if killed == "torchrun" else 3)
    again = await worlds.in_standby()
    assert await worlds.begin(3) == again


@pytest.mark.thorough
async def test_a_variable_that_differs_from_world_to_world_ends_only_standby_below_torchrun(
    fake_master: FakeMaster, run: Run, program: Program, torchrun: str
) -> None:
    program.package("RANK = os.environ.get('LOCAL_RANK', 'none')", "reader")
    program.script("import reader, time\nprint(reader.RANK, flush=True)\ntime.sleep(600)")
    agent = await run(torchrun, "train.py", **program.environment(), **VARIABLES)
    worlds = TorchrunWorlds(fake_master, agent, program)
    await worlds.begin(1)
    await worlds.in_standby()
    await worlds.begin(2)
    assert await worlds.facts() == [0, 1]
    await until("torchrun is in standby, alone", lambda: waiting(agent))
    (launcher,) = waiting(agent)
    assert list(children(launcher)) == []
    await fake_master.handled()
    await worlds.begin(3)
    assert launcher in program.importers()
    assert await worlds.facts() == [0, 1]
    agent.process.terminate()
    assert (await agent.end())[2].count(
        "elasticjob-agent: no process in standby for those that torchrun starts: LOCAL_RANK is "
        "read by its imports, and differs from world to world\n"
    ) == 1


@pytest.mark.thorough
async def test_other_processes_that_torchrun_starts_are_not_touched(
    fake_master: FakeMaster, run: Run, program: Program, torchrun: str
) -> None:
    program.script("import slow, time\nprint('up', flush=True)\ntime.sleep(600)")
    program.script("print('helper')", "helper.py")
    text = (
        Path(torchrun)
        .read_text()
        .replace(
            "processes = [",
            "command = [sys.executable, '-u', 'helper.py']\n"
            "run = subprocess.run(command, capture_output=True, text=True)\n"
            "assert run.stdout == 'helper\\n', run\n"
            "assert subprocess.run(['true']).returncode == 0\n"
            "processes = [",
        )
    )
    Path(torchrun).write_text(text)
    agent = await run(torchrun, "train.py", **program.environment(), **VARIABLES)
    worlds = TorchrunWorlds(fake_master, agent, program)
    await worlds.begin(1)
    standby = await worlds.in_standby()
    assert await worlds.begin(2) == standby


async def test_the_exit_of_a_process_from_standby_is_seen_by_torchrun_and_the_agent(
    fake_master: FakeMaster, run: Run, program: Program, torchrun: str
) -> None:
    program.script("import slow, time\nprint('up', flush=True)\ntime.sleep(600)")
    agent = await run(torchrun, "train.py", **program.environment(), **VARIABLES)
    worlds = TorchrunWorlds(fake_master, agent, program)
    await worlds.begin(1)
    await worlds.in_standby()
    first, second = await worlds.begin(2)
    os.kill(second, signal.SIGKILL)
    os.kill(first, signal.SIGTERM)
    exited = await fake_master.exited(2)
    assert exited.exit_code == signal.SIGTERM
    assert exited.failed_milliseconds_ago >= 0
