"""Runs the agent's node checks, as the master requests them, in real processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run, alive, python
from tests.support.fake_master import FakeMaster
from tests.support.wait import until


@pytest_asyncio.fixture
async def agent(fake_master: FakeMaster, run: Run) -> AgentProcess:
    """Return an agent that joins its job."""
    started: AgentProcess = await run("true", **{names.ENV_POD_IP: fake_master.host})
    return started


async def begun(fake_master: FakeMaster, file: Path) -> int:
    """Let a check begin that does not end, and return its process."""
    await fake_master.order(**check(1, "sh", "-c", f"echo $$ > {file}; exec sleep 1000"))
    return int(await until("the check has begun", lambda: file.exists() and file.read_text()))


async def found(fake_master: FakeMaster, number: int) -> pb.CheckResult:
    results = await fake_master.received.wait(
        lambda received: [r for r in received.of_kind("check") if r.number == number]
    )
    result: pb.CheckResult = results[0]
    return result


def check(
    number: int, *command: str, peers: tuple[str, ...] = (), seconds: float = 120.0
) -> dict[str, Any]:
    return {"check": pb.Check(number=number, peers=peers, command=command, timeout_seconds=seconds)}


@pytest.mark.usefixtures("agent")
async def test_a_healthy_node_is_measured_and_reaches_its_peers(fake_master: FakeMaster) -> None:
    await fake_master.order(
        **check(1, "sh", "-c", f"test -z ${names.ENV_TOKEN}", peers=(fake_master.host,))
    )
    result = await found(fake_master, 1)
    assert (result.problem, list(result.unreached)) == ("", [])
    assert 0 < result.seconds < 60


@pytest.mark.guarantee("slow-network")
async def test_two_agents_measure_the_connection_between_them_and_a_matrix_product(
    fake_master: FakeMaster, run: Run, network: str
) -> None:
    other = f"{network}.8"
    await run(sys.executable, **{names.ENV_POD_IP: other, names.ENV_POD_UID: "other"})
    await fake_master.received.wait(lambda received: received.of_kind("hello"))
    await run(sys.executable, **{names.ENV_POD_IP: fake_master.host})
    await fake_master.received.wait(lambda received: len(received.of_kind("hello")) == 2)
    await fake_master.order(**check(1, peers=(other,)))
    result = await found(fake_master, 1)
    assert [link.address for link in result.links] == [other]
    assert 0 < result.links[0].round_trip_seconds < result.links[0].bytes_per_second
    assert (result.device, result.problem) == ("NumPy on the CPU", "")
    assert 0 < result.device_seconds < 15


@pytest.mark.usefixtures("agent")
async def test_a_failed_command_is_reported_with_its_last_output(fake_master: FakeMaster) -> None:
    await fake_master.order(**check(1, "sh", "-c", "echo no GPU here; exit 3"))
    assert (
        await found(fake_master, 1)
    ).problem == "the check command ended with exit code 3: no GPU here"
    await fake_master.order(**check(2, "/no/such/command"))
    assert (await found(fake_master, 2)).problem == (
        "the check command ended with exit code 127: No such file or directory"
    )


@pytest.mark.usefixtures("agent")
async def test_unreachable_peers_are_named(fake_master: FakeMaster, network: str) -> None:
    unreachable = f"{network}.9"
    await fake_master.order(**check(1, peers=(unreachable, fake_master.host)))
    result = await found(fake_master, 1)
    assert (list(result.unreached), result.problem) == ([unreachable], "")


@pytest.mark.guarantee("diagnosis-ends-no-agent")
@pytest.mark.usefixtures("agent")
async def test_a_check_that_cannot_be_made_does_not_end_the_agent(fake_master: FakeMaster) -> None:
    await fake_master.order(**check(1, peers=("no-name" * 10,)))
    await fake_master.order(**check(2))
    assert (await found(fake_master, 2)).problem == ""


@pytest.mark.thorough
@pytest.mark.usefixtures("agent")
async def test_a_hanging_check_is_ended_with_its_processes_at_its_time_limit(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    await fake_master.order(
        **check(1, "sh", "-c", f"sleep 1000 & echo $! > {pid}; wait", seconds=6.0)
    )
    assert (await found(fake_master, 1)).problem == "the node check has not ended within 6 s"
    await until("the check has ended", lambda: not alive(int(pid.read_text())))


@pytest.mark.thorough
@pytest.mark.usefixtures("agent")
async def test_a_lost_answer_is_sent_again_without_a_second_check(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    order = check(7, "sh", "-c", f"echo once >> {tmp_path / 'count'}")
    await fake_master.order(**order)
    await found(fake_master, 7)
    await fake_master.stop()
    await fake_master.start()
    await fake_master.order(**order)
    await fake_master.received.wait(lambda received: len(received.of_kind("check")) == 2)
    assert (tmp_path / "count").read_text() == "once\n"


@pytest.mark.thorough
@pytest.mark.usefixtures("agent")
async def test_a_newer_check_replaces_a_running_one(
    fake_master: FakeMaster, tmp_path: Path
) -> None:
    pid = await begun(fake_master, tmp_path / "pid")
    await fake_master.order(**check(2, "sh", "-c", "sleep 1"))
    assert (await found(fake_master, 2)).problem == ""
    await until("the check has ended", lambda: not alive(pid))
    assert {result.number for result in fake_master.received.of_kind("check")} == {2}


@pytest.mark.guarantee("unfit-node")
async def test_an_agent_on_an_unfit_node_ends_with_the_reason(
    fake_master: FakeMaster, agent: AgentProcess
) -> None:
    await fake_master.order(exit=pb.Exit(problem="2 of 2 connections failed"))
    code, _, _ = await agent.end()
    assert (code, agent.termination) == (names.EXIT_UNFIT, "node check: 2 of 2 connections failed")


@pytest.mark.thorough
async def test_an_agent_that_ends_during_a_check_ends_the_check(
    fake_master: FakeMaster, agent: AgentProcess, tmp_path: Path
) -> None:
    pid = await begun(fake_master, tmp_path / "pid")
    await fake_master.order(drain=pb.Drain(grace_seconds=1))
    assert (await agent.end())[0] == names.EXIT_DRAINED
    await until("the check has ended", lambda: not alive(pid))


@pytest.mark.guarantee("broken-node")
async def test_a_program_that_fails_with_a_message_of_a_broken_gpu_ends_as_on_an_unfit_node(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    program = python(
        tmp_path,
        f"""
        import sys
        sys.exit("{xid}\\n" + "a later line\\n" * 50)
        """,
    )
    agent = await run(*program, **{names.ENV_PROCESS_RESTART_LIMIT: "3"})
    await fake_master.begin(1)
    exited = await fake_master.exited(1)
    problem = f"the GPU has fallen off the bus: {xid}"
    assert (exited.node_problem, exited.retry) == (problem, False)
    await fake_master.order(exit=pb.Exit(problem=exited.node_problem))
    code, _, _ = await agent.end()
    assert code == names.EXIT_UNFIT
    assert agent.termination.splitlines()[-1] == f"elasticjob-agent: broken node: {problem}"
