"""A user's access to a cluster: a session with its API server, and the namespace that is meant."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elasticjob_kube.access import pod_namespace, uses_service_account
from elasticjob_kube.errors import Cause, KubeError, NoAccess, NotFound, TryLater
from elasticjob_kube.resources import Resource
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube, connect

from elasticjob_client.errors import ClientError, Invalid, NoSuchObject

T = TypeVar("T")
_CONNECTIONS = 8
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the requests for one answer; an API server that is restarted is back by then,
mostly.
"""
_TURNED_AWAY = 429
_AN_OBJECT = '"object": '
_NO_FIELD = ("", "<nil>")
"""Of a cause that is about no field: that further rules were not checked."""


@dataclass(frozen=True)
class Access:
    """How a cluster is reached.

    None: what kubectl would use, which in a pod is its service account.

    Attributes:
        kubeconfig: path of the file.
        context: of its contexts.
        namespace: of the jobs.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Cluster:
    """An open session, and the namespace of the jobs that are meant."""

    kube: Kube
    namespace: str


@asynccontextmanager
async def open_cluster(access: Access) -> AsyncIterator[Cluster]:
    """Open a session. Raises `ClientError` if there is no usable kubeconfig."""
    try:
        namespace = access.namespace or _current_namespace(access)
        async with connect(
            user_agent="elasticjob",
            kubeconfig=access.kubeconfig,
            context=access.context,
            connections=_CONNECTIONS,
        ) as kube:
            yield Cluster(kube, namespace)
    except NoAccess as error:
        what = "service account" if _in_a_pod(access) else "kubeconfig"
        raise ClientError(
            f"no usable {what}: {error}; set KUBECONFIG or give --kubeconfig"
        ) from error


@contextmanager
def explained(cluster: Cluster, resource: Resource, name: str) -> Iterator[None]:
    """Turn what the API server answers about an object into an error that a user understands.

    Raises:
        NoSuchObject: it is not there, or its kind is not.
        Invalid: fields of it are wrong.
        ClientError: any other answer but success.
    """
    what = (
        f"{resource.kind} {cluster.namespace}/{name}"
        if name
        else f"{resource.plural} of {cluster.namespace}"
    )
    try:
        yield
    except NotFound as error:
        raise NoSuchObject(f"{what}: {_missing(error, resource, cluster)}") from error
    except KubeError as error:
        if problems := [_problem(cause) for cause in error.causes if cause.field not in _NO_FIELD]:
            raise Invalid(what, problems) from error
        raise ClientError(f"{what}: {error.message}") from error


def _problem(cause: Cause) -> str:
    """Return field and message, without the API server's words that say nothing or say the field once more."""
    message = cause.message.removeprefix("Invalid value: ").removeprefix(_AN_OBJECT)
    return f"{cause.field}: {message.replace(f'{cause.field} in body ', '').removeprefix(f'{cause.field} ')}"


async def ask(
    cluster: Cluster,
    resource: Resource,
    name: str,
    call: Callable[[], Awaitable[T]],
    *,
    repeatable: bool = True,
) -> T:
    """Return the answer to a request about an object, which is sent again while the API server is busy or away.

    Args:
        cluster: the session.
        resource: the object's kind.
        name: its name; empty for a request about all of the namespace.
        call: sends the request.
        repeatable: whether a second request does no more than one; else it is only sent again if it was turned away.

    Raises:
        NoSuchObject: it is not there, or its kind is not.
        ClientError: any other answer but success.
    """
    with explained(cluster, resource, name):
        return await retry(
            call,
            TryLater,
            pauses=_PAUSES,
            unless=lambda error: not repeatable and error.status != _TURNED_AWAY,
        )


def _missing(error: NotFound, resource: Resource, cluster: Cluster) -> str:
    if not error.reason:  # the server knows no such path
        return (
            f"this cluster has no {resource.plural}; is the operator installed? (docs/install.md)"
        )
    if error.message.startswith("namespaces "):
        return f"{error.message}; `kubectl get namespaces` lists what there is"
    return f"{error.message}; `kubectl get {resource.plural} -n {cluster.namespace}` lists what there is"


def _in_a_pod(access: Access) -> bool:
    """Return whether the access is that of the pod in which this runs."""
    return uses_service_account(os.environ, access.kubeconfig, access.context)


def _current_namespace(access: Access) -> str:
    if _in_a_pod(access):
        return pod_namespace()
    from elasticjob_kube import (
        kubeconfig,
    )  # imports the official client, which takes as long as all the rest

    return kubeconfig.namespace(access.kubeconfig, access.context)
