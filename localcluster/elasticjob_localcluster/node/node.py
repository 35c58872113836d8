"""Runs the process node: creates its parts, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from elasticjob_api.meta import Json
from elasticjob_kube import open_files
from elasticjob_kube.errors import KubeError
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube, connect
from elasticjob_processes import guard
from elasticjob_processes.killing import kill_marked

from elasticjob_localcluster.node.addresses import AddressPool
from elasticjob_localcluster.node.admission import ProcessUser
from elasticjob_localcluster.node.container_reaper import ContainerReaper
from elasticjob_localcluster.node.context import NodeContext, ServiceLister
from elasticjob_localcluster.node.events import EventRecorder
from elasticjob_localcluster.node.memory_limits import MemoryWatcher
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.pod_workers import PodWorkers
from elasticjob_localcluster.node.registration import (
    keep_registered,
    machine_capacity,
    mark_not_ready,
    node_object,
)
from elasticjob_localcluster.node.server import serve, tls
from elasticjob_localcluster.node.service_account import ApiServer
from elasticjob_localcluster.node.streaming import Streaming
from elasticjob_localcluster.node.volumes import remove_state_folders

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    kubeconfig: Path
    serving_cert: Path
    serving_key: Path
    client_ca: Path
    name: str
    state: Path
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Overrides of what the machine has, for example {"cpu": "64"}."""
    taints: Sequence[Json] = ()
    """The taints that the node is registered with when it is new."""
    pods_api_server: str | None = None
    """The URL at which containers reach the API server; by default the one of the node."""
    inherited: Sequence[str] = ()
    """Variables of the node's own environment that containers get."""

    @property
    def node_id(self) -> str:
        """The prefix of the markers of this node's processes."""
        return hashlib.sha256(f"{self.state.resolve()}\0{self.name}".encode()).hexdigest()[:16]


async def run(settings: Settings) -> None:
    """Run the node until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    open_files.raise_limit()  # each running container takes two
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    kill_marked(settings.node_id)  # of an earlier process of this node
    remove_state_folders(settings.node_id)
    reaper = ContainerReaper()
    reaper.watch(guard.start(settings.node_id).pid, lambda _: _on_guard_exit(stop))
    async with (
        connect(user_agent="elasticjob-process-node", kubeconfig=settings.kubeconfig) as kube,
        aiohttp.ClientSession() as http,
    ):
        pods = PodWorkers()
        certificates = tls(settings.serving_cert, settings.serving_key, settings.client_ca)
        server, port = await serve(pods, Streaming(pods, reaper), certificates)
        context = _context(settings, kube, http, reaper, pods)
        pods.start(context)
        informer = Informer(
            kube,
            PODS,
            Pod,
            field_selector=f"spec.nodeName={settings.name}",
            on_change=pods.on_pod_change,
            on_rewound=pods.write_again,
        )
        node = node_object(settings.name, context.allocatable, port, settings.taints)
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("heartbeat", keep_registered(kube, node, context.allocatable)),
                ("pods", informer.run()),
                ("files", _remove_orphaned_directories(informer, pods)),
                ("memory", context.memory.run()),
                ("stop", stop.wait()),
            )
        ]
        try:
            await _wait_for_stop(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pods.stop()
            with contextlib.suppress(KubeError):
                await mark_not_ready(kube, settings.name)
            await server.stop()


def _on_guard_exit(stop: asyncio.Event) -> None:
    log.error(
        "stopping, because the process guard was killed: "
        "without it, processes could outlive a crash of the node"
    )
    stop.set()


async def _wait_for_stop(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Wait for the stop signal; raise the exception of a task that fails before."""
    pending = set(tasks)
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            if task.get_name() == "stop":
                return


async def _remove_orphaned_directories(informer: Informer[Pod], pods: PodWorkers) -> None:
    await informer.synced.wait()
    pods.remove_orphaned_directories()


def _context(
    settings: Settings,
    kube: Kube,
    http: aiohttp.ClientSession,
    reaper: ContainerReaper,
    pods: PodWorkers,
) -> NodeContext:
    api = _api_server(settings.kubeconfig, settings.pods_api_server)
    return NodeContext(
        name=settings.name,
        node_id=settings.node_id,
        directory=settings.state.resolve(),
        kube=kube,
        api=api,
        inherited=settings.inherited,
        allocatable={**machine_capacity(), **settings.capacity},
        user=ProcessUser(os.getuid(), os.getgid(), frozenset(os.getgroups()) | {os.getgid()}),
        reaper=reaper,
        memory=MemoryWatcher(),
        addresses=AddressPool(api.authority_data),
        events=EventRecorder(kube, settings.name),
        services=ServiceLister(kube),
        http=http,
        finished_or_terminating=pods.finished_or_terminating,
        allocated_to_others=pods.allocated_to_others,
    )


def _api_server(kubeconfig: Path, url: str | None) -> ApiServer:
    config: Json = yaml.safe_load(kubeconfig.read_text())
    current = next(
        context for context in config["contexts"] if context["name"] == config["current-context"]
    )
    name = current["context"]["cluster"]
    cluster = next(cluster["cluster"] for cluster in config["clusters"] if cluster["name"] == name)
    authority = cluster.get("certificate-authority-data")
    if authority is None:
        file = kubeconfig.parent / cluster["certificate-authority"]
        authority = base64.b64encode(file.read_bytes()).decode()
    return ApiServer(url or cluster["server"], authority)
