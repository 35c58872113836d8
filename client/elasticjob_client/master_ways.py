"""Connects to a job's master: at its address if there is a route to it, else through its pod."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.access import uses_service_account

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnreachable
from elasticjob_client.forwarding import Forwarding, forward
from elasticjob_client.master import MasterEndpoint, find_master
from elasticjob_client.related import pods_of

T = TypeVar("T")
_Way = Callable[[Cluster, ElasticJob, MasterEndpoint], AbstractAsyncContextManager[MasterEndpoint]]


class TokenRefused(ClientError):
    """The master does not accept the token.

    The token is another job's, or the master's version does not know the token that only reads.
    """


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
        job: as it is now.
        connect: contacts the master. It raises `MasterUnreachable` if the master does not answer,
            and `TokenRefused` if the master wants the job's own token. Contexts in its stack
            stay open if it returns.
        stack: closes the way and what `connect` has entered.
        address: `host:port` to use in place of the address in the job's status.
        port: of the master; None: the port of the address.

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
        for way in _ways_to(endpoint, given=address is not None):
            try:
                async with AsyncExitStack() as attempt:
                    reached = await attempt.enter_async_context(way(cluster, job, endpoint))
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


def _ways_to(endpoint: MasterEndpoint, *, given: bool) -> tuple[_Way, ...]:
    """Return the ways to try, the likelier one first; a given address is the only way.

    Pod addresses are reachable from other pods, and on the embedded cluster.
    """
    if given:
        return (_directly,)
    if endpoint.address.startswith("127.") or uses_service_account(os.environ):
        return (_directly, _forwarded)
    return (_forwarded, _directly)


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
    async with forward(cluster, name, port) as forwarding:
        yield forwarding


def _runs(pod: Json) -> bool:
    is_running: bool = pod["status"].get("phase") == "Running"
    return is_running and not pod["metadata"].get("deletionTimestamp")


@asynccontextmanager
async def _directly(
    _: Cluster, __: ElasticJob, endpoint: MasterEndpoint
) -> AsyncIterator[MasterEndpoint]:
    yield endpoint


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
