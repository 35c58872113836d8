"""The ways to a job's master.

Its address, where there is a route to it, else a forwarded port of its pod.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from elasticjob_api import names
from elasticjob_kube.access import uses_service_account

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnreachable
from elasticjob_client.forwarding import Forwarding, forward
from elasticjob_client.jobs import get_job
from elasticjob_client.master import MasterEndpoint
from elasticjob_client.related import pods_of

Way = Callable[[Cluster, str, MasterEndpoint], AbstractAsyncContextManager[MasterEndpoint]]


def ways_to(endpoint: MasterEndpoint, *, given: bool) -> tuple[Way, ...]:
    """Return the ways to try, the likelier one first.

    `given`: the user has given the address, so it is the only one.
    Addresses of pods can be reached from other pods, and on the embedded cluster.
    """
    if given:
        return (_directly,)
    near = endpoint.address.startswith("127.") or uses_service_account(os.environ)
    return (_directly, _forwarded) if near else (_forwarded, _directly)


@asynccontextmanager
async def forward_to_master(cluster: Cluster, job: str, port: int) -> AsyncIterator[Forwarding]:
    """Forward a port of the pod of a job's master.

    Raises:
        MasterUnreachable: it has no pod that runs, or the user may not list pods.
        ClientError: the job cannot be read, or pods cannot be forwarded to.
    """
    found = await get_job(cluster, job)
    try:
        pods = await pods_of(cluster, found)
    except ClientError as error:
        raise MasterUnreachable(
            f"the pod of the master of {cluster.namespace}/{job} is not known: {error}"
        ) from error
    for pod in pods:
        metadata = pod["metadata"]
        is_master = metadata["labels"].get(names.LABEL_ROLE) == names.ROLE_MASTER
        if (
            is_master
            and pod["status"].get("phase") == "Running"
            and not metadata.get("deletionTimestamp")
        ):
            async with forward(cluster, metadata["name"], port) as forwarding:
                yield forwarding
            return
    raise MasterUnreachable(f"the master of {cluster.namespace}/{job} has no pod that runs")


@asynccontextmanager
async def _directly(_: Cluster, __: str, endpoint: MasterEndpoint) -> AsyncIterator[MasterEndpoint]:
    yield endpoint


@asynccontextmanager
async def _forwarded(
    cluster: Cluster, job: str, endpoint: MasterEndpoint
) -> AsyncIterator[MasterEndpoint]:
    port = int(endpoint.address.rpartition(":")[2])
    async with forward_to_master(cluster, job, port) as forwarding:
        try:
            yield replace(endpoint, address=forwarding.address)
        except MasterUnreachable as error:
            if not forwarding.problem:
                raise
            problem = f"the master of {cluster.namespace}/{job} can't be reached through its pod: {forwarding.problem}"
            raise MasterUnreachable(problem) from error
