"""Where an agent keeps processes in standby by default, and what it says where it keeps none."""

from __future__ import annotations

import sys

import psutil
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run
from tests.support.fake_master import FakeMaster
from tests.support.standby_programs import Program

AUTO = {names.ENV_STANDBY: "Auto"}
TRAINING = "import os, time, slow\nprint(os.environ['W'], flush=True)\ntime.sleep(600)"


async def begun(fake_master: FakeMaster, run: Run, program: Program, **more: str) -> AgentProcess:
    agent: AgentProcess = await run(sys.executable, "train.py", **program.environment() | more)
    await fake_master.begin(1, W="1")
    assert await agent.line() == "1"
    return agent


async def heard(fake_master: FakeMaster, *, ready: int) -> pb.Heartbeat:
    """Return the next heartbeat that says so many are ready, or why there are none."""

    def found(received: list[pb.AgentMessage]) -> pb.Heartbeat | None:
        beats = [each.heartbeat for each in received if each.HasField("heartbeat")]
        told = [
            beat for beat in beats if beat.in_standby == ready and (ready or beat.why_no_standby)
        ]
        return told[-1] if told else None

    beat: pb.Heartbeat = await fake_master.received.wait(lambda all_: found(all_.messages))
    return beat


@pytest.mark.guarantee("standby-takes-only-what-is-left")
async def test_a_container_with_room_in_its_limit_has_one_by_default(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    program.script(TRAINING)
    room = {**AUTO, names.ENV_MEMORY_LIMIT: str(psutil.virtual_memory().total // 2)}
    agent = await begun(fake_master, run, program, **room)
    beat = await heard(fake_master, ready=1)
    assert beat.why_no_standby == ""
    standby = await program.warm_world(agent, W="2")
    assert await agent.line() == "2"
    assert program.importers()[-1] == standby


@pytest.mark.guarantee("standby-takes-only-what-is-left")
async def test_one_without_a_limit_has_none_by_default_and_starts_its_program_itself(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    program.script(TRAINING)
    agent = await begun(fake_master, run, program, **AUTO)
    beat = await heard(fake_master, ready=0)
    assert beat.why_no_standby.startswith("its container has no memory limit; set one, or")
    (training,) = program.importers()
    assert psutil.Process(training).cmdline() == [sys.executable, "train.py"]
    await program.next_world(2, W="2")
    assert await agent.line() == "2"
    agent.process.terminate()
    said = (await agent.end())[2]
    assert said.count("no process in standby for this command: its container has no") == 1


async def test_a_command_of_another_program_has_none_and_nothing_is_said(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("sh", "-c", "echo up; sleep 600", **AUTO)
    await fake_master.begin(1)
    assert await agent.line() == "up"
    agent.process.terminate()
    assert "standby" not in (await agent.end())[2]
