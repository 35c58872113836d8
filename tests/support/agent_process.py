"""Runs the agent as a process with a real command, and reads its results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticjob_api import names

from tests.support.wait import SECONDS

AGENT = str(Path(sys.executable).with_name("elasticjob-agent"))
Run = Callable[..., Any]
"""Starts an agent with a command; `program` and more environment variables go by name."""


def agent_environment(
    more: Mapping[str, str],
    *,
    master: str,
    index: int = 0,
    incarnation: int = 0,
    job: str = "job",
    address: str = "127.0.0.1",
) -> dict[str, str]:
    """Return this process's environment with the variables of a worker's container, as the operator
    sets them.

    `more` overrides them. `incarnation` is the number of earlier pods with this index.
    """
    return {
        **os.environ,
        names.ENV_JOB_NAME: job,
        names.ENV_JOB_UID: "job-uid",
        names.ENV_NAMESPACE: "default",
        names.ENV_POD_NAME: names.member_pod(job, "worker", index, incarnation),
        names.ENV_POD_UID: f"uid-{index}-{incarnation}",
        names.ENV_POD_IP: address,
        names.ENV_ROLE: "worker",
        names.ENV_INDEX: str(index),
        names.ENV_INCARNATION: str(incarnation),
        names.ENV_MASTER_SERVICE: names.master_service(job),
        names.service_host_env(names.master_service(job)): master,
        names.ENV_TERMINATION_LOG: os.devnull,
        **more,
    }


@dataclass
class AgentProcess:
    """One running agent."""

    process: asyncio.subprocess.Process
    folder: Path

    async def end(self) -> tuple[int, str, str]:
        out, err = await asyncio.wait_for(self.process.communicate(), SECONDS)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()

    async def line(self) -> str:
        """Return the next line of the command's output, without its end."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), SECONDS)
        return line.decode().strip()

    @property
    def termination(self) -> str:
        path = self.folder / "termination"
        return path.read_text() if path.exists() else ""


@asynccontextmanager
async def agents(master: str, folder: Path) -> AsyncIterator[Run]:
    """Yield a function that starts agents of this master, and end them after the block."""
    started: list[AgentProcess] = []

    async def start(
        *command: str, program: tuple[str, ...] = (AGENT, "run", "--"), **more: str
    ) -> AgentProcess:
        defaults = {
            names.ENV_TERMINATION_LOG: str(folder / "termination"),
            names.ENV_DRAIN_SECONDS: "2",
        }
        # The address of the test's master is used, because it belongs to this test only.
        environment = agent_environment({**defaults, **more}, master=master, address=master)
        process = await asyncio.create_subprocess_exec(
            *program,
            *command,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(AgentProcess(process, folder))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            if one.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    # the agent ends its child processes, which a kill would leave behind
                    one.process.terminate()
                await one.end()


def python(folder: Path, text: str) -> tuple[str, ...]:
    """Return the command of a Python script with this text."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text))
    return (sys.executable, "-u", str(script))


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process catches a signal, as an agent that has begun catches SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # The latter if it ends between opening and reading.
        return False
    return state != "Z"
