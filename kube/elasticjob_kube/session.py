"""The session with an API server: the verbs of Kubernetes on typed or plain objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from elasticjob_api.meta import Json

from elasticjob_kube.access import Access, find_access
from elasticjob_kube.answers import WatchEvent, decode, decode_list, decode_object
from elasticjob_kube.clock import Clock
from elasticjob_kube.requests import JSON, METADATA, REQUEST_SECONDS, WATCH_SECONDS, Requests
from elasticjob_kube.resources import Resource
from elasticjob_kube.transport import Http

__all__ = ["REQUEST_SECONDS", "Kube", "WatchEvent", "connect"]
T = TypeVar("T")
PatchKind = Literal["json-patch", "merge-patch", "strategic-merge-patch"]
_METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Kube(Requests):
    """A session with one API server.

    Every method raises a `KubeError` (see errors.py) unless the request succeeded.
    """

    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json: ...
    @overload
    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, as_type: type[T]
    ) -> T: ...
    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, as_type: type[Any] = dict
    ) -> Any:
        """Return one object, read from etcd, never from the API server's cache."""
        return decode(await self.request("GET", resource.path(namespace, name)), as_type)

    async def get_cached_metadata(
        self, resource: Resource, namespace: str | None, name: str
    ) -> Json:
        """Return an object's metadata from the API server's cache, which may lag behind."""
        path = resource.path(namespace, name)
        params = {"resourceVersion": "0"}
        return decode_object(await self.request("GET", path, params=params, accept=METADATA))

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Json: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int | None = None,
        most_bytes: int | None = None,
        as_type: type[T],
    ) -> T: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int | None = None,
        most_bytes: int | None = None,
        as_type: type[Any] | None = None,
    ) -> Any:
        """Return the whole list object of a collection; `namespace=None` means all namespaces.

        With `limit`, it has only so many objects. Beyond `most_bytes`, `TooLarge` is raised.
        With `as_type`, a value that cannot be decoded is cut out of its object
        (`salvage.was_cut`).
        """
        params = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": "" if limit is None else str(limit),
        }
        accept = _METADATA_LIST if metadata_only else JSON
        data = await self.request(
            "GET", resource.path(namespace), params=params, accept=accept, most_bytes=most_bytes
        )
        if as_type is None:
            return decode_object(data)
        return await decode_list(data, as_type)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Json:
        """Create an object and return it as stored.

        Args:
            resource: its kind.
            namespace: the namespace of the object.
            body: the object.
            dry_run: validate the object without storing it; it is returned as it would be stored.
            strict: refuse fields that the API server does not know; otherwise it drops them.

        Raises:
            AlreadyExists: an object of this name exists.
        """
        params = {"dryRun": "All" if dry_run else "", "fieldValidation": "Strict" if strict else ""}
        path = resource.path(namespace)
        return decode_object(await self.request("POST", path, params=params, body=body))

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
    ) -> Json:
        """Replace an object and return it as stored.

        Raises:
            Conflict: the body has a `metadata.resourceVersion`, and the object has changed since.
        """
        return decode_object(await self.request("PUT", resource.path(namespace, name), body=body))

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        kind: PatchKind = "merge-patch",
        subresource: str = "",
    ) -> Json:
        """Patch an object and return it as stored.

        Raises:
            Conflict: the body has a `metadata.resourceVersion` or UID that is not the object's.
            Refused: a `test` of a JSON patch has failed, or the object is invalid.
        """
        path = resource.path(namespace, name, subresource)
        content_type = f"application/{kind}+json"
        data = await self.request("PATCH", path, body=body, content_type=content_type)
        return decode_object(data)

    async def apply(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        subresource: str = "",
    ) -> None:
        """Apply the fields that a manager owns, by server-side apply with `force`.

        The answer is not decoded, so the object may have values that no decoder can read.
        """
        await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            params={"fieldManager": field_manager, "force": "true"},
            body=body,
            content_type="application/apply-patch+yaml",
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] | None = None,
    ) -> Json:
        """Delete an object.

        Return the object if it exists until its grace period or finalizers end; otherwise the
        server's `Status`.

        Raises:
            Conflict: the object has another UID than `uid`.
        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = resource.path(namespace, name)
        return decode_object(await self.request("DELETE", path, body=options))


@asynccontextmanager
async def connect(
    *,
    user_agent: str,
    kubeconfig: Path | None = None,
    context: str | None = None,
    connections: int = 100,
    watch_seconds: float = WATCH_SECONDS,
    clock: Clock | None = None,
    brief: bool = False,
) -> AsyncIterator[Kube]:
    """Open a session with the credentials that `find_access` finds.

    Args:
        user_agent: the name of this client in the API server's logs.
        kubeconfig: the path of a kubeconfig; by default the first one that `find_access` finds.
        context: a context of the kubeconfig; by default its current one.
        connections: the number of concurrent requests, without watches; others wait in order.
        watch_seconds: see `WATCH_SECONDS`.
        clock: learns the time from the answers, for several sessions together.
        brief: for a command that sends a few requests and ends (`brief_http`).

    Raises:
        NoAccess: there are no usable credentials.
    """
    access = await find_access(kubeconfig, context)
    async with _opened(access, brief=brief and access.proxy is None) as http:
        yield Kube(
            http,
            access,
            user_agent=user_agent,
            connections=connections,
            watch_seconds=watch_seconds,
            clock=clock,
        )


def _opened(access: Access, *, brief: bool) -> AbstractAsyncContextManager[Http]:
    if brief:
        from elasticjob_kube.brief_http import BriefHttp

        return BriefHttp(access)
    from elasticjob_kube.connection import open_http  # slow: it imports aiohttp

    return open_http(access)
