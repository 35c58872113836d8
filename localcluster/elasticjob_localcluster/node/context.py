"""The context that the workers of all pods share: the node's clients, resources and identity."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from elasticjob_api.meta import Json
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import CONFIG_MAPS, SECRETS, SERVICES
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.addresses import AddressPool, NetworkIdentity
from elasticjob_localcluster.node.admission import ProcessUser
from elasticjob_localcluster.node.container_reaper import ContainerReaper
from elasticjob_localcluster.node.environment import (
    INHERITED,
    ConfigError,
    EnvironmentInputs,
    Source,
    environment,
    referenced_sources,
    service_variables,
)
from elasticjob_localcluster.node.events import EventRecorder
from elasticjob_localcluster.node.memory_limits import MemoryWatcher
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.service_account import BINDING_PAUSES_SECONDS, ApiServer

_DELETED_SECONDS = 600.0


class ServiceLister:
    """Lists the Services of a namespace for each container's start.

    A Service that was created just before a pod must be in the pod's environment, and watches of
    two kinds have no common order. Callers of `list_services` share a request that is not sent yet.

    A deleted Service stays in the lists for ten minutes: it may be restored in a moment, and a
    container that starts just then has no name server to ask later.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._running: dict[str, asyncio.Task[list[Json]]] = {}
        self._next: dict[str, asyncio.Task[list[Json]]] = {}
        self._seen: dict[tuple[str, str], tuple[float, Json]] = {}

    async def list_services(self, namespace: str) -> list[Json]:
        """Return the namespace's Services, and those that it had up to ten minutes ago."""
        task = self._next.get(namespace)
        if task is None:
            task = asyncio.create_task(self._read(namespace, self._running.get(namespace)))
            self._next[namespace] = task
        return await asyncio.shield(task)

    async def _read(self, namespace: str, before: asyncio.Task[list[Json]] | None) -> list[Json]:
        if before is not None:
            await asyncio.wait([before])
        task = self._next.pop(namespace)
        self._running[namespace] = task
        try:
            items: list[Json] = (await self._kube.list(SERVICES, namespace)).get("items") or []
            return self._with_deleted(namespace, items)
        finally:
            if self._running.get(namespace) is task:
                del self._running[namespace]

    def _with_deleted(self, namespace: str, items: list[Json]) -> list[Json]:
        now = asyncio.get_running_loop().time()
        self._seen |= {(namespace, each["metadata"]["name"]): (now, each) for each in items}
        old = [key for key, (at, _) in self._seen.items() if at < now - _DELETED_SECONDS]
        for key in old:
            del self._seen[key]
        return [each for (where, _), (_, each) in self._seen.items() if where == namespace]


@dataclass(frozen=True)
class NodeContext:
    """The parts of a node that a pod's worker uses."""

    name: str
    node_id: str
    directory: Path
    kube: Kube
    api: ApiServer
    """The API server's address for containers."""
    inherited: Sequence[str]
    """Further variables of the node's environment that containers inherit."""
    allocatable: Mapping[str, str]
    user: ProcessUser
    """The user that all processes run as."""
    reaper: ContainerReaper
    memory: MemoryWatcher
    addresses: AddressPool
    events: EventRecorder
    services: ServiceLister
    http: aiohttp.ClientSession
    finished_or_terminating: Callable[[], set[str]]
    """Returns the UIDs of the ended or ending pods."""
    allocated_to_others: Callable[[str], Mapping[str, Decimal]]
    """Returns the CPU and memory allocated to all pods but the one with this UID."""

    async def environment(
        self, pod: Pod, container: Json, address: str, base: Mapping[str, str]
    ) -> dict[str, str]:
        """Return a container's environment; reads its Secrets, ConfigMaps and Services.

        Raises ConfigError if an object that it names is missing, or KubeError.
        """
        namespace = pod.metadata.namespace
        sources = {
            source: await self.read(namespace, source) for source in referenced_sources(container)
        }
        server = urlsplit(self.api.url)
        services = {
            "KUBERNETES_SERVICE_HOST": server.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
        }
        if pod.spec.get("enableServiceLinks", True):
            found = await self.services.list_services(namespace)
            services = (
                service_variables(
                    found,
                    lambda name: self.addresses.address_of(NetworkIdentity(namespace, "", name)),
                )
                | services
            )
        return environment(
            container,
            EnvironmentInputs(
                pod=pod,
                pod_ip=address,
                node_name=self.name,
                allocatable=self.allocatable,
                sources=sources,
                services=services,
                base={**base_variables(self.inherited), **base},
            ),
        )

    async def read(self, namespace: str, source: Source) -> Json | None:
        """Return a Secret or ConfigMap; None if it does not exist.

        Raises ConfigError if the node may not read it, or KubeError.
        """
        kind, name = source
        resource = SECRETS if kind == "Secret" else CONFIG_MAPS
        try:
            return await retry(
                lambda: self.kube.get(resource, namespace, name),
                Refused,
                pauses=BINDING_PAUSES_SECONDS,
            )
        except NotFound:
            return None
        except Refused as error:
            raise ConfigError(f'{kind.lower()} "{name}" cannot be read: {error}') from error


def base_variables(inherited: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that containers inherit; this installation is first on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path} | {
        name: os.environ[name] for name in (*INHERITED, *inherited) if name in os.environ
    }
