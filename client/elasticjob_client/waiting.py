"""Waits until an object is as wanted, through broken connections and restarts of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec
from elasticjob_api.meta import Json
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import Resource

from elasticjob_client.cluster import Cluster, explained
from elasticjob_client.errors import NoSuchObject, NotInTime

T = TypeVar("T")
_RETRY_SECONDS = 1.0


async def wait_until(
    cluster: Cluster,
    resource: Resource,
    name: str,
    done: Callable[[Json], T | None],
    *,
    seconds: float | None = None,
) -> T:
    """Return what `done` says of an object, as soon as it is not None.

    It is asked now and after each change.

    Raises:
        NoSuchObject: there is no such object, or no longer.
        NotInTime: so many seconds are over; None: there is no bound.
        ClientError: the API server refuses to show it, or an error of `done`.
    """
    try:
        async with asyncio.timeout(seconds):
            with explained(cluster, resource, name):
                while True:
                    try:
                        return await _first(cluster, resource, name, done)
                    except TryLater:
                        await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError as error:
        what = f"{resource.kind} {cluster.namespace}/{name}"
        raise NotInTime(f"{what}: what was waited for has not come within {seconds:g} s") from error


async def _first(
    cluster: Cluster, resource: Resource, name: str, done: Callable[[Json], T | None]
) -> T:
    """Do so until the connection breaks; a watch that has only come to its end is opened again."""
    while True:
        found = await cluster.kube.get(resource, cluster.namespace, name)
        if (result := done(found)) is not None:
            return result
        version = found["metadata"]["resourceVersion"]
        only = f"metadata.name={name}"
        watch = cluster.kube.watch(
            resource, cluster.namespace, resource_version=version, field_selector=only
        )
        async with aclosing(watch) as events:
            async for event in events:
                if event.type == "DELETED":
                    raise NoSuchObject(f"{resource.kind} {cluster.namespace}/{name} was deleted")
                if (
                    event.type != "BOOKMARK"
                    and (result := done(msgspec.json.decode(event.object))) is not None
                ):
                    return result
