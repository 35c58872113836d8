"""Figures about the same toy model under this system, torchrun's elastic mode and torchft.

Three members train. One of their processes is killed; one joins; one leaves. The pause is that of
the members that stay: from the last step before to the first one after. All run on this machine,
without a cluster, one after the other. docs/frameworks/README.md has the table.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from elasticjob_api import names
from elasticjob_cli.run import environment
from elasticjob_kube import x509
from elasticjob_localcluster.training_library import with_training_library

from bench.bench_cluster import REPOSITORY, until
from bench.figure import NotMeasured, Result
from bench.training_pauses import Quiet

_PYTHON = Path(os.environ.get("FRAMEWORK_PYTHON", "/usr/bin/python3"))
_PROGRAM = str(REPOSITORY / "bench" / "peer_training.py")
_FIND = "import importlib.util as f, sys; sys.exit(not (f.find_spec('torchft')))"
_MEMBERS = 3
_ROUNDS = int(os.environ.get("ROUNDS", "5"))
_STEPS = 40
_SECONDS = 180.0
_PORT = 29_500
Changes = dict[str, list[tuple[float, int]]]
"""Pauses in seconds and lost steps, by the kind of the change."""


@dataclass
class Members:
    """The members of one training, and what they have recorded.

    Attributes:
        folder: of their records and output.
        variables: what all of them get.
        beside: other processes that the training needs.
    """

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _present: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _starts: Iterator[int] = field(default_factory=itertools.count)

    def command(self, _member: int) -> tuple[list[str], dict[str, str]]:
        """Return the command of a member, and its own variables."""
        raise NotImplementedError

    async def ready(self) -> None:
        """Wait until a change may come."""

    @property
    def after_a_kill(self) -> int:
        """The members that train next after a kill."""
        return _MEMBERS - 1

    def spawn(
        self, name: str, command: list[str], variables: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, env=variables, stdout=log, stderr=log, start_new_session=True
            )

    def start(self, member: int) -> None:
        """Start a member."""
        command, own = self.command(member)
        everything = {**os.environ, **self.variables, **own, "MEMBER": str(member)}
        everything |= {"RECORDS": str(self.folder), "GLOO_SOCKET_IFNAME": "lo"}
        self._present[member] = self.spawn(f"member-{member}", command, everything)

    def records(self) -> dict[tuple[int, int], list[tuple[float, int, int]]]:
        """Return time, step and size of each recorded step, by member and process."""
        found = {}
        for path in self.folder.glob("*.jsonl"):
            member, pid = path.stem.split("-")
            text = path.read_text().splitlines()
            lines = [json.loads(line) for line in text if line.endswith("]")]
            found[int(member), int(pid)] = [(at, step, size) for at, step, size in lines]
        return found

    async def trains(self, size: int, since: float = 0.0) -> None:
        """Wait until this number of processes has trained together for a while."""

        async def trained() -> bool:
            alive = [
                each for each in self.records().values() if each and each[-1][0] > time.time() - 2
            ]
            return len(alive) == size and all(
                len(each) >= _STEPS and each[-_STEPS][0] > since and each[-_STEPS][2] == size
                for each in alive
            )

        await until(f"{size} members train ({self.folder})", trained, seconds=_SECONDS)
        await self.ready()

    def kill(self, member: int) -> None:
        """Kill the training process of a member."""
        _, pid = max(
            (each[-1][0], key) for key, each in self.records().items() if each and key[0] == member
        )[1]
        os.kill(pid, signal.SIGKILL)

    def leave(self, member: int) -> None:
        """Ask a member to end, as its node does."""
        self._present[member].terminate()

    def ends(self, member: int) -> subprocess.Popen[bytes]:
        """Return a member that ends now and is started anew later."""
        return self._present.pop(member)

    def cost(self, since: float) -> tuple[float, int]:
        """Return the longest pause of a member that stays, and the steps that it has repeated."""
        pause = 0.0
        lost = 0
        for member in range(_MEMBERS - 1):
            steps = sorted(
                each for key, found in self.records().items() if key[0] == member for each in found
            )
            for before, after in itertools.pairwise(steps):
                if after[0] > since and after[0] - before[0] > pause:
                    pause = after[0] - before[0]
                lost = max(lost, before[1] - after[1] + 1) if after[0] > since else lost
        return pause, lost

    def step_milliseconds(self) -> float:
        """Return the time of a step while nothing changes."""
        newest = max((each for each in self.records().values() if each), key=lambda each: each[-1])
        times = [at for at, _, _ in newest[-_STEPS:]]
        return 1000 * median(after - before for before, after in itertools.pairwise(times))

    def end(self) -> None:
        """Kill everything."""
        for process in (*self._present.values(), *self.beside):
            for pid in {process.pid, *(pid for _, pid in self.records())}:
                try:
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                except OSError:
                    continue
            process.wait()


class Ours(Members):
    """A master and agents."""

    def __init__(self, folder: Path, way: str, *, standby: bool = False) -> None:
        super().__init__(folder)
        self._namespace = f"bench-{secrets.token_hex(4)}"
        self._standby = standby
        usage = x509.key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
        valid = timedelta(days=1)
        authority = x509.new_authority(x509.subject("bench"), valid=valid, usage=usage)
        hosts = [names.TLS_SERVER_NAME]
        server = x509.issue(
            authority, x509.subject(hosts[0]), valid=valid, purposes=(x509.SERVER,), hosts=hosts
        )
        self._run = environment.Run(
            name="bench",
            uid=self._namespace,
            framework="pytorch",
            command=[str(_PYTHON), _PROGRAM, way],
            subnet=f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}",
            marker=self._namespace,
            token=secrets.token_urlsafe(32),
            authority=authority.certificate_pem.decode(),
            certificate=server.certificate_pem.decode(),
            key=server.key_pem.decode(),
            least=1,
            most=_MEMBERS + 1,
            restart_limit=0,
        )
        options = ["--standalone", "--framework=pytorch", "--min=1", f"--workers={_MEMBERS}"]
        options += [f"--address={self._run.master_address}", f"--state-file={folder}/master"]
        options += ["--on-world-change=Notify"] if way == "worlds" else []
        variables = environment.master_environment(self._run, os.environ)
        command = [sys.executable, "-P", "-m", "elasticjob_master.main", *options]
        self.beside.append(self.spawn("master", command, variables))

    def command(self, member: int) -> tuple[list[str], dict[str, str]]:
        """Return that of an agent of a new pod."""
        library = with_training_library(os.environ, self.folder / "library")
        words = str(self.folder / "last-words")
        given = environment.agent_environment(
            self._run,
            member,
            next(self._starts),
            library,
            files=str(self.folder),
            last_words=words,
            gpus=(),
        )
        given |= {names.ENV_NAMESPACE: self._namespace, names.ENV_DRAIN_SECONDS: "120"}
        given |= {names.ENV_STANDBY: "Auto"} if self._standby else {}
        agent = [sys.executable, "-P", "-m", "elasticjob_agent.main", "run", "--"]
        return [*agent, *self._run.command], given

    async def ready(self) -> None:
        """Wait until each process has one in standby."""
        if self._standby:
            every = Quiet(self._namespace, len(self._present))
            await until("all are in standby", every, seconds=_SECONDS)


class Torchrun(Members):
    """torchrun with 1 to 4 nodes. In each world it starts all processes, also a killed one."""

    after_a_kill = _MEMBERS

    def command(self, member: int) -> tuple[list[str], dict[str, str]]:
        """Return torchrun's. With its shared store it does not recover (findings/)."""
        options = ["--nnodes=1:4", "--nproc_per_node=1", "--max_restarts=100", "--rdzv_id=bench"]
        options += ["--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{_PORT}"]
        options += ["--rdzv_conf=last_call_timeout=1", _PROGRAM, "torchrun"]
        own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return [str(_PYTHON.with_name("torchrun")), *options], own


