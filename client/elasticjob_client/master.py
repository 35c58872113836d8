"""A job's master as a user reaches it.

Address from the job's status, token and authority from a ConfigMap. The token that reads is enough,
and whoever may see the job may read it. A job of an earlier operator has it in a Secret, and a
master of an earlier version wants the job's own.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc.aio
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import CONFIG_MAPS, SECRETS

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, MasterUnavailable, NoSuchObject
from elasticjob_client.jobs import ENDED, get_job


@dataclass(frozen=True)
class MasterEndpoint:
    """How to reach one job's master.

    Attributes:
        address: `host:port`.
        token: the bearer token, of the job or the one that reads.
        authority: the certificate authority of the job, in PEM.
    """

    address: str
    token: str
    authority: bytes

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata that every call must carry."""
        return ((names.TOKEN_METADATA, f"Bearer {self.token}"),)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Open a TLS channel; the certificate is checked by the name that every master has."""
        options = (
            ("grpc.ssl_target_name_override", names.TLS_SERVER_NAME),
            ("grpc.enable_http_proxy", 0),
            # Limits one attempt to connect: nothing answers at the address of a master's pod that
            # was deleted.
            ("grpc.min_reconnect_backoff_ms", 2000),
        )
        credentials = grpc.ssl_channel_credentials(self.authority)
        async with grpc.aio.secure_channel(self.address, credentials, options=options) as channel:
            yield channel


async def find_master(
    cluster: Cluster, job: str, *, address: str | None = None, own_token: bool = False
) -> MasterEndpoint:
    """Find out how to reach the master of a job.

    Args:
        cluster: its user may get the job and its ConfigMap for viewers.
        job: its name.
        address: `host:port` to use in place of the one in the job's status, for instance a forwarded port.
        own_token: use the job's own token, with which it can also be joined.

    Raises:
        MasterUnavailable: the job has no master now.
        NoSuchObject: there is no such job, or its token is not there yet.
        ClientError: the user may not read one of them, or the API server does not answer.
    """
    found = await get_job(cluster, job)
    where = f"job {cluster.namespace}/{job}"
    if found.status.phase in ENDED:
        raise MasterUnavailable(f"{where} is {found.status.phase}; a finished job has no master")
    address = address or found.status.master_address
    if not address:
        raise MasterUnavailable(
            f"{where} has no master yet (phase {found.status.phase or 'Pending'})"
        )
    token, authority = await _credentials(cluster, job, own_token=own_token)
    return MasterEndpoint(address=address, token=token, authority=authority.encode())


async def _credentials(cluster: Cluster, job: str, *, own_token: bool) -> tuple[str, str]:
    """Return the token that reads and the authority; where there is none, the job's own token."""
    if own_token:
        return await _of_secret(cluster, names.master_service(job))
    name = names.query_config_map(job)
    try:
        found = await viewers_config_map(cluster, job)
        if names.SECRET_TOKEN in (data := found.get("data") or {}):
            return data[names.SECRET_TOKEN], data.get(names.SECRET_CA, "")
        raise NoSuchObject(f"ConfigMap {cluster.namespace}/{name} has no token")
    except ClientError as problem:
        for secret in (name, names.master_service(job)):  # of an earlier operator
            with suppress(ClientError):
                return await _of_secret(cluster, secret)
        need = (
            f"asking a job's master needs `get` on ConfigMap {name}, which has the token that reads"
        )
        raise type(problem)(f"{problem}; {need}") from problem


async def viewers_config_map(cluster: Cluster, job: str) -> Json:
    """Return the ConfigMap of a job that its viewers may read.

    The token that reads, and what its master has stored.

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
    token, authority = (
        base64.b64decode(found["data"][key]).decode()
        for key in (names.SECRET_TOKEN, names.SECRET_CA)
    )
    return token, authority
