"""Runs scripts of requests in a real agent, next to its training process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run, alive
from tests.support.fake_master import FakeMaster
from tests.support.wait import until


@pytest_asyncio.fixture(autouse=True)
async def agent(fake_master: FakeMaster, run: Run, tmp_path: Path) -> AgentProcess:
    """Return an agent whose training process goes on."""
    training = f"echo $$ > {tmp_path}/training; exec sleep 1000"
    started: AgentProcess = await run("sh", "-c", training, OF_LAUNCHER="there")
    await fake_master.begin(1)
    return started


async def pid_in(file: Path) -> int:
    """Return the process id that a script writes."""
    return int(await until(f"{file}", lambda: file.exists() and file.read_text()))


async def result(fake_master: FakeMaster, number: int = 1, **order: Any) -> pb.ScriptResult:
    """Order a script, and return the result of that number."""
    if order:
        await fake_master.order(
            run_script=pb.RunScript(id="a", **{"timeout_seconds": 60.0, **order})
        )
    found: list[pb.ScriptResult] = await fake_master.received.wait(
        lambda received: received.of_kind("script")[number - 1 : number]
    )
    return found[0]


async def test_a_script_has_the_pods_the_launchers_and_its_own_variables(
    fake_master: FakeMaster,
) -> None:
    script = (
        'echo "$1 $A $OF_LAUNCHER $(test -S "$ELASTICJOB_SOCKET" && echo socket)"; '
        "echo bad >&2; exit 7"
    )
    ended = await result(
        fake_master, script=script, environment={"A": "x y"}, pods="job-worker-0:2,job-worker-1:2"
    )
    assert (ended.id, ended.exit_code) == ("a", 7)
    assert ended.message == "job-worker-0:2,job-worker-1:2 x y there socket\nbad"


@pytest.mark.guarantee("script-runs-once")
async def test_a_script_is_run_once_however_often_it_is_ordered(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    script = (
        f"echo run >> {tmp_path}/runs; until test -e {tmp_path}/go; do sleep 0.05; done; exit 3"
    )
    for _ in range(3):
        await fake_master.order(run_script=pb.RunScript(id="a", script=script, timeout_seconds=60))
    await until("it runs", (tmp_path / "runs").exists)
    (tmp_path / "go").touch()
    assert (await result(fake_master)).exit_code == 3
    again = await result(fake_master, 2, script=script)
    assert (again.id, again.exit_code) == ("a", 3)
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.guarantee("script-runs-once")
async def test_a_returning_master_gets_the_result_that_its_predecessor_missed(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    script = (
        f"echo run >> {tmp_path}/runs; "
        f"until test -e {tmp_path}/go; do sleep 0.05; done; touch {tmp_path}/done"
    )
    await fake_master.order(run_script=pb.RunScript(id="a", script=script, timeout_seconds=60))
    await until("it runs", (tmp_path / "runs").exists)
    await fake_master.stop()
    (tmp_path / "go").touch()
    await until("it has ended", (tmp_path / "done").exists)
    await fake_master.start()
    assert (await result(fake_master, script=script)).exit_code == 0
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.guarantee("script-runs-once")
async def test_a_script_is_killed_with_its_children_at_its_time_limit(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    script = f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/pid; echo waiting; wait"
    ended = await result(fake_master, script=script, timeout_seconds=1.0)
    assert ended.exit_code == 137
    assert ended.message == "killed, as it has not ended within 1 s\nwaiting"
    await until("its child has ended", lambda: not alive(int((tmp_path / "pid").read_text())))


async def test_processes_that_a_script_leaves_end_with_it_and_training_continues(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    training = await pid_in(tmp_path / "training")
    ended = await result(fake_master, script=f"sleep 1000 & echo $! > {tmp_path}/pid")
    assert ended.exit_code == 0
    await until("its child has ended", lambda: not alive(int((tmp_path / "pid").read_text())))
    assert alive(training)


async def test_a_script_ends_with_its_agent(
    fake_master: FakeMaster, agent: AgentProcess, tmp_path: Path
) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 1000"
    await fake_master.order(run_script=pb.RunScript(id="a", script=script, timeout_seconds=600))
    pid = await pid_in(tmp_path / "pid")
    agent.process.terminate()
    await asyncio.wait_for(agent.process.wait(), 20)
    await until("it has ended", lambda: not alive(pid))


async def test_the_reported_output_is_bounded(fake_master: FakeMaster) -> None:
    ended = await result(fake_master, script="seq 1000; head -c 20000 /dev/zero | tr '\\0' x")
    assert ended.exit_code == 0
    assert len(ended.message) <= 2048