class Torchft(Members):
    """Replica groups of one process, and a lighthouse."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        options = ["--min_replicas=1", "--quorum_tick_ms=50", "--join_timeout_ms=1000"]
        lighthouse = str(_PYTHON.with_name("torchft_lighthouse"))
        command = [lighthouse, f"--bind=127.0.0.1:{_PORT + 1}", *options]
        self.beside.append(self.spawn("lighthouse", command, {**os.environ, "RUST_LOG": "error"}))
        self.variables["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{_PORT + 1}"

    def command(self, member: int) -> tuple[list[str], dict[str, str]]:
        """Return torchrun's, of a node of its own."""
        port = f"--master_port={_PORT + 2 + member}"
        options = ["--nnodes=1", "--nproc_per_node=1", port, _PROGRAM, "torchft"]
        return [str(_PYTHON.with_name("torchrun")), *options], {"RUST_LOG": "error"}


async def _measure(members: Members) -> tuple[float, Changes]:
    """Return the milliseconds of a step, and what each change costs."""
    changes: Changes = {"kill -9": [], "join": [], "leave": []}
    try:
        for member in range(_MEMBERS):
            members.start(member)
        await members.trains(_MEMBERS)
        step = members.step_milliseconds()
        last = _MEMBERS - 1

        async def change(kind: str, size: int) -> None:
            began = time.time()
            if kind == "join":
                members.start(last)
            elif kind == "leave":
                members.leave(last)
            else:
                members.kill(last)
            ended = members.ends(last) if size < _MEMBERS else None
            await members.trains(size, began)
            changes[kind].append(members.cost(began))
            if ended is not None:
                await asyncio.to_thread(ended.wait, _SECONDS)
                await change("join", _MEMBERS)

        for _ in range(_ROUNDS):
            await change("kill -9", members.after_a_kill)
            await change("leave", _MEMBERS - 1)
        return step, changes
    finally:
        members.end()


_WAYS: dict[str, Callable[[Path], Members]] = {
    "torchft": Torchft,
    "torchrun": Torchrun,
    "worlds": lambda folder: Ours(folder, "worlds"),
    "standby: Auto": lambda folder: Ours(folder, "restart", standby=True),
    "default": lambda folder: Ours(folder, "restart"),
}


async def kill_beside_peers() -> Result:
    """Measure the pause after a kill with processes that continue; the limit is torchft's."""
    if await asyncio.to_thread(subprocess.call, [_PYTHON, "-c", _FIND]):
        raise NotMeasured(f"{_PYTHON} has no torchft: pip install torchft==0.2.0 torch==2.15.0")
    kills: dict[str, list[float]] = {}
    for name, make in _WAYS.items():
        with TemporaryDirectory(prefix="elasticjob-bench-", ignore_cleanup_errors=True) as folder:
            step, changes = await _measure(make(Path(folder)))
        kills[name] = [pause for pause, _ in changes["kill -9"]]
        _print(name, step, changes)
    return Result(kills["worlds"], kills["torchft"], "s")


def _print(name: str, step: float, changes: Changes) -> None:
    sys.stderr.write(f"{name}: a step takes {step:.1f} ms\n")
    for kind, costs in changes.items():
        seconds = sorted(pause for pause, _ in costs)
        lost = median(steps for _, steps in costs)
        least_to_most = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
        sys.stderr.write(f"  {kind}: {median(seconds):.2f} s ({least_to_most}), {lost:g} lost\n")
