"""Finds and reaches a job's master: at its address if there is a route to it, else through its pod.

The address is in the job's status. A ConfigMap has the authority and the token that only reads; all
viewers of the job may read it. Earlier operators stored that token in a Secret, and earlier masters
accept only the job's own token.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_kube.access import uses_service_account
from elasticjob_kube.resources import CONFIG_MAPS, SECRETS

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnavailable, MasterUnreachable, NoSuchObject
from elasticjob_client.jobs import get_job
from elasticjob_client.related import pods_of

if TYPE_CHECKING:
    from elasticjob_client.forwarding import Forwarding

T = TypeVar("T")
CALL_SECONDS = 5.0
"""How long a query waits for its answer."""
_START_SECONDS = 10.0
"""How long a query waits for the master of a job that starts, which takes a few seconds."""
_LOOK_SECONDS = 0.25
_STARTING = ("", "Pending", "Starting")
"""The phases of a job that starts, or that starts again after a suspension."""


class TokenRefused(ClientError):
    """The master does not accept the token.

    The token is another job's, or the master's version does not know the token that only reads.
    """


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
        job: the present job.
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
    return await cluster.get(CONFIG_MAPS, names.query_config_map(job))


async def _of_secret(cluster: Cluster, name: str) -> tuple[str, str]:
    data = (await cluster.get(SECRETS, name))["data"]
    token = base64.b64decode(data[names.SECRET_TOKEN]).decode()
    return token, base64.b64decode(data[names.SECRET_CA]).decode()


async def reach_master(
    cluster: Cluster,
    job: ElasticJob,
    connect: Callable[[MasterEndpoint, AsyncExitStack], Awaitable[T]],
    stack: AsyncExitStack,
    *,
    address: str | None = None,
    port: int | None = None,
) -> T:
    """Return what `connect` returns on the first way that reaches the job's master.

    Args:
        cluster: its user may get the job and the token that reads. From outside the cluster the
            user may also list pods, and get and create pods/portforward.
        job: the present job.
        connect: contacts the master. It raises `MasterUnreachable` if the master does not answer,
            and `TokenRefused` if the master wants the job's own token. Contexts in its stack
            stay open if it returns.
        stack: closes the way and what `connect` has entered.
        address: `host:port` to use in place of the address in the job's status.
        port: the master's port; None for the port of the address.

    Raises:
        MasterUnavailable: the job has no master now.
        MasterUnreachable: the master answers on no way.
        ClientError: the job's token cannot be read, or the master refuses the token.
    """

    async def on_first_way(*, own_token: bool) -> T:
        endpoint = await find_master(cluster, job, address=address, own_token=own_token)
        if port is not None:
            host = endpoint.address.rpartition(":")[0]
            endpoint = replace(endpoint, address=f"{host}:{port}")
        problems = []
        for way in _ways_to(cluster, job, endpoint, given=address is not None):
            try:
                async with AsyncExitStack() as attempt:
                    reached = await attempt.enter_async_context(way)
                    result = await connect(reached, attempt)
                    stack.push_async_exit(attempt.pop_all())
                    return result
            except MasterUnreachable as error:
                problems.append(str(error))
        raise MasterUnreachable("; ".join(problems))

    try:
        return await on_first_way(own_token=False)
    except TokenRefused:
        return await on_first_way(own_token=True)


def _ways_to(
    cluster: Cluster, job: ElasticJob, endpoint: MasterEndpoint, *, given: bool
) -> list[AbstractAsyncContextManager[MasterEndpoint]]:
    """Return the ways to try, the likelier one first; a given address is the only way.

    Pod addresses are reachable from other pods, and on the embedded cluster.
    """
    direct = nullcontext(endpoint)
    if given:
        return [direct]
    forwarded = _forwarded(cluster, job, endpoint)
    if endpoint.address.startswith("127.") or uses_service_account(os.environ):
        return [direct, forwarded]
    return [forwarded, direct]


@asynccontextmanager
async def forward_to_master(
    cluster: Cluster, job: ElasticJob, port: int
) -> AsyncIterator[Forwarding]:
    """Forward a port to the pod of a job's master.

    Raises:
        MasterUnreachable: the master has no running pod, or the user may not list pods.
        ClientError: the user may not forward ports to pods.
    """
    where = f"the master of {cluster.namespace}/{job.metadata.name}"
    try:
        pods = await pods_of(cluster, job)
    except ClientError as error:
        raise MasterUnreachable(f"the pod of {where} is not known: {error}") from error
    name = names.master_pod(job.metadata.name, job.status.master.incarnations - 1)
    if not any(pod["metadata"]["name"] == name and _runs(pod) for pod in pods):
        raise MasterUnreachable(f"{where} has no pod that runs")
    from elasticjob_client.forwarding import forward  # slow: it imports aiohttp

    async with forward(cluster, name, port) as forwarding:
        yield forwarding


def _runs(pod: Json) -> bool:
    is_running: bool = pod["status"].get("phase") == "Running"
    return is_running and not pod["metadata"].get("deletionTimestamp")


@asynccontextmanager
async def _forwarded(
    cluster: Cluster, job: ElasticJob, endpoint: MasterEndpoint
) -> AsyncIterator[MasterEndpoint]:
    port = int(endpoint.address.rpartition(":")[2])
    async with forward_to_master(cluster, job, port) as forwarding:
        try:
            yield replace(endpoint, address=forwarding.address)
        except MasterUnreachable as error:
            if not forwarding.problem:
                raise
            where = f"the master of {cluster.namespace}/{job.metadata.name}"
            problem = f"{where} can't be reached through its pod: {forwarding.problem}"
            raise MasterUnreachable(problem) from error
