"""A job's master as a user reaches it: address from the job's status, token and authority from a Secret.

The token that reads is enough. Where there is none, or an earlier master does not know it, the job's own token is used.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc.aio
from elasticjob_api import names
from elasticjob_kube.resources import SECRETS
from elasticjob_kube.session import Json

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, MasterUnavailable
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
            # Limits one attempt to connect: nothing answers at the address of a master's pod that was deleted.
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
        cluster: its user may get the job and the Secret.
        job: its name.
        address: `host:port` to use in place of the one in the job's status, for instance a forwarded port.
        own_token: use the job's own token, with which it can also be joined.

    Raises:
        MasterUnavailable: the job has no master now.
        NoSuchObject: there is no such job, or its Secret is not there yet.
        ClientError: the user may not read one of them, or the API server does not answer.
    """
    found = await get_job(cluster, job)
    where = f"job {cluster.namespace}/{job}"
    if found.status.phase in ENDED:
        raise MasterUnavailable(f"{where} is {found.status.phase}; a finished job has no master")
    address = address or found.status.master_address
    if not address:
        raise MasterUnavailable(f"{where} has no master yet (phase {found.status.phase or 'Pending'})")
    secret = await _secret(cluster, job, own_token=own_token)
    token, authority = (base64.b64decode(secret["data"][key]) for key in (names.SECRET_TOKEN, names.SECRET_CA))
    return MasterEndpoint(address=address, token=token.decode(), authority=authority)


async def _secret(cluster: Cluster, job: str, *, own_token: bool) -> Json:
    """Return the Secret that reads; where there is none, or the user may not read it, the job's own."""

    async def read(name: str) -> Json:
        return await ask(cluster, SECRETS, name, lambda: cluster.kube.get(SECRETS, cluster.namespace, name))

    if own_token:
        return await read(names.master_service(job))
    try:
        return await read(names.query_secret(job))
    except ClientError as problem:
        with suppress(ClientError):
            return await read(names.master_service(job))
        need = f"asking a job's master needs `get` on Secret {names.query_secret(job)}, which has the token that reads"
        raise type(problem)(f"{problem}; {need}") from problem
