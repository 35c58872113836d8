"""Runs the cluster of a chaos run: control plane, process node and operators, each restarted when
it ends.

Operators and pods reach the API server by separate proxies, which the run can cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from elasticjob_api import names
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import components
from elasticjob_localcluster.controlplane.ports import free_port
from elasticjob_localcluster.crds import apply_crds, apply_policies

from tests.support.chaos.packet_filter import PacketFilter, packet_filter
from tests.support.chaos.record import Record
from tests.support.tcp_proxy import CuttableProxy, cuttable_proxy
from tests.support.wait import until

REPOSITORY = Path(__file__).parents[3]
HERE = Path(__file__).parent
NAMESPACE = "chaos"
OPERATORS = ("operator-0", "operator-1")
SECOND_NODE = "process-node-2"
NODES = (components.NODE, SECOND_NODE)
"""Two, as members watch each other from node to node only."""
VOLUME_BYTES = 48 << 20
_RESTART_SECONDS = 1.0


@dataclass
class ChaosCluster:
    """The running cluster.

    Attributes:
        directory: the folder of all files of the run.
        cluster: control plane and node.
        proxies: the ways of operators and of pods to the API server.
        commands: the commands of all processes that are restarted when they end, by name.
        tmpfs: whether the jobs' volume is a separate file system.
        clock: whether wall clocks can be shifted.
        packets: drops the packets of processes; None if that is not possible here.
        partitions: the number of partitions of the operators.
        ended: how often each process has ended.
    """

    directory: Path
    cluster: clusters.Cluster
    record: Record
    proxies: Mapping[str, CuttableProxy]
    commands: Mapping[str, tuple[list[str], dict[str, str]]]
    tmpfs: bool
    clock: bool
    packets: PacketFilter | None
    partitions: int
    ended: dict[str, int] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)

    @property
    def volume(self) -> Path:
        """Return the folder of the jobs' checkpoints: it may be full."""
        return self.directory / "volume"

    @property
    def leases(self) -> list[str]:
        """Return the names of the operators' Leases."""
        of_partitions = [f"{names.OPERATOR}-{index}" for index in range(self.partitions)]
        return [names.OPERATOR, *(of_partitions if self.partitions > 1 else ())]

    def pid(self, name: str) -> int:
        """Return the id of a process of this cluster."""
        return self.cluster.children[name].pid

    def usage(self, name: str) -> tuple[int, int]:
        """Return memory in MB and open files of a process."""
        process = psutil.Process(self.pid(name))
        return process.memory_info().rss >> 20, process.num_fds()

    def tasks(self, name: str) -> int:
        """Return the number of asyncio tasks that an operator has counted last; 0 if it has not."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.directory / "probe" / str(self.pid(name))).read_text())
        return 0

    def shift(self, name: str, seconds: int) -> None:
        """Let the wall clock of an operator or pod jump."""
        file = self.directory / "clocks" / name
        file.with_suffix(".new").write_text(str(seconds))
        file.with_suffix(".new").replace(file)

    def start(self, name: str) -> None:
        """Start a process."""
        command, environ = self.commands[name]
        self.cluster.children[name] = daemons.start(
            name, command, state=self.cluster.state, environ=environ
        )

    async def keep_running(self) -> None:
        """Restart every process that has ended, as a Deployment or a kubelet would."""
        due: dict[str, float] = {}
        while True:
            now = asyncio.get_running_loop().time()
            for name in self.commands:
                if name in self.stopping or self.cluster.children[name].poll() is None:
                    continue
                if name not in due:
                    code = self.cluster.children[name].returncode
                    self.ended[name] = self.ended.get(name, 0) + 1
                    self.record.write("ended", process=name, code=code)
                    due[name] = now + _RESTART_SECONDS
                elif now > due[name]:
                    del due[name]
                    self.start(name)
                    self.record.write("started", process=name, pid=self.pid(name))
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def chaos_cluster(
    directory: Path, record: Record, partitions: int
) -> AsyncIterator[ChaosCluster]:
    """Run a cluster while in the block."""
    for name in ("probe", "clocks", "volume", "jobs", "network"):
        (directory / name).mkdir()
    clock = _compile_clock(directory / "clock.so")
    tmpfs = _mount(directory / "volume")
    packets = packet_filter(directory / "network")
    cluster = await asyncio.to_thread(clusters.up, directory / "cluster", control_plane_only=True)
    try:
        async with contextlib.AsyncExitStack() as stack:
            ports = {name: free_port() for name in ("operator", "masters")}
            proxies = {
                name: await stack.enter_async_context(
                    cuttable_proxy("127.0.0.1", port, to=("127.0.0.1", cluster.port))
                )
                for name, port in ports.items()
            }
            made = ChaosCluster(
                directory,
                cluster,
                record,
                proxies,
                _commands(directory, cluster, ports, clock, partitions),
                tmpfs,
                clock,
                packets,
                partitions,
            )
            await apply_crds(cluster.kubeconfig, REPOSITORY / "crds")
            await apply_policies(cluster.kubeconfig, REPOSITORY / "policies")
            for name in (*NODES, *OPERATORS):
                made.start(name)
            await until(
                "the nodes are ready", lambda: asyncio.to_thread(_nodes_ready, cluster), seconds=60
            )
            running = asyncio.create_task(made.keep_running())
            try:
                yield made
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    finally:
        await asyncio.to_thread(cluster.down)
        if tmpfs:
            subprocess.run(["umount", "--lazy", directory / "volume"], check=False)
        if packets is not None:
            packets.close()


def _nodes_ready(cluster: clusters.Cluster) -> bool:
    ready = cluster.nodes()
    return all(ready.get(name, False) for name in NODES)


def _commands(
    directory: Path,
    cluster: clusters.Cluster,
    ports: Mapping[str, int],
    clock: bool,
    partitions: int,
) -> dict[str, tuple[list[str], dict[str, str]]]:
    programs = {path.name: path for path in cluster.bin.iterdir()}
    environ = dict(os.environ)
    shifted = {"CHAOS_CLOCKS": str(directory / "clocks")} | (
        {"LD_PRELOAD": str(directory / "clock.so")} if clock else {}
    )
    kubeconfig = directory / "operator.kubeconfig"
    kubeconfig.write_text(
        cluster.kubeconfig.read_text().replace(f":{cluster.port}", f":{ports['operator']}")
    )
    operator = [sys.executable, "-m", "elasticjob_operator.main"]
    operator += (
        ["--namespace", NAMESPACE]
        if partitions == 1
        else [f"--partitions={partitions}", "--lease-namespace", NAMESPACE]
    )
    operator += [
        "--kubeconfig",
        str(kubeconfig),
        "--master-image",
        "master:1",
        "--network-policies",
    ]
    node = components.node_command(cluster.state, {"cpu": "64", "memory": "64Gi"})
    node += ["--pods-api-server", f"https://127.0.0.1:{ports['masters']}"]
    node += [f"--inherit={name}" for name in shifted]
    second = [*node, "--name", SECOND_NODE, "--state", str(cluster.state / SECOND_NODE)]
    second += ["--kubeconfig", str(cluster.kubeconfig)]  # a node's own may not write another node
    probed = {"CHAOS_PROBE": str(directory / "probe"), "PYTHONPATH": str(HERE / "probe")}
    return {
        "etcd": (components.etcd_command(programs), environ),
        "kube-apiserver": (components.api_server_command(programs, cluster.port), environ),
        **{
            name: (command, environ)
            for name, command in components.controller_commands(programs).items()
        },
        # The nodes themselves keep their clock: their containers inherit the variables.
        components.NODE: (node, {**environ, **shifted}),
        SECOND_NODE: (second, {**environ, **shifted}),
        **{
            name: (operator, {**environ, **shifted, **probed, "CHAOS_CLOCK": name, "POD_UID": name})
            for name in OPERATORS
        },
    }


def _compile_clock(library: Path) -> bool:
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", library, HERE / "clock.c", "-ldl"], check=False
    )
    return done.returncode == 0


def _mount(folder: Path) -> bool:
    """Mount a small separate file system on a folder; needs root."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "chaos", str(folder)]
    return (
        os.geteuid() == 0
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )
