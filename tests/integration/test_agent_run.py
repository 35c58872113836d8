"""Runs the agent's process with a fake master on a real gRPC server and real commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import Run, alive, handles, python
from tests.support.fake_master import FakeMaster
from tests.support.wait import until

# --- life of a process


async def test_the_command_runs_in_its_world_and_its_success_is_the_agents(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run(
        "sh",
        "-c",
        f"echo $GREETING ${names.ENV_ROUND} ${names.ENV_RANK}; echo token:${names.ENV_TOKEN}",
    )
    await fake_master.begin(3, GREETING="hello")
    exited = await fake_master.exited(3)
    assert (exited.exit_code, exited.asked) == (0, False)
    assert (await fake_master.dismiss(agent))[:2] == (0, "hello 3 0\ntoken:\n")


@pytest.mark.guarantee("one-world")
@pytest.mark.parametrize(("framework", "expected"), [("pytorch", "true"), ("jax", "unset")])
async def test_libraries_of_pytorch_form_a_world_where_no_accelerator_is(
    fake_master: FakeMaster, run: Run, framework: str, expected: str
) -> None:
    agent = await run(
        *("sh", "-c", "echo ${ACCELERATE_USE_CPU-unset}"),
        **{names.ENV_FRAMEWORK: framework, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert (await fake_master.complete(agent))[0] == f"{expected}\n"


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
async def test_the_agent_reports_and_returns_the_commands_exit_code_as_a_shell_would(
    fake_master: FakeMaster, run: Run, script: str, code: int
) -> None:
    agent = await run("sh", "-c", f"for i in 1 2 3; do echo word $i >&2; done; {script}")
    await fake_master.begin(1)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked, exited.message) == (
        code,
        False,
        "word 1\nword 2\nword 3",
    )
    ended, _, err = await fake_master.dismiss(agent)
    assert ended == code
    assert "word 1\nword 2\nword 3\n" in err
    assert agent.termination == "word 1\nword 2\nword 3"


async def test_a_missing_command_is_named_before_anything_starts(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("no-such-command")
    code, _, err = await agent.end()
    assert code == 127
    assert err.startswith("elasticjob-agent: cannot run 'no-such-command': no such file")
    assert agent.termination == err.strip()
    assert fake_master.registered == []


async def test_a_long_temporary_directory_leaves_room_for_the_socket_path(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    (long := tmp_path / ("x" * 100)).mkdir()
    agent = await run(
        *python(tmp_path, "import elasticjob; print(elasticjob.may_commit())"), TMPDIR=str(long)
    )
    assert (await fake_master.complete(agent))[0] == "True\n"


async def test_a_command_that_is_not_executable_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    agent = await run(str(tmp_path / "plain"))
    code, _, err = await agent.end()
    assert (code, "not an executable file" in err) == (126, True)


async def test_a_bad_environment_variable_is_rejected_by_name(run: Run) -> None:
    agent = await run("true", **{names.ENV_INDEX: "-1"})
    code, _, err = await agent.end()
    assert code == 78
    assert err == f"elasticjob-agent: {names.ENV_INDEX}='-1' must be a whole number, 0 or more\n"


async def test_a_new_world_restarts_the_command(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sh", "-c", "echo up; sleep 600")
    await fake_master.begin(1)
    assert await agent.line() == "up"
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=10))
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (143, True)
    await fake_master.begin(2)
    assert await agent.line() == "up"
    # This command is for a previous world, so not for this process.
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=0))
    await fake_master.order(drain=pb.Drain(grace_seconds=5))
    assert (await fake_master.exited(2)).asked
    assert (await agent.end())[0] == 143


@pytest.mark.guarantee("program-ignores-stop-requests")
async def test_a_process_that_ignores_sigterm_is_killed_with_its_children(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    agent = await run(
        "sh",
        "-c",
        "trap '' TERM; "
        f"(setsid sh -c 'trap \"\" TERM; echo $$ >>{pids}; while :; do sleep 1; done') & "
        f"echo $$ >>{pids}; while :; do sleep 1; done",
    )
    await fake_master.begin(1)
    await until("both have started", lambda: pids.exists() and len(pids.read_text().split()) == 2)
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=0.3))
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (137, True)
    assert not any(alive(int(pid)) for pid in pids.read_text().split())
    agent.process.send_signal(signal.SIGTERM)
    assert (await agent.end())[0] == 143


async def test_sigterm_starts_a_drain(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sh", "-c", "sleep 600", **{names.ENV_DRAIN_SECONDS: "5"})
    await fake_master.begin(1)
    agent.process.send_signal(signal.SIGTERM)
    await fake_master.received.wait(lambda received: received.of_kind("leaving"))
    exited = await fake_master.exited(1)
    assert exited.asked
    assert (await agent.end())[0] == 143
    assert agent.termination == ""


async def test_a_waiting_member_leaves_at_once(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sleep", "600")
    await fake_master.order(drain=pb.Drain(grace_seconds=30))
    assert (await agent.end())[0] == 143


async def test_the_agent_can_leave_before_any_master_has_answered(
    fake_master: FakeMaster, run: Run
) -> None:
    await fake_master.stop()
    agent = await run("sleep", "600")
    await until("it handles SIGTERM", lambda: handles(agent.process.pid, signal.SIGTERM))
    agent.process.send_signal(signal.SIGTERM)
    assert (await agent.end())[0] == 143


async def test_other_signals_are_passed_to_the_command(fake_master: FakeMaster, run: Run) -> None:
    agent = await run(
        "sh", "-c", "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    )
    await fake_master.begin(1)
    assert await agent.line() == "ready"
    agent.process.send_signal(signal.SIGUSR1)
    assert (await fake_master.exited(1)).exit_code == 5


async def test_the_command_dies_with_a_killed_agent(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sh", "-c", "echo $$; exec sleep 600")
    await fake_master.begin(1)
    pid = int(await agent.line())
    agent.process.kill()
    await until("the command has ended", lambda: not alive(pid))


async def test_orphans_are_reaped(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sh", "-c", "(sh -c 'sleep 0.1 & echo $!') ; sleep 600")
    await fake_master.begin(1)
    orphan = int(await agent.line())
    await until("the orphan has ended", lambda: not Path(f"/proc/{orphan}").exists())


@pytest.mark.guarantee("process-restarts-are-shown")
async def test_a_crash_is_retried_in_place_up_to_the_limit_and_each_is_reported(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    script = "echo try; echo 'no such file' >&2; exit 9"
    agent = await run("sh", "-c", script, **{names.ENV_PROCESS_RESTART_LIMIT: "2"})
    await fake_master.begin(1)
    assert (await fake_master.exited(1)).exit_code == 9
    assert fake_master.received.of_kind("restarted") == [
        pb.ProcessRestarted(restarts=restarts, exit_code=9, message="no such file")
        for restarts in (1, 2)
    ]
    assert (await fake_master.dismiss(agent))[:2] == (9, "try\ntry\ntry\n")


@pytest.mark.guarantee("process-retried-in-its-pod")
async def test_a_crash_among_several_members_is_retried_in_the_next_world(
    fake_master: FakeMaster, run: Run
) -> None:
    limit = {names.ENV_PROCESS_RESTART_LIMIT: "1"}
    agent = await run("sh", "-c", f"echo ${names.ENV_ROUND}; exit 9", **limit)
    for round_, retry in ((1, True), (2, False)):
        members = [pb.Member(pod_name=f"job-worker-{index}") for index in range(2)]
        await fake_master.order(
            start=pb.Start(world=pb.World(round=round_, members=members), rank=0)
        )
        exited = await fake_master.exited(round_)
        assert (exited.exit_code, exited.retry) == (9, retry)
    assert [each.restarts for each in fake_master.received.of_kind("restarted")] == [1]
    assert (await fake_master.dismiss(agent))[:2] == (9, "1\n2\n")


@pytest.mark.guarantee("kept-process-in-later-rounds")
async def test_only_the_master_restarts_a_process_that_continues_through_world_changes(
    fake_master: FakeMaster, run: Run
) -> None:
    """A parameter server that was alone at its start is one: others may have joined since."""
    agent = await run(
        "sh", "-c", f"echo ${names.ENV_ROUND}; exit 9", **{names.ENV_PROCESS_RESTART_LIMIT: "1"}
    )
    for round_, retry in ((1, True), (2, False)):
        world = pb.World(round=round_, members=[pb.Member(pod_name="job-worker-0")])
        await fake_master.order(start=pb.Start(world=world, rank=0, goes_on=True))
        assert (await fake_master.exited(round_)).retry == retry
    assert (await fake_master.dismiss(agent))[:2] == (9, "1\n2\n")


TORCHRUN = """
import os, pathlib, signal, subprocess, sys, time
def ranks(*scripts):
    env = {**os.environ, "TORCHELASTIC_RUN_ID": "none"}
    return [subprocess.Popen(["sh", "-c", script], env=env) for script in scripts]
