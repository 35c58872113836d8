"""Opens sessions with an API server, and turns its errors into messages for users."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from elasticjob_api.meta import Json
from elasticjob_kube.access import pod_namespace, uses_service_account
from elasticjob_kube.errors import (
    AlreadyExists,
    Cause,
    Forbidden,
    KubeError,
    NoAccess,
    NotFound,
    TryLater,
)
from elasticjob_kube.resources import Resource
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube, connect

from elasticjob_client.access import Access
from elasticjob_client.errors import (
    ClientError,
    Invalid,
    NameTaken,
    NoCluster,
    NoSuchObject,
    NotAllowed,
)

T = TypeVar("T")
_CONNECTIONS = 8
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between repeated requests; most restarts of an API server take less time together."""
_TOO_MANY_REQUESTS = 429
_AN_OBJECT = '"object": '
_NO_FIELD = ("", "<nil>")
"""Fields of a cause that is not about a field, but about rules that were not checked."""


@dataclass(frozen=True)
class Cluster:
    """An open session, and the namespace of the jobs."""

    kube: Kube
    namespace: str

    async def get(self, resource: Resource, name: str) -> Json:
        """Return an object of the namespace. Raises `NoSuchObject`, `ClientError`."""
        return await ask(
            self, resource, name, lambda: self.kube.get(resource, self.namespace, name)
        )

    async def list(
        self, resource: Resource, *, all_namespaces: bool = False, label_selector: str = ""
    ) -> list[Json]:
        """Return the objects of the namespace, or of all. Raises `ClientError`."""
        namespace = None if all_namespaces else self.namespace
        found = await ask(
            self,
            resource,
            "",
            lambda: self.kube.list(resource, namespace, label_selector=label_selector),
        )
        items: list[Json] = found["items"]
        return items


@asynccontextmanager
async def open_cluster(access: Access) -> AsyncIterator[Cluster]:
    """Open a session. Raises `NoCluster` if there is no usable kubeconfig."""
    try:
        async with connect(
            user_agent="elasticjob",
            kubeconfig=access.kubeconfig,
            context=access.context,
            connections=_CONNECTIONS,
            brief=True,
        ) as kube:
            yield Cluster(kube, access.namespace or kube.namespace or pod_namespace())
    except NoAccess as error:
        what = "service account" if _in_a_pod(access) else "kubeconfig"
        raise NoCluster(
            f"no usable {what}: {error}; set KUBECONFIG or give --kubeconfig"
        ) from error


@contextmanager
def explained(cluster: Cluster, resource: Resource, name: str) -> Iterator[None]:
    """Turn the API server's errors about an object into errors for users.

    Raises:
        NoSuchObject: the object or its kind does not exist.
        NameTaken: another object has the name.
        Invalid: fields of the object are wrong.
        NotAllowed: the user may not do it.
        ClientError: any other error.
    """
    what = f"{resource.plural} of {cluster.namespace}"
    if name:
        what = f"{resource.kind} {cluster.namespace}/{name}"
    try:
        yield
    except NotFound as error:
        raise NoSuchObject(f"{what}: {_missing(error, resource, cluster)}") from error
    except AlreadyExists as error:
        raise NameTaken(f"{what}: {error.message}; give another name, or delete it") from error
    except KubeError as error:
        if problems := [_problem(cause) for cause in error.causes if cause.field not in _NO_FIELD]:
            raise Invalid(what, problems) from error
        raise failure_of(error)(f"{what}: {error.message}") from error


def failure_of(error: KubeError) -> type[ClientError]:
    """Return the class of a failed request's error for users."""
    return NotAllowed if isinstance(error, Forbidden) else ClientError


def _problem(cause: Cause) -> str:
    """Return field and message, without the words that repeat the field."""
    message = cause.message.removeprefix("Invalid value: ").removeprefix(_AN_OBJECT)
    message = message.replace(f"{cause.field} in body ", "").removeprefix(f"{cause.field} ")
    return f"{cause.field}: {message}"


async def ask(
    cluster: Cluster,
    resource: Resource,
    name: str,
    call: Callable[[], Awaitable[T]],
    *,
    repeatable: bool = True,
) -> T:
    """Return the answer to a request; repeat the request while the API server is unavailable.

    Args:
        cluster: the session.
        resource: the object's kind.
        name: its name; empty for a request about all objects of the namespace.
        call: sends the request.
        repeatable: whether the request is idempotent. Other requests are only repeated if the API
            server has rejected them as too many.

    Raises:
        NoSuchObject: the object or its kind does not exist.
        ClientError: any other error.
    """
    with explained(cluster, resource, name):
        return await retry(
            call,
            TryLater,
            pauses=_PAUSES,
            unless=lambda error: not repeatable and error.status != _TOO_MANY_REQUESTS,
        )


def _missing(error: NotFound, resource: Resource, cluster: Cluster) -> str:
    if not error.reason:  # the server knows no such path
        return (
            f"this cluster has no {resource.plural}; is the operator installed? (docs/install.md)"
        )
    command = f"kubectl get {resource.plural} -n {cluster.namespace}"
    if error.message.startswith("namespaces "):
        command = "kubectl get namespaces"
    return f"{error.message}; `{command}` lists what there is"


def _in_a_pod(access: Access) -> bool:
    """Return whether the access is the service account of the pod in which this runs."""
    return uses_service_account(os.environ, access.kubeconfig, access.context)
