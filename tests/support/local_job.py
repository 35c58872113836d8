"""Runs a master and agents as local processes, each with its own loopback address."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from elasticjob_api import names

from tests.support.agent_process import AGENT, agent_environment
from tests.support.master_process import TOKEN, certificates
from tests.support.wait import wait_until
from tests.support.warm_process import WarmProcess, start_warm

SECONDS = 150
JOB = "job"


Start = Callable[..., WarmProcess | subprocess.Popen[bytes]]


class LocalJob:
    """The processes of one job. Each one's output is a file of the folder."""

    framework = "jax"

    def __init__(self, folder: Path, network: str, start: Start = start_warm) -> None:
        """Use the addresses of a network, such as `127.4.5` or `fd00:`; `start` runs masters."""
        self.folder = folder
        separator = ":" if ":" in network else "."
        self.prefix = f"{network}{separator}"
        self.host = f"{self.prefix}1"
        self._start_master = start
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._master: WarmProcess | subprocess.Popen[bytes] | None = None
        self._pods: Counter[int] = Counter()

    def start_master(self, least: int = 2, *options: str) -> None:
        """Start a master, which continues from the state that its predecessor has stored."""
        certificate, key = certificates()
        arguments = [
            "--standalone",
            f"--framework={self.framework}",
            f"--min={least}",
            "--max=4",
            f"--workers={least}",
        ]
        arguments += [
            f"--address={self.host}",
            "--http-port=0",
            f"--grpc-port={names.GRPC_PORT}",
        ]
        arguments += ["--state-file", str(self.folder / "state.json"), *options]
        environment = {
            names.ENV_JOB_NAME: JOB,
            names.ENV_TLS_CERT: certificate,
            names.ENV_TLS_KEY: key,
        }
        with (self.folder / "master.log").open("ab") as log:
            self._master = self._start_master(
                "elasticjob-master",
                *arguments,
                output=log,
                env={**os.environ, **environment, **_credentials()},
            )

    def start_agent(self, index: int, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start the agent of a worker with a command; each start is a new pod of the worker."""
        everything = agent_environment(
            {
                names.ENV_FRAMEWORK: self.framework,
                names.ENV_DRAIN_SECONDS: "20",
                **_credentials(),
                **environment,
            },
            index=index,
            incarnation=self._pods[index],
            master=self.host,
            job=JOB,
            address=f"{self.prefix}{10 + index}",
        )
        self._pods[index] += 1
        return self._start(f"worker-{index}", AGENT, "run", "--", *command, environment=everything)

    def kill_master(self) -> None:
        """Kill the master, as the loss of its node would."""
        assert self._master is not None, "no master was started"
        self._master.kill()
        _join(self._master)

    def log(self) -> str:
        """Return the output of all processes."""
        return "".join(
            f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log"))
        )

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until a condition is true."""
        wait_until(what, condition, seconds=SECONDS, explain=self.log)

    def wait_for_line(self, pattern: str) -> None:
        """Wait until one of the processes has printed a matching line."""
        self.wait(f"a line {pattern!r}", lambda: re.search(pattern, self.log()))

    def end(self) -> None:
        """End all processes, the youngest first."""
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
        if self._master is not None:
            self._master.terminate()
            _join(self._master)

    def _start(
        self, name: str, *command: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log
            )
        return self.processes[name]


def start_cold(
    program: str, *arguments: str, output: IO[bytes], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program as a child of this process, in its network namespace."""
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    return subprocess.Popen(command, env=dict(env), stdout=output, stderr=output)


def _join(master: WarmProcess | subprocess.Popen[bytes]) -> None:
    if isinstance(master, WarmProcess):
        master.join()
    else:
        master.wait(30)


def _credentials() -> dict[str, str]:
    return {names.ENV_TOKEN: TOKEN, names.ENV_CA: certificates()[0]}
