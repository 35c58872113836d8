"""Runs programs by an agent that keeps processes in standby, and shows what they see."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AgentProcess, Run
from tests.support.fake_master import FakeMaster
from tests.support.standby import in_standby
from tests.support.wait import until

ALWAYS = {names.ENV_STANDBY: "Always"}
MODULE = "tests.support.standby_probe"


class Program:
    """A program in a folder, with a package `slow` in a site-packages folder, and its worlds."""

    def __init__(self, folder: Path, run: Run, master: FakeMaster) -> None:
        self._run = run
        self._master = master
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

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**ALWAYS, "PYTHONPATH": path}

    async def begin(self, **variables: str) -> AgentProcess:
        """Run train.py by an agent, and begin its first world."""
        agent: AgentProcess = await self._run(sys.executable, "train.py", **self.environment())
        await self._master.begin(1, **variables)
        return agent

    async def in_standby(self, agent: AgentProcess) -> int:
        """Wait until a process is in standby, and the agent knows it; return its id."""
        await until("a process is in standby", lambda: len(waiting(agent)) == 1)
        await self._master.handled()
        (standby,) = waiting(agent)
        return standby

    async def next_world(self, round_: int, **variables: str) -> None:
        await self._master.order(stop=pb.Stop(round=round_ - 1, grace_seconds=5))
        await self._master.exited(round_ - 1)
        await self._master.begin(round_, **variables)

    async def warm_world(self, agent: AgentProcess, round_: int = 2, **variables: str) -> int:
        """Begin a world in which the process in standby runs, and return its id."""
        standby = await self.in_standby(agent)
        await self.next_world(round_, **variables)
        return standby


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


SHOW = f"""
    import json, sys, time
    sys.path.append({str(Path(__file__).parents[2])!r})
    import slow
    from {MODULE} import facts
    print(json.dumps(facts()), flush=True)
    time.sleep(600)
"""


async def shown(agent: AgentProcess) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(await agent.line())
    return facts


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}
