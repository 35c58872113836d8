"""The context that the workers of all pods share: the node's clients, resources and identity."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import CONFIG_MAPS, SECRETS
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube

from elasticjob_localcluster.node.addresses import AddressPool, NetworkIdentity
from elasticjob_localcluster.node.admission import ProcessUser
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
from elasticjob_localcluster.node.pod_model import Json, Pod
from elasticjob_localcluster.node.process_tree import ContainerReaper
from elasticjob_localcluster.node.service_account import BINDING_PAUSES_SECONDS, ApiServer
from elasticjob_localcluster.node.services import ServiceLister


@dataclass(frozen=True)
class NodeContext:
    """What a pod's worker needs of its node."""

    name: str
    node_id: str
    directory: Path
    kube: Kube
    api: ApiServer
    """As containers reach it."""
    inherited: Sequence[str]
    """Variables of the node's own environment that containers get, besides the usual ones."""
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
    """Returns the UIDs of the pods that have ended or are about to."""
    allocated_to_others: Callable[[str], Mapping[str, Decimal]]
    """Returns the CPU and memory that all pods but the one with this UID have been given."""

    async def environment(
        self, pod: Pod, container: Json, address: str, base: Mapping[str, str]
    ) -> dict[str, str]:
        """Return a container's environment.

        Reads the Secrets, ConfigMaps and Services that it needs.

        Raises:
            ConfigError: when something it names is missing.
            KubeError: when the API server could not be asked.
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
        """Return a Secret or ConfigMap, or None when it is not there.

        Raises:
            ConfigError: when it must not be read.
            KubeError: when the API server could not be asked.
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
    """Return what containers get of the node's own environment.

    The directory of this Python comes first on the PATH, so that the commands of this installation
    are found.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path} | {
        name: os.environ[name] for name in (*INHERITED, *inherited) if name in os.environ
    }
