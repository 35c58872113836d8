"""Compares programs that an agent runs in processes from standby to those that it starts cold."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run, alive
from tests.support.fake_master import FakeMaster, Received
from tests.support.standby_programs import (
    SHOW,
    Program,
    children,
    differences,
    shown,
    waiting,
)
from tests.support.thorough import some_of
from tests.support.wait import until


@pytest.mark.guarantee("standby-like-a-cold-start")
@pytest.mark.parametrize(
    "start", some_of(["script", "options", "module", "console script"], first=2)
)
async def test_a_process_from_standby_sees_what_a_cold_one_sees(
    fake_master: FakeMaster, run: Run, program: Program, start: str
) -> None:
    program.script(SHOW)
    console_script = program.folder / "trainer"
    console_script.write_text(f"#!{sys.executable} -u\n{textwrap.dedent(SHOW)}")
    console_script.chmod(0o755)
    command = {
        "script": (sys.executable, "./train.py", "--lr", "1 2", ""),
        "module": (sys.executable, "-u", "-m", "train", "--lr"),
        "console script": ("trainer", "--lr"),
        "options": (sys.executable, "-uB", "-W", "ignore::UserWarning", "-Xdev=0", "train.py"),
    }[start]
    variables = program.environment()
    variables["PATH"] = os.pathsep.join([str(program.folder), os.environ["PATH"]])
    cold = await run(*command, **{**variables, names.ENV_STANDBY: ""})
    await fake_master.begin(1, RANK="0", WORLD="w2")
    await shown(cold)
    await program.next_world(2, RANK="1", WORLD="w3")
    expected = await shown(cold)
    cold.process.terminate()
    await cold.end()
    fake_master.received = Received()
    agent = await run(*command, **variables)
    await fake_master.begin(1, RANK="0", WORLD="w2")
    first = await shown(agent)
    standby = await program.in_standby(agent)
    await program.next_world(2, RANK="1", WORLD="w3")
    warm = await shown(agent)
    assert program.importers()[-1] == standby
    for facts in (expected, first, warm):
        facts["environment"].pop(names.ENV_SOCKET)
        facts["environment"].pop(names.ENV_STANDBY, None)
        facts.pop("parent")
        # There is also the pipe for reports.
        facts["descriptors"] = [facts["descriptors"][number] for number in "012"]
    assert differences(warm, expected) == {}
    for facts in (first, expected):
        for name in ("RANK", "WORLD", names.ENV_ROUND):
            facts["environment"].pop(name)
    assert differences(first, expected) == {}


async def ended(agent: AgentProcess) -> str:
    agent.process.terminate()
    return (await agent.end())[2]


@pytest.mark.parametrize(
    ("end", "code"),
    some_of(
        [
            pytest.param("raise SystemExit(7)", 7),
            pytest.param("raise ValueError('words')", 1),
            pytest.param("os.kill(os.getpid(), 9)", 137),
            pytest.param("raise SystemExit('words')", 1),
            pytest.param("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", 130),
            pytest.param("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 143),
            pytest.param(
                "threading.Thread(target=lambda: (time.sleep(0.2), os._exit(3))).start()", 3
            ),
            pytest.param("sys.excepthook = lambda *_: print('hooked', file=sys.stderr); 1 / 0", 1),
            pytest.param("exec(compile('x = = 1', 'other.py', 'exec'))", 1),
            pytest.param("f()", 1),
        ],
        first=3,
    ),
)
async def test_it_ends_as_a_cold_process_with_the_same_last_words(
    fake_master: FakeMaster, run: Run, program: Program, end: str, code: int
) -> None:
    program.script(
        f"""
        import os, signal, sys, threading, time
        import slow
        def f():
            raise KeyError(1) from ValueError(2)
        print("up", flush=True)
        if os.environ["ROUND"] == "1":
            time.sleep(600)
        {end}
        """
    )
    agent = await program.begin(ROUND="1")
    assert await agent.line() == "up"
    standby = await program.warm_world(agent, ROUND="2")
    exited = await fake_master.exited(2)
    assert program.importers()[-1] == standby
    await ended(agent)
    fake_master.received = Received()
    without = {**program.environment(), names.ENV_STANDBY: ""}
    agent = await run(sys.executable, "train.py", **without)
    await fake_master.begin(2, ROUND="2")
    cold = await fake_master.exited(2)
    assert (exited.exit_code, exited.message) == (code, cold.message)
    assert cold.exit_code == code


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_a_killed_standby_falls_back_to_a_cold_process(program: Program) -> None:
    program.script("import os, time, slow\nprint(os.environ['W'], flush=True)\ntime.sleep(600)")
    agent = await program.begin(W="1")
    assert await agent.line() == "1"
    standby = await program.in_standby(agent)
    os.kill(standby, signal.SIGKILL)
    await program.next_world(2, W="2")
    assert await agent.line() == "2"
    assert standby not in program.importers()[2:]
    # The process of that world has one in standby again.
    again = await program.warm_world(agent, 3, W="3")
    assert await agent.line() == "3"
    assert program.importers()[-1] == again


async def test_a_world_that_comes_before_the_standby_is_ready_has_a_cold_process(
    program: Program,
) -> None:
    program.package(
        f"""
        import time
        if not os.environ.get("W"):
            open({str(program.folder / "stuck")!r}, "w").close()
            time.sleep(600)
        """
    )
    program.script("import os, time, slow\nprint(os.environ['W'], flush=True)\ntime.sleep(600)")
    agent = await program.begin(W="1")
    assert await agent.line() == "1"
    await until("the standby imports", (program.folder / "stuck").exists)
    await program.next_world(2, W="2")
    assert await agent.line() == "2"


async def test_importing_that_reads_a_variable_of_the_world_ends_standby_and_is_said_once(
    program: Program,
) -> None:
    program.package("RANK = os.environ.get('RANK', 'none')")
    program.script("import slow, time\nprint(slow.RANK, flush=True)\ntime.sleep(600)")
    agent = await program.begin(RANK="1")
    assert await agent.line() == "1"
    await program.in_standby(agent)
    for round_ in (2, 3):
        await program.next_world(round_, RANK=str(round_))
        assert await agent.line() == str(round_)
    assert waiting(agent) == []
    assert (await ended(agent)).count(
        "elasticjob-agent: no process in standby for this command: RANK is read by its imports, "
        "and differs from world to world\n"
    ) == 1


async def test_variables_and_paths_that_the_program_sets_hold_while_its_modules_are_imported(
    program: Program,
) -> None:
    program.package("THREADS = os.environ.get('OMP_NUM_THREADS'); os.environ['OF_SLOW'] = '1'")
    program.package("SET = os.environ.get('OF_SLOW')", "second")
    program.script(
        """
        import os, sys, time
        before = sorted(sys.modules)
        os.environ.setdefault("OMP_NUM_THREADS", "3")
        sys.path.append("/nowhere")
        assert "slow" not in sys.modules
        import importlib.util
        spec = importlib.util.find_spec("slow")
        assert spec.name == "slow" and spec.origin.endswith("slow.py"), spec
        assert "slow" not in sys.modules and "OF_SLOW" not in os.environ
        import slow, second
        assert slow.__spec__.loader is slow.__loader__ and slow.__spec__.origin == spec.origin
        assert sys.modules["slow"] is slow and os.environ["OF_SLOW"] == "1"
        print(os.environ["W"], slow.THREADS, second.SET, flush=True)
        time.sleep(600)
        """
    )
    agent = await program.begin(W="1")
    assert await agent.line() == "1 3 1"
    standby = await program.warm_world(agent, W="2")
    assert await agent.line() == "2 3 1"
    assert program.importers()[-1] == standby


@pytest.mark.parametrize(
    ("change", "why"),
    some_of(
        [
            pytest.param(
                "os.environ['SEED'] = os.environ['RANK']", "sets SEED to another value before"
            ),
            pytest.param(
                "sys.path.insert(0, '/' + os.environ['RANK'])",
                "sys.path is not that of its earlier run",
            ),
        ],
        first=1,
    ),
)
async def test_a_program_that_imports_in_another_environment_than_before_runs_cold(
    program: Program, change: str, why: str
) -> None:
    program.package("SEED = os.environ.get('SEED'), __import__('sys').path[0]")
    program.script(
        f"""
        import os, sys, time
        {change}
        import slow
        print(slow.SEED == (os.environ.get("SEED"), sys.path[0]), sys.orig_argv[1], flush=True)
        time.sleep(600)
        """
    )
    agent = await program.begin(RANK="1")
    assert await agent.line() == "True train.py"
    pid = await program.warm_world(agent, RANK="2")
    assert await agent.line() == "True train.py"
    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == b"train.py"
    assert why in await ended(agent)


async def test_a_changed_script_runs_and_own_modules_are_read_anew(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    program.script("ANSWER = 1", "own.py")
    program.script("import time, slow, own\nprint('old', own.ANSWER, flush=True)\ntime.sleep(600)")
    variables = {**program.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    agent = await run(sys.executable, "train.py", **variables)
    await fake_master.begin(1)
    assert await agent.line() == "old 1"
    standby = await program.in_standby(agent)
    program.script("ANSWER = 22", "own.py")
    program.script("import time, slow, own\nprint('new', own.ANSWER, flush=True)\ntime.sleep(600)")
    await program.next_world(2)
    assert await agent.line() == "new 22"
    assert program.importers()[-1] == standby


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_children_by_fork_and_spawn_and_pickling_work(program: Program) -> None:
    program.script(
        """
        import multiprocessing, os, pickle, sys, time
        import slow

        class Batch:
            def __init__(self, size): self.size = size

        def double(batch): return Batch(2 * batch.size)

        if __name__ == "__main__":
            copy = pickle.loads(pickle.dumps(Batch(2)))
            said = [type(copy) is Batch]
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    said.append(pool.apply(double, (copy,)).size)
            print(*said, flush=True)
            time.sleep(600)
        """
    )
    agent = await program.begin()
    assert await agent.line() == "True 4 4 4"
    standby = await program.warm_world(agent)
    assert await agent.line() == "True 4 4 4"
    assert standby in program.importers()


@pytest.mark.thorough
async def test_what_imports_print_and_handle_and_start_is_that_of_the_process(
    program: Program,
) -> None:
    program.package(
        """
        import signal, sys, threading, time
        print("imported", flush=True)
        signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
        threading.Thread(target=time.sleep, args=(600,), daemon=True, name="of-slow").start()
        """
    )
    program.script(
        """
        import threading, time, slow
        print([thread.name for thread in threading.enumerate()], flush=True)
        while True: time.sleep(0.05)
        """
    )
    agent = await program.begin()
    assert [await agent.line() for _ in range(2)] == ["imported", "['MainThread', 'of-slow']"]
    standby = await program.warm_world(agent)
    assert await agent.line() == "['MainThread', 'of-slow']"
    agent.process.send_signal(signal.SIGUSR1)
    assert await agent.line() == "handled"
    assert program.importers()[-1] == standby
    assert "imported" in await ended(agent)  # on standard error, when the process begins


@pytest.mark.thorough
async def test_later_imports_join_the_process_in_standby(program: Program) -> None:
    program.package("", "late")
    program.script(
        """
        import os, sys, time, slow
        print(sys.argv, flush=True)
        while not os.path.exists("go"): time.sleep(0.05)
        import late
        print(os.environ["W"], flush=True)
        time.sleep(600)
        """
    )
    agent = await program.begin(W="1")
    await agent.line()
    standby = await program.in_standby(agent)
    assert program.importers()[-1] == standby
    (program.folder / "go").touch()
    assert await agent.line() == "1"
    await until("it has imported late", lambda: program.importers()[-1] == standby)
    await program.warm_world(agent, W="2")
    await agent.line()
    assert await agent.line() == "2"
    assert program.importers()[2:] == [program.importers()[0], standby]


@pytest.mark.thorough
async def test_a_module_that_its_package_imports_is_imported_in_standby(program: Program) -> None:
    program.package("")
    (program.site / "package").mkdir()
    (program.site / "package" / "__init__.py").write_text("from package import module\n")
    (program.site / "package" / "module.py").write_text("import slow\n")
    program.script("import package.module, time\nprint('up', flush=True)\ntime.sleep(600)")
    agent = await program.begin()
    assert await agent.line() == "up"
    standby = await program.warm_world(agent)
    assert await agent.line() == "up"
    assert program.importers()[1:] == [standby]


async def test_processes_in_standby_end_with_the_agent(program: Program) -> None:
    program.script("import os, time, slow\nprint('up', flush=True)\ntime.sleep(600)")
    agent = await program.begin()
    await agent.line()
    standby = await program.in_standby(agent)
    agent.process.kill()
    await until("it has ended", lambda: not alive(standby))


@pytest.mark.thorough
async def test_the_end_of_a_broken_world_leaves_the_process_in_standby(
    fake_master: FakeMaster, program: Program
) -> None:
    program.script("import os, slow, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    agent = await program.begin()
    assert await agent.line()
    standby = await program.in_standby(agent)
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=0))
    assert (await fake_master.exited(1)).exit_code == 128 + signal.SIGKILL
    await fake_master.begin(2)
    assert await agent.line() == str(standby)


async def publish_imports(fake_master: FakeMaster, agent: AgentProcess, round_: int) -> bytes:
    """Let an agent run the program as the first worker of a world; return what it sends of it."""
    first = pb.Member(pod_name="job-worker-0", role="worker")
    second = pb.Member(pod_name="job-worker-1", role="worker")
    world = pb.World(round=round_, members=[first, second])
    await fake_master.order(start=pb.Start(world=world, rank=0))
    assert await agent.line()
    (imports,) = await fake_master.received.wait(lambda received: received.of_kind("imports"))
    plan: bytes = imports.plan
    return plan


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_a_new_member_imports_as_the_others_before_it_registers(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    allowed = program.folder / "allowed"
    program.package(
        f"""
        import time
        while os.environ["ELASTICJOB_INDEX"] == "1" and not os.path.exists({str(allowed)!r}):
            time.sleep(0.01)
        print("imported", file=open({str(program.folder / "first")!r}, "a"))
        """
    )
    program.script("import os, slow, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    variables = program.environment()
    old = await run(sys.executable, "train.py", **variables)
    fake_master.imports = await publish_imports(fake_master, old, 1)
    index = {names.ENV_INDEX: "1", names.ENV_POD_UID: "uid-1-0"}
    new = await run(sys.executable, "train.py", **variables, **index)
    await until("the new one imports", lambda: list(children(new.process.pid)))
    assert [request.index for request in fake_master.registered] == [0]
    allowed.touch()
    await until("it registers", lambda: len(fake_master.registered) == 2)
    # It registers when its interpreter reports its imports, a moment before that waits.
    (standby,) = await until("it waits in standby", lambda: waiting(new))
    assert program.importers()[-1] == standby
    imported = program.importers()
    await fake_master.received.wait(
        lambda received: [h for h in received.of_kind("hello") if h.pod_uid == "uid-1-0"]
    )
    await fake_master.begin(2)
    assert await new.line() == str(standby)
    assert program.importers() == imported


@pytest.mark.thorough
async def test_a_new_member_with_torchrun_imports_for_one_torchrun(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    fake_master.imports = b'{"modules": ["slow"]}'
    program.script("import os, slow, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    torchrun = program.folder / "torchrun"
    torchrun.write_text(f"#!{sys.executable}\nimport os, runpy\nrunpy.run_path('train.py')\n")
    torchrun.chmod(0o755)
    variables = {names.ENV_FRAMEWORK: "pytorch", names.ENV_SLOTS: "2"}
    agent = await run(str(torchrun), "train.py", **program.environment(), **variables)
    await until("it registers", lambda: fake_master.registered)
    (standby,) = program.importers()
    world = pb.World(round=1, members=[pb.Member(pod_name="job-worker-0", address="127.0.0.1")])
    await fake_master.order(start=pb.Start(world=world))
    assert await agent.line() == str(standby)


@pytest.mark.parametrize(
    "plan",
    [b"\xff", b"[]", b'{"modules": "os"}\n{}', b'{"modules": ["nosuch_package", "slow"]}'],
    ids=["no text", "no object", "no list", "not installed"],
)
async def test_a_member_joins_whatever_it_is_to_import(
    fake_master: FakeMaster, program: Program, plan: bytes
) -> None:
    fake_master.imports = plan
    program.script("import slow, time\nprint('trains', flush=True)\ntime.sleep(600)")
    agent = await program.begin()
    assert await agent.line() == "trains"


async def test_a_member_that_is_told_to_end_while_it_imports_does_so_at_once(
    fake_master: FakeMaster, run: Run, program: Program
) -> None:
    program.package("import time\ntime.sleep(600)")
    fake_master.imports = b'{"modules": ["slow"]}'
    program.script("import slow")
    agent = await run(sys.executable, "train.py", **program.environment())
    await until("it imports", lambda: list(children(agent.process.pid)))
    ((standby, _),) = children(agent.process.pid)
    agent.process.terminate()
    code, _, _ = await agent.end()
    assert code == names.EXIT_DRAINED
    await until("the end of its process in standby", lambda: not alive(standby))
    assert fake_master.registered == []
