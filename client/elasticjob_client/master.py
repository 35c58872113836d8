"""Finds the address, token and authority of a job's master.

The address is in the job's status. A ConfigMap has the authority and the token that only reads; all
viewers of the job may read it. Earlier operators stored that token in a Secret, and earlier masters
accept only the job's own token.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_kube.resources import CONFIG_MAPS, SECRETS

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject
from elasticjob_client.jobs import get_job

CALL_SECONDS = 5.0
"""How long a query waits for its answer."""
_START_SECONDS = 10.0
"""How long a query waits for the master of a job that starts, which takes a few seconds."""
_LOOK_SECONDS = 0.25
_STARTING = ("", "Pending", "Starting")
"""The phases of a job that starts, or that starts again after a suspension."""


@dataclass(frozen=True)
class MasterEndpoint:
    """The address and credentials of a job's master.

    Attributes:
        address: `host:port`.
        token: the bearer token: the job's own, or the one that only reads.
        authority: the certificate authority of the job, in PEM.
    """

    address: str
    token: str
    authority: bytes

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata that each call needs."""
        return ((names.TOKEN_METADATA, f"Bearer {self.token}"),)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Open a TLS channel; all masters have the same name in their certificates."""
        options = (
            ("grpc.ssl_target_name_override", names.TLS_SERVER_NAME),
            ("grpc.enable_http_proxy", 0),
            # Bounds an attempt to connect to a deleted pod, from which no answer comes. Calls fail
            # with the attempt, so it lasts as long as they may.
            ("grpc.min_reconnect_backoff_ms", int(CALL_SECONDS * 1000)),
        )
        credentials = grpc.ssl_channel_credentials(self.authority)
        async with grpc.aio.secure_channel(self.address, credentials, options=options) as channel:
            yield channel


async def wait_for_starting_master(cluster: Cluster, job: str) -> ElasticJob:
    """Wait until the master of a job that starts is ready, for some seconds at most.

    Return the job as it is then. From it the caller gets the master's answers, or an error that
    says what is wrong with the master.

    Raises:
        NoSuchObject: the job does not exist.
        ClientError: the user may not read it, or the API server does not answer.
    """
    found = await get_job(cluster, job)
    for _ in range(int(_START_SECONDS / _LOOK_SECONDS)):
        if not _has_starting_master(found):
            break
        await asyncio.sleep(_LOOK_SECONDS)
        found = await get_job(cluster, job)
    return found


def _has_starting_master(job: ElasticJob) -> bool:
    status = job.status
    if job.spec.run_policy.suspend or status.phase not in _STARTING:
        return False
    return not any(
        each.type == "MasterReady" and each.status == "True" for each in status.conditions
    )


async def find_master(
    cluster: Cluster, job: ElasticJob, *, address: str | None = None, own_token: bool = False
) -> MasterEndpoint:
    """Return the address and credentials of a job's master.

    Args:
        cluster: its user may get the job and its ConfigMap for viewers.
        job: as it is now.
        address: `host:port` to use in place of the address in the job's status.
        own_token: use the job's own token, which its members use.

    Raises:
        MasterUnavailable: the job has no master now.
        NoSuchObject: the token does not exist.
        ClientError: the user may not read it, or the API server does not answer.
    """
    status = job.status
    where = f"job {cluster.namespace}/{job.metadata.name}"
    if status.phase in ENDED:
        reason = "a finished job has no master"
        if not status.master.incarnations:
            reason = f"it never had a master: {status.message}"
        raise MasterUnavailable(f"{where} is {status.phase}; {reason}")
    address = address or status.master_address
    if not address:
        raise MasterUnavailable(f"{where} has no master yet (phase {status.phase or 'Pending'})")
    token, authority = await _credentials(cluster, job.metadata.name, own_token=own_token)
    return MasterEndpoint(address=address, token=token, authority=authority.encode())


async def _credentials(cluster: Cluster, job: str, *, own_token: bool) -> tuple[str, str]:
    """Return the token that only reads and the authority; else the job's own token."""
    if own_token:
        return await _of_secret(cluster, names.master_service(job))
    name = names.query_config_map(job)
    try:
        found = await viewers_config_map(cluster, job)
        if names.SECRET_TOKEN in (data := found.get("data") or {}):
            return data[names.SECRET_TOKEN], data.get(names.SECRET_CA, "")
        raise NoSuchObject(f"ConfigMap {cluster.namespace}/{name} has no token")
    except ClientError as problem:
        for secret in (name, names.master_service(job)):  # of earlier operators
            with suppress(ClientError):
                return await _of_secret(cluster, secret)
        need = f"to query a job's master, you need `get` on ConfigMap {name}, which has its token"
        raise type(problem)(f"{problem}; {need}") from problem


async def viewers_config_map(cluster: Cluster, job: str) -> Json:
    """Return the ConfigMap with the token that only reads and the stored answers of the master.

    Raises `NoSuchObject`, `ClientError`.
    """
    name = names.query_config_map(job)
    return await ask(
        cluster, CONFIG_MAPS, name, lambda: cluster.kube.get(CONFIG_MAPS, cluster.namespace, name)
    )


async def _of_secret(cluster: Cluster, name: str) -> tuple[str, str]:
    found = await ask(
        cluster, SECRETS, name, lambda: cluster.kube.get(SECRETS, cluster.namespace, name)
    )
    data = found["data"]
    token = base64.b64decode(data[names.SECRET_TOKEN]).decode()
    return token, base64.b64decode(data[names.SECRET_CA]).decode()
