"""Connects to a job's master as a user: address from the job's status, token and authority from a Secret.

The token that reads is enough. Where there is none, or an earlier master does not know it, the job's own token is used.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.jobs import ENDED
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import ELASTIC_JOBS, SECRETS
from elasticjob_kube.session import Json, Kube


class MasterUnavailable(Exception):
    """The job has no master now; the message says why."""


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
    kube: Kube, namespace: str, job: str, *, address: str | None = None, own_token: bool = False
) -> MasterEndpoint:
    """Find out how to reach the master of a job.

    Args:
        kube: a session whose user may get the job and the Secret.
        namespace: of the job.
        job: its name.
        address: `host:port` to use in place of the one in the job's status, for instance a forwarded port.
        own_token: use the job's own token, with which it can also be joined.

    Raises:
        MasterUnavailable: the job has no master now.
        NotFound: there is no such job, or its Secret is not there yet.
        Refused: the user may not read one of them.
    """
    elastic_job = await kube.get(ELASTIC_JOBS, namespace, job, as_type=ElasticJob)
    if elastic_job.status.phase in ENDED:
        raise MasterUnavailable(f"job {namespace}/{job} is {elastic_job.status.phase}; a finished job has no master")
    address = address or elastic_job.status.master_address
    if not address:
        raise MasterUnavailable(
            f"job {namespace}/{job} has no master yet (phase {elastic_job.status.phase or 'Pending'})"
        )
    secret = await _secret(kube, namespace, job, own_token=own_token)
    token, authority = (base64.b64decode(secret["data"][key]) for key in (names.SECRET_TOKEN, names.SECRET_CA))
    return MasterEndpoint(address=address, token=token.decode(), authority=authority)


async def _secret(kube: Kube, namespace: str, job: str, *, own_token: bool) -> Json:
    """Return the Secret that reads; where there is none, or the user may not read it, the job's own."""
    own = names.master_service(job)
    if own_token:
        return await kube.get(SECRETS, namespace, own)
    try:
        return await kube.get(SECRETS, namespace, names.query_secret(job))
    except (NotFound, Refused) as problem:
        with suppress(NotFound, Refused):
            return await kube.get(SECRETS, namespace, own)
        raise problem
