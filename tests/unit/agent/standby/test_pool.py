"""When a pool starts, keeps and ends processes in standby."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from elasticjob_agent.standby import pool
from elasticjob_agent.standby.import_list import Memory
from elasticjob_agent.standby.pool import Shell, StandbyPool

from tests.support.wait import until

GIB = 1 << 30


class World:
    """A pool whose child processes run a script that imports a package of site-packages."""

    def __init__(self, folder: Path) -> None:
        site = folder / "site-packages"
        site.mkdir()
        (site / "slow.py").write_text("import os\n")
        (folder / "train.py").write_text("import slow, time\ntime.sleep(600)\n")
        self.command = [sys.executable, str(folder / "train.py")]
        self.container = {"PYTHONPATH": str(site)}
        self.memory = Memory(total=100 * GIB, left=100 * GIB)
        self.started: list[subprocess.Popen[bytes]] = []
        shell = Shell(start=self._start, watch=self._watch, memory=lambda: self.memory)
        self.pool = StandbyPool(self.command, self.container, shell)
        self.on_exit: dict[int, Callable[[int], None]] = {}

    def _start(
        self, command: Sequence[str], environment: Any, *, piped: bool, pass_fds: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(command, env=environment, pass_fds=pass_fds)
        self.started.append(started)
        return started

    def _watch(self, pid: int, on_exit: Callable[[int], None]) -> None:
        self.on_exit[pid] = on_exit

    def run(self, *command: str, **variables: str) -> subprocess.Popen[bytes] | None:
        return self.pool.start(
            0,
            command or self.command,
            {**self.container, **variables},
            piped=False,
            on_exit=lambda _code: None,
        )

    async def checks(self, count: int) -> None:
        """Check until a number of processes is in standby."""

        def check() -> int:
            self.pool._check()
            return len(self.pool.pids)

        await until(f"{count} are in standby", check, lambda found: found == count)


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(pool, "QUIET_SECONDS", 0.1)
    world = World(tmp_path)
    yield world
    world.pool.close()
    for process in world.started:
        process.kill()
        process.wait()
        if process.pid in world.on_exit:
            world.on_exit[process.pid](-9)


@pytest.mark.guarantee("standby-takes-only-what-is-left")
async def test_none_is_kept_without_memory_for_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.memory = Memory(total=100 * GIB, left=10 * GIB)
    world.run()

    def said() -> str:
        world.pool._check()
        return capsys.readouterr().err

    await until("it says so", said, lambda text: "no process in standby, as 1 of " in text)
    world.pool._check()
    assert (capsys.readouterr().err, world.pool.pids) == ("", set())


async def test_it_ends_when_the_training_needs_its_memory_and_none_follows_in_that_world(
    world: World,
) -> None:
    world.run()
    await world.checks(1)
    world.memory = Memory(total=100 * GIB, left=4 * GIB)
    await world.checks(0)
    world.memory = Memory(total=100 * GIB, left=100 * GIB)
    world.pool._check()
    assert world.pool.pids == set()
    assert await asyncio.to_thread(world.started[1].wait) == -9


async def test_a_command_with_references_in_its_arguments_is_started_by_the_agent(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.run(*world.command, "--rank=1") is None
    assert "its arguments differ from world to world" in capsys.readouterr().err
    assert world.run() is None
    assert capsys.readouterr().err == ""


async def test_no_descriptor_stays_open_when_a_process_cannot_be_started(world: World) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    def fail(*_: Any, **__: Any) -> subprocess.Popen[bytes]:
        raise OSError("no memory")

    shell = Shell(start=fail, watch=world._watch, memory=lambda: world.memory)
    with pytest.raises(OSError, match="no memory"):
        StandbyPool(world.command, {}, shell).start(
            0, world.command, {}, piped=False, on_exit=lambda _code: None
        )
    assert len(list(Path("/proc/self/fd").iterdir())) == before
