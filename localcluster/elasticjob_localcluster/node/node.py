"""The life of the whole program: what it is made of, in which order it starts and stops."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from elasticjob_kube.errors import KubeError
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube, connect

from elasticjob_localcluster.node import process_guard
from elasticjob_localcluster.node.addresses import Addresses
from elasticjob_localcluster.node.admission import Owner
from elasticjob_localcluster.node.context import Host
from elasticjob_localcluster.node.events import Events
from elasticjob_localcluster.node.memory_limits import MemoryWatch
from elasticjob_localcluster.node.pod_model import Json, Pod
from elasticjob_localcluster.node.pod_workers import Pods
from elasticjob_localcluster.node.process_tree import Reaper, kill_marked
from elasticjob_localcluster.node.registration import capacity, node_object, say_not_ready, stay_registered
from elasticjob_localcluster.node.server import serve, tls
from elasticjob_localcluster.node.service_account import ApiServer
from elasticjob_localcluster.node.services import Services

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How the node was started."""

    kubeconfig: Path
    serving_cert: Path
    serving_key: Path
    client_ca: Path
    name: str
    state: Path
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Overrides of what the machine has, for example {"cpu": "64"}."""
    taints: Sequence[Json] = ()
    """What the node is registered with when it is new."""

    @property
    def node_id(self) -> str:
        """Marks the processes of this node among those of other nodes on the machine."""
        return hashlib.sha256(f"{self.state.resolve()}\0{self.name}".encode()).hexdigest()[:16]


async def run(settings: Settings) -> None:
    """Be a node until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _allow_many_files()
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    kill_marked(settings.node_id)  # what an earlier life left behind
    reaper = Reaper()
    guard = process_guard.start(settings.node_id)
    reaper.watch(guard.pid, lambda _: _keeper_died(stop))
    async with (
        connect(user_agent="elasticjob-process-node", kubeconfig=settings.kubeconfig) as kube,
        aiohttp.ClientSession() as http,
    ):
        pods = Pods()
        runner, port = await serve(pods, tls(settings.serving_cert, settings.serving_key, settings.client_ca))
        host = _host(settings, kube, http, reaper, pods)
        pods.serve(host)
        informer = Informer(kube, PODS, Pod, field_selector=f"spec.nodeName={settings.name}", on_change=pods.changed)
        node = node_object(settings.name, host.allocatable, port, settings.taints)
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("heartbeat", stay_registered(kube, node, host.allocatable)),
                ("pods", informer.run()),
                ("files", _remove_strange_files(informer, pods)),
                ("memory", host.memory.run()),
                ("stop", stop.wait()),
            )
        ]
        try:
            await _first_end(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await pods.stop()
            with contextlib.suppress(KubeError):
                await say_not_ready(kube, settings.name)
            await runner.cleanup()


def _allow_many_files() -> None:
    """Each running container takes two descriptors; the usual soft limit of 1024 is too low for a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keeper_died(stop: asyncio.Event) -> None:
    log.error("the keeper was killed; without it a crash of the node could leave processes behind: stopping")
    stop.set()


async def _first_end(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Wait for the stop signal; a task that ends by a fault ends the node, loudly."""
    pending = set(tasks)
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            if task.get_name() == "stop":
                return


async def _remove_strange_files(informer: Informer[Pod], pods: Pods) -> None:
    await informer.synced.wait()
    pods.remove_strange_files()


def _host(settings: Settings, kube: Kube, http: aiohttp.ClientSession, reaper: Reaper, pods: Pods) -> Host:
    return Host(
        name=settings.name,
        node_id=settings.node_id,
        directory=settings.state.resolve(),
        kube=kube,
        api=_api_server(settings.kubeconfig),
        allocatable={**capacity(), **settings.capacity},
        owner=Owner(os.getuid(), os.getgid(), frozenset(os.getgroups()) | {os.getgid()}),
        reaper=reaper,
        memory=MemoryWatch(),
        addresses=Addresses(),
        events=Events(kube, settings.name),
        services=Services(kube),
        http=http,
        leaving=pods.leaving,
        requested=pods.requested,
    )


def _api_server(kubeconfig: Path) -> ApiServer:
    config: Json = yaml.safe_load(kubeconfig.read_text())
    current = next(context for context in config["contexts"] if context["name"] == config["current-context"])
    name = current["context"]["cluster"]
    cluster = next(cluster["cluster"] for cluster in config["clusters"] if cluster["name"] == name)
    authority = cluster.get("certificate-authority-data")
    if authority is None:
        file = kubeconfig.parent / cluster["certificate-authority"]
        authority = base64.b64encode(file.read_bytes()).decode()
    return ApiServer(cluster["server"], authority)
