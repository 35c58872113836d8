"""The digits example through world changes: real agents, the real master, JAX in real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.master_process import TOKEN, certificates
from tests.support.wait import wait_until

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 150
EPOCHS = 100
STEPS = EPOCHS * 12


class Rig:
    """A master and agents as processes of this machine, each with its own loopback address, as in the process node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.subnet = f"127.{78 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        certificate, key = certificates()
        self.secrets = {
            names.ENV_JOB_NAME: "digits",
            names.ENV_TOKEN: TOKEN,
            names.ENV_CA: certificate,
            names.ENV_TLS_CERT: certificate,
            names.ENV_TLS_KEY: key,
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        self.processes[name] = process
        return process

    def master(self) -> None:
        arguments = ["--standalone", "--framework=jax", "--min=2", "--max=4", "--workers=2"]
        state = str(self.folder / "state.json")
        self.start(
            "master", str(BIN / "elasticjob-master"), *arguments, "--address", f"{self.subnet}.1",
            "--http-port=0", f"--grpc-port={names.GRPC_PORT}", "--state-file", state, **self.secrets,
        )  # fmt: skip

    def agent(self, index: int) -> subprocess.Popen[bytes]:
        return self.start(
            f"worker-{index}", str(BIN / "elasticjob-agent"), "run", "--", sys.executable, "-m", "digits.train",
            PYTHONPATH=str(EXAMPLES), EPOCHS=str(EPOCHS), CHECKPOINT_DIR=str(self.folder / "checkpoints"),
            **{
                **{name: self.secrets[name] for name in (names.ENV_JOB_NAME, names.ENV_TOKEN, names.ENV_CA)},
                names.ENV_JOB_UID: "job-uid",
                names.ENV_NAMESPACE: "default",
                names.ENV_POD_NAME: f"digits-worker-{index}",
                names.ENV_POD_UID: f"uid-{index}",
                names.ENV_POD_IP: f"{self.subnet}.{10 + index}",
                names.ENV_ROLE: "worker",
                names.ENV_INDEX: str(index),
                names.ENV_DRAIN_SECONDS: "20",
                names.ENV_MASTER_SERVICE: "digits-master",
                names.service_host_env("digits-master"): f"{self.subnet}.1",
                names.ENV_TERMINATION_LOG: str(self.folder / f"worker-{index}.termination"),
            },
        )  # fmt: skip

    def log(self) -> str:
        return "".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def steps(self) -> int:
        return max(map(int, re.findall(r"step (\d+)/", self.log())), default=0)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        wait_until(what, condition, seconds=SECONDS, explain=self.log)

    def wait_for_line(self, pattern: str) -> None:
        self.wait(f"a line {pattern!r}", lambda: re.search(pattern, self.log()))

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.end()


def test_digits_are_learned_through_2_3_2_processes_and_a_killed_master_and_no_step_is_lost_or_done_twice(
    rig: Rig,
) -> None:
    rig.master()
    first, second = rig.agent(0), rig.agent(1)
    rig.wait_for_line(r"step \d+/1200 round 1 size 2")
    third = rig.agent(2)
    rig.wait_for_line(r"step \d+/1200 round 2 size 3")
    second.send_signal(signal.SIGTERM)
    rig.wait_for_line(r"step \d+/1200 round 3 size 2")
    rig.processes["master"].kill()
    rig.processes["master"].wait()
    steps = rig.steps()
    rig.wait("training goes on without a master", lambda: rig.steps() >= steps + 100)
    rig.master()
    rig.wait("the agents end", lambda: all(agent.poll() is not None for agent in (first, second, third)))
    log = rig.log()
    assert (first.returncode, second.returncode, third.returncode) == (0, names.EXIT_DRAINED, 0), log
    stopped = [int(step) for step in re.findall(r"stopped after step (\d+)/", log)]
    resumed = [int(step) for step in re.findall(r"from step (\d+),", log)]
    assert sorted(resumed) == sorted([0, *stopped]), log
    finished = re.search(r"finished: (\d+) steps, test accuracy ([0-9.]+)", log)
    assert finished, log
    assert int(finished[1]) == STEPS
    assert float(finished[2]) >= 0.95
    logged = [int(step) for step in re.findall(r"step (\d+)/1200 round", log)]
    assert sorted(logged) == list(range(50, STEPS + 1, 50)), log