def wait(name):
    while not pathlib.Path(os.environ["SEEN"], name).exists():  # torchrun looks at intervals only
        time.sleep(0.05)
started = ranks("exit 3", "sleep 600")  # torchrun restarts both; the restarted ones count
print(started[1].pid, flush=True)
wait("first")
started[1].kill()
started = ranks("sh -c 'sleep 600; :' & kill $!; wait; exec sleep 600", "exec sleep 600")
print(*(each.pid for each in started), flush=True)
started[1].wait()
wait("second")
started[0].kill()
print("ValueError: the loss is not a number", file=sys.stderr)
print("failed (exitcode: -9) local_rank: 1 (pid: 1) of binary: python", file=sys.stderr)
sys.exit("ChildFailedError:\\n======")
"""
"""Acts as torchrun, which polls its processes and may restart them."""


def watched_processes(agent: int) -> set[int]:
    """Return the processes of which an agent has a pidfd."""
    found = set()
    for file in Path(f"/proc/{agent}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found |= {
                int(line.split()[1])
                for line in file.read_text().splitlines()
                if line.startswith("Pid:")
            }
    return found


@pytest.mark.guarantee("torchrun-process-fails", "failure-below-a-launcher")
async def test_a_failure_below_torchrun_is_reported_with_its_time_code_and_output(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "torchrun").write_text(f"#!{sys.executable}\n{TORCHRUN}")
    (tmp_path / "torchrun").chmod(0o755)
    agent = await run(
        str(tmp_path / "torchrun"),
        "train.py",
        SEEN=str(tmp_path),
        **{names.ENV_FRAMEWORK: "pytorch"},
    )
    members = [pb.Member(pod_uid="uid-0-0", pod_name="job-worker-0", processes=2)]
    two = pb.Start(
        world=pb.World(round=1, members=members), other_environments=[pb.ProcessEnvironment()]
    )
    await fake_master.order(start=two)
    earlier = int(await agent.line())
    await until(
        "the agent watches the first ones",
        lambda: earlier in watched_processes(agent.process.pid),
    )
    (tmp_path / "first").touch()
    pids = (await agent.line()).split()
    await until(
        "the agent watches both",
        lambda: watched_processes(agent.process.pid) >= set(map(int, pids)),
    )
    before = time.monotonic()
    os.kill(int(pids[1]), signal.SIGKILL)
    await until(
        "the agent has seen it", lambda: int(pids[1]) not in watched_processes(agent.process.pid)
    )
    await asyncio.sleep(1.5)
    (tmp_path / "second").touch()
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.message) == (137, "ValueError: the loss is not a number")
    assert 1500 <= exited.failed_milliseconds_ago <= 1000 * (time.monotonic() - before)


DEEPSPEED = """
import os, pathlib, subprocess, sys
hosts = next(word for word in sys.argv if word.startswith("--hostfile="))
text = pathlib.Path(hosts.partition("=")[2]).read_text()
print(text.replace("\\n", ","), sys.argv[-1], flush=True)
rank = subprocess.Popen(["sleep", "600"], env={**os.environ, "CROSS_RANK": "0"})
print(rank.pid, flush=True)
while rank.poll() is None and not pathlib.Path(os.environ["KILLED"]).exists():
    pass
