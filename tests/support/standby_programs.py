"""Runs programs by an agent that keeps processes in standby, and shows what they see."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess
from tests.support.fake_master import FakeMaster
from tests.support.standby import in_standby
from tests.support.wait import SECONDS, until

AUTO = {names.ENV_STANDBY: "Auto"}
MODULE = "tests.support.standby_probe"


class Program:
    """A program in a folder, with a package `slow` in a site-packages folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site-packages"
        self.site.mkdir()
        self.imports = folder / "imports"
        self.package("import os, time")

    def package(self, text: str, name: str = "slow") -> None:
        said = f"\nopen({str(self.imports)!r}, 'a').write(f'{name} {{os.getpid()}}\\n')\n"
        (self.site / f"{name}.py").write_text(f"import os\n{textwrap.dedent(text)}{said}")

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(textwrap.dedent(text))
        return name

    def importers(self) -> list[int]:
        """Return the processes that have imported the package, in order."""
        if not self.imports.exists():
            return []
        return [int(line.split()[1]) for line in self.imports.read_text().splitlines()]


def environment(program: Program) -> dict[str, str]:
    path = os.pathsep.join([str(program.site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**AUTO, "PYTHONPATH": path}


def children(pid: int) -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                yield int(entry.name), words


def waiting(agent: AgentProcess) -> list[int]:
    """Return the processes that wait for the agent's order."""
    return [pid for pid, words in children(agent.process.pid) if in_standby(pid, words)]


async def ready(agent: AgentProcess, master: FakeMaster, count: int = 1) -> list[int]:
    """Wait until processes are ready, and the agent knows it."""
    await until("the processes are in standby", lambda: len(waiting(agent)) == count)
    await master.handled()
    return waiting(agent)


async def next_world(master: FakeMaster, round_: int, **variables: str) -> None:
    await master.order(stop=pb.Stop(round=round_ - 1, grace_seconds=5))
    await master.exited(round_ - 1)
    await master.begin(round_, **variables)


SHOW = f"""
    import json, sys, time
    sys.path.append({str(Path(__file__).parents[2])!r})
    import slow
    from {MODULE} import facts
    print(json.dumps(facts()), flush=True)
    time.sleep(600)
"""


async def line(agent: AgentProcess) -> str:
    assert agent.process.stdout is not None
    return (await asyncio.wait_for(agent.process.stdout.readline(), SECONDS)).decode()


async def word(agent: AgentProcess) -> str:
    return (await line(agent)).strip()


async def shown(agent: AgentProcess) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(await line(agent))
    return facts


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}