sys.exit(-9 if rank.returncode else 0)
"""
"""Acts as DeepSpeed: ends with 247 after SIGKILL of a process, and with 0 if its own part fails."""


@pytest.mark.guarantee("failure-below-a-launcher", "launchers-of-pytorch")
@pytest.mark.parametrize("killed", ["rank", "launcher"])
async def test_a_failure_below_deepspeed_is_one_whatever_its_exit_code_says(
    fake_master: FakeMaster, run: Run, tmp_path: Path, killed: str
) -> None:
    program = tmp_path / "deepspeed"
    program.write_text(f"#!{sys.executable}\n{DEEPSPEED}")
    program.chmod(0o755)
    own = {"KILLED": str(tmp_path / "killed"), names.ENV_FRAMEWORK: "pytorch"}
    agent = await run(str(program), "train.py", **own)
    members = [pb.Member(pod_uid="uid-0-0", pod_name="job-worker-0", processes=1)]
    members.append(pb.Member(pod_uid="uid-1-0", pod_name="job-worker-1", processes=3))
    await fake_master.order(start=pb.Start(world=pb.World(round=1, members=members)))
    assert await agent.line() == "job-worker-0 slots=1,job-worker-1 slots=3, train.py"
    pid = int(await agent.line())
    await until("it is watched", lambda: pid in watched_processes(agent.process.pid))
    if killed == "rank":
        os.kill(pid, signal.SIGKILL)
    else:
        (tmp_path / "killed").touch()
    exited = await fake_master.exited(1)
    assert exited.exit_code == (137 if killed == "rank" else 1)
    assert (killed == "launcher") == ("the launcher has ended before" in exited.message)


async def test_a_horovod_process_is_restarted_in_place(fake_master: FakeMaster, run: Run) -> None:
    own = {names.ENV_PROCESS_RESTART_LIMIT: "1", names.ENV_FRAMEWORK: "horovod"}
    agent = await run("sh", "-c", f"echo ${names.ENV_ROUND}; exit 9", **own)
    members = [pb.Member(pod_name=f"job-worker-{index}") for index in range(2)]
    await fake_master.order(start=pb.Start(world=pb.World(round=1, members=members), rank=0))
    assert not (await fake_master.exited(1)).retry
    assert (await fake_master.dismiss(agent))[:2] == (9, "1\n1\n")


# --- master away

COUNTING = """
    import elasticjob, itertools, time
    for step in itertools.count(1):
        if elasticjob.should_stop():
            elasticjob.confirm_stop()
            break
        elasticjob.report_step(step, total=1000000, samples=2, metrics={"loss": 1 / step})
        time.sleep(0.005)
    print("stopped")
"""


def recorded(folder: Path) -> str:
    """Return the program COUNTING, which appends a byte to `folder/steps` before each report."""
    step = f"open({str(folder / 'steps')!r}, 'a').write('.')"
    return COUNTING.replace("elasticjob.report_step", f"{step}; elasticjob.report_step")


async def more_steps(folder: Path, number: int) -> None:
    """Wait until the program of `recorded` has done this many steps more."""
    steps = folder / "steps"
    before = steps.stat().st_size
    await until(f"{number} steps", lambda: steps.stat().st_size >= before + number)


async def test_a_member_is_ready_once_accepted_and_stays_ready_without_a_master(
    fake_master: FakeMaster, run: Run
) -> None:
    address = fake_master.host  # the member's address too: no other test's agent may listen on it

    async def ready() -> bool:
        try:
            _, writer = await asyncio.open_connection(address, names.AGENT_READY_PORT)
        except OSError:
            return False
        writer.close()
        return True

    await fake_master.stop()
    agent = await run("sleep", "60", **{names.ENV_POD_IP: address})
    await until("it has begun", lambda: handles(agent.process.pid, signal.SIGTERM))
    assert not await ready()
    await fake_master.start()
    await fake_master.begin(1)
    assert [await ready() for _ in range(200)] == [True] * 200, (
        "the probe's connections fill the queue"
    )
    await fake_master.stop()
    assert await ready()


async def test_a_taken_readiness_port_is_logged_and_training_continues(
    fake_master: FakeMaster, run: Run
) -> None:
    holder = await asyncio.start_server(
        lambda _, writer: writer.close(), fake_master.host, names.AGENT_READY_PORT
    )
    agent = await run("true", **{names.ENV_POD_IP: fake_master.host})
    _, err = await fake_master.complete(agent)
    holder.close()
    assert "cannot open the readiness port" in err
    assert str(names.AGENT_READY_PORT) in err


@pytest.mark.guarantee("network-cut")
async def test_training_continues_without_a_master_and_its_reports_arrive_later(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    agent = await run(*python(tmp_path, recorded(tmp_path)))
    await fake_master.begin(1)
    await fake_master.received.wait(lambda received: received.of_kind("step"))
    # No report is in flight when the connection breaks: the agent sends none after this.
    await fake_master.order(configure=pb.Configure(report_seconds=3600))
    await fake_master.handled()
    await fake_master.stop()
    before = len(fake_master.received.messages)
    samples_before = sum(report.samples for report in fake_master.received.of_kind("step"))
    await more_steps(tmp_path, 50)
    await fake_master.start()
    hello = (await fake_master.received.wait(lambda received: received.of_kind("hello")[1:]))[0]
    assert (hello.running_round, hello.draining) == (1, False)
    report = await fake_master.received.wait(
        lambda received: [
            m.step for m in received.messages[before:] if m.WhichOneof("message") == "step"
        ]
    )
    assert report[0].samples + samples_before == 2 * report[0].step
    assert len(fake_master.received.of_kind("started")) == 1
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=10))
    assert (await fake_master.exited(1)).exit_code == 0
    assert await agent.line() == "stopped"
    assert fake_master.received.of_kind("step")[-1].metrics["loss"] > 0


async def test_an_exit_that_the_master_missed_is_reported_when_it_returns(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("sh", "-c", "read line; exit 4")
    await fake_master.begin(1)
    await fake_master.stop()
    await fake_master.start()
    exited = await fake_master.exited(1)
    assert exited.exit_code == 4
    assert (await fake_master.dismiss(agent))[0] == 4


SHORT_VERDICT_TIMEOUTS = """
import os, sys
from elasticjob_agent import agent, config
timeouts = agent.VerdictTimeouts(success=0.3, failure=0.3)
sys.exit(agent.run(config.load(os.environ), sys.argv[1:], dict(os.environ), timeouts))
"""


@pytest.mark.parametrize("code", [0, 3])
async def test_without_a_master_the_agent_ends_with_the_commands_code_after_a_limit(
    fake_master: FakeMaster, run: Run, tmp_path: Path, code: int
) -> None:
    go = tmp_path / "go"
    script = f"while ! test -e {go}; do sleep 0.05; done; exit {code}"
    agent = await run("sh", "-c", script, program=(sys.executable, "-c", SHORT_VERDICT_TIMEOUTS))
    await fake_master.begin(1)
    await fake_master.stop()
    go.touch()
    assert (await agent.end())[0] == code


# --- the library


async def test_a_stop_agreed_before_its_request_arrived_is_not_reported_as_success(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    await run(
        *python(tmp_path, "import elasticjob\nelasticjob.should_stop()\nelasticjob.confirm_stop()")
    )
    await fake_master.begin(1)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (0, True)


async def test_every_process_may_commit_under_a_master_of_an_earlier_version(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    agent = await run(*python(tmp_path, "import elasticjob; print(elasticjob.may_commit())"))
    assert (await fake_master.complete(agent))[0] == "True\n"


async def test_a_lease_with_a_lost_answer_is_repeated_under_its_name(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    fake_master.answers_lost = 1
    script = """
        import elasticjob
        shards = elasticjob.shards("train", size=100, shard_size=10, prefetch=4)
        print(shards.take().id)
    """
    agent = await run(*python(tmp_path, script))
    assert (await fake_master.complete(agent))[0] == "0\n"
    first, second = fake_master.leases[:2]
    assert first == second
    assert first.request_id


@pytest.mark.guarantee("bad-input-is-refused")
async def test_garbage_on_the_socket_is_answered_and_harms_nothing(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    script = r"""
        import json, os, socket
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ["ELASTICJOB_SOCKET"])
        lines = connection.makefile()
        for text in ('nonsense', '[1]', '{}', '{"step": -1}', '{"step": "x"}',
                     '{"step": 1, "metrics": {"\\ud800": 1}}', '{"step": 1, "steps": 1e300}',
                     '{"step": 1, "steps": -1}',
                     '{"id": 1, "call": "rm"}', '{"id": 2, "call": "lease_shards"}',
                     '{"id": 3, "call": "lease_shards", "dataset": "d", "count": -1}'):
            connection.sendall(text.encode() + b"\n")
            print("error" in json.loads(lines.readline()))
        for _ in range(10):  # too large for a message
            connection.sendall(b'{"step": 1, "steps": 9223372036854775807, "seconds": 1e999, '
                               b'"compute_seconds": NaN}\n')
    """
    agent = await run(*python(tmp_path, script))
    assert (await fake_master.complete(agent))[0] == "True\n" * 11


# --- what the library reports and requests


async def test_the_process_learns_the_members_of_its_world(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    script = """
        import elasticjob
        print(elasticjob.world().index, [(m.pod, m.node) for m in elasticjob.members()])
    """
    agent = await run(*python(tmp_path, script), **{names.ENV_INDEX: "4"})
    members = [pb.Member(pod_name=f"job-worker-{index}", node_name="n") for index in range(2)]
    await fake_master.order(start=pb.Start(world=pb.World(round=1, members=members)))
    assert await agent.line() == "4 [('job-worker-0', 'n'), ('job-worker-1', 'n')]"


async def test_a_changed_report_interval_is_kept(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    await run(*python(tmp_path, recorded(tmp_path)))
    await fake_master.begin(1)
    await fake_master.received.wait(lambda received: received.of_kind("step"))
    await fake_master.order(configure=pb.Configure(heartbeat_seconds=3600, report_seconds=3600))
    await fake_master.handled()
    before = (
        len(fake_master.received.of_kind("heartbeat")),
        len(fake_master.received.of_kind("step")),
    )
    await more_steps(tmp_path, 200)  # in the time of ten heartbeats and five reports as before
    after = (
        len(fake_master.received.of_kind("heartbeat")),
        len(fake_master.received.of_kind("step")),
    )
    assert all(now - then <= 1 for then, now in zip(before, after, strict=True))
    await fake_master.order(configure=pb.Configure(heartbeat_seconds=0.01, report_seconds=0.01))
    await fake_master.received.wait(
        lambda received: (
            len(received.of_kind("heartbeat")) > after[0] + 5
            and len(received.of_kind("step")) > after[1] + 5
        )
    )


@pytest.mark.guarantee("bad-input-is-refused")
async def test_an_environment_too_large_for_the_kernel_ends_the_member_with_its_name(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("true", **{names.ENV_PROCESS_RESTART_LIMIT: "3"})
    await fake_master.begin(1, TF_CONFIG="x" * 140_000)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (126, False)
    assert "cannot run 'true': argument list too long: its environment has" in exited.message
    assert "TF_CONFIG with 140000; one variable can have 131061 of them" in exited.message
    code, _, err = await fake_master.dismiss(agent)
    assert (code, agent.termination) == (126, exited.message)
    assert "Traceback" not in err


async def test_the_largest_variable_the_message_names_can_be_used(
    fake_master: FakeMaster, run: Run
) -> None:
    await run("true")
    await fake_master.begin(1, TF_CONFIG="x" * 131_061)
    assert (await fake_master.exited(1)).exit_code == 0
