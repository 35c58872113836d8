"""A Kubernetes session for hot paths.

Requests are plain JSON over aiohttp. The official client's own request path costs as much CPU as
the rest of an operator (measured: 930 creates a second against 1,600). Its aiohttp session does not
help either: for every request it looks for a proxy in the environment and, in another thread, for a
.netrc file, which together cost as much as the request itself. So the official client only reads
kubeconfigs (`kubeconfig`).
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import aiohttp
import msgspec
from elasticjob_api.meta import Json

from elasticjob_kube.access import Access, find_access
from elasticjob_kube.answers import (
    WatchEvent,
    answer_error,
    decode,
    decode_event,
    decode_list,
    decode_object,
    no_answer,
)
from elasticjob_kube.connection import (
    CONNECT_SECONDS,
    ClosingConnector,
    body_payload,
    open_http,
    total_timeout,
)
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import Resource

__all__ = ["Kube", "WatchEvent", "connect"]
T = TypeVar("T")
PatchKind = Literal["json-patch", "merge-patch", "strategic-merge-patch"]

REQUEST_SECONDS = 30.0
WATCH_SECONDS = 45.0
"""The longest life of a watch. After it the watch is opened again at the position where it ended.

It bounds how long a watch is trusted that is dead without an error: its packets get lost, or the
server or a proxy hangs. Bookmarks come only once a minute, and keep-alive probes reach only the
next proxy. The price is one request per watch and 40 s, which the API server answers from its cache
on an open connection.
"""
_SHORTEST_WATCH = 0.8
"""The shortest life of a watch, as a part of the longest. The lives are random, so that after an
outage the watches of many clients do not start and end together for ever.
"""
_DEAD_WATCH = 1.2
"""When a watch that the server has not ended counts as dead, as a multiple of its longest life."""
_MAX_WATCH_LINE_BYTES = 16 * 1024 * 1024
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_BROKEN = (TimeoutError, aiohttp.ClientError, OSError)
"""The errors of a request that got no answer."""


class Kube:
    """Sends requests to one API server.

    Every method raises a `KubeError` (see errors.py) unless the request succeeded.

    Attributes:
        http: the connections, with certificates and proxy; `headers` returns the credentials.
        host: URL of the API server.
        answers: number of answers by method and status, without watches; status 0 stands for no
            answer.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        access: Access,
        *,
        user_agent: str,
        connections: int,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self.http = http
        self.host = access.host.rstrip("/")
        self.answers: Counter[tuple[str, int]] = Counter()
        self._authorization = access.authorization
        self._user_agent = user_agent
        self._watch_seconds = watch_seconds
        # The time that a request waits for a connection must not count against its time-out, nor
        # delay a watch.
        self._all_slots = asyncio.Semaphore(connections)
        self._low_priority_slots = asyncio.Semaphore(max(connections // 4, 1))
        self._priority_slots: asyncio.Semaphore | nullcontext[None] = nullcontext()
        self._before_write: Callable[[], None] | None = None

    def guarded(self, before_write: Callable[[], None]) -> Kube:
        """Return the same session, but every write first calls `before_write`.

        If `before_write` raises, the write is not sent.
        """
        session = copy.copy(self)
        session._before_write = before_write
        return session

    def low_priority(self) -> Kube:
        """Return the same session for requests that can wait, with a quarter of the connections."""
        session = copy.copy(self)
        session._priority_slots = self._low_priority_slots
        return session

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
        return decode_object(await self.request("GET", path, params=params, accept=_METADATA))

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
        as_type: type[Any] | None = None,
    ) -> Any:
        """Return the whole list object of a collection; `namespace=None` means all namespaces.

        With `limit`, it has only so many objects.
        With `as_type`, a value that cannot be decoded is cut out of its object
        (`salvage.was_cut`).
        """
        params = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": "" if limit is None else str(limit),
        }
        accept = _METADATA_LIST if metadata_only else _JSON
        data = await self.request("GET", resource.path(namespace), params=params, accept=accept)
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
            namespace: of the object.
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

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        seconds: float = REQUEST_SECONDS,
    ) -> bytes:
        """Send one request and return the body of a successful answer, undecoded."""
        async with self._priority_slots, self._all_slots:
            try:
                async with self.http.request(
                    method,
                    self.host + path,
                    params=_given(params or {}),
                    data=self._payload(method, body),
                    headers=await self.headers(content_type, accept),
                    timeout=total_timeout(seconds),
                ) as response:
                    data: bytes = await response.read()
            except _BROKEN as error:
                self.answers[method, 0] += 1
                raise self._no_answer(method, path, error) from error
        self.answers[method, response.status] += 1
        if response.status >= 400:
            raise answer_error(response, data)
        return data

    def _payload(self, method: str, body: Any) -> Any:
        if body is None:
            return None
        before_write = None if method == "GET" else self._before_write
        return body_payload(msgspec.json.encode(body), before_write)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after `resource_version` until the server ends the watch.

        The server ends it after `WATCH_SECONDS` or less. A value that cannot be decoded is cut out
        of its object (`salvage.was_cut`).

        Raises:
            Expired: the version is too old; list again.
            TryLater: the connection is broken, or the server has not ended the watch in time.
        """
        life = random.uniform(_SHORTEST_WATCH, 1) * self._watch_seconds  # noqa: S311
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(round(life), 1)),
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        path = resource.path(namespace)
        try:
            async with self.http.get(
                self.host + path,
                params=_given(params),
                headers=await self.headers(accept=_METADATA if metadata_only else _JSON),
                timeout=total_timeout(_DEAD_WATCH * self._watch_seconds),
                read_bufsize=_MAX_WATCH_LINE_BYTES,
            ) as response:
                if response.status >= 400:
                    raise answer_error(response, await response.read())
                async for line in response.content:
                    yield await decode_event(line)
        except (*_BROKEN, msgspec.DecodeError, ValueError) as error:
            raise self._no_answer("WATCH", path, error) from error

    async def stream(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of an answer as they arrive, such as those of a followed log.

        The request has no time-out.
        """
        try:
            async with self.http.get(
                self.host + path,
                params=params,
                headers=await self.headers(accept="*/*"),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            ) as response:
                if response.status >= 400:
                    raise answer_error(response, await response.read())
                async for part in response.content.iter_any():
                    yield part
        except _BROKEN as error:
            raise no_answer("GET", path, error) from error

    def _no_answer(self, method: str, path: str, error: Exception) -> TryLater:
        """Return the error of a request without an answer.

        If the server, or a proxy before it, is silent on one connection, it may be silent on all:
        the next requests shall not wait, one after the other, for those that are idle now.
        """
        connector = self.http.connector
        if isinstance(error, TimeoutError) and isinstance(connector, ClosingConnector):
            connector.close_idle()
        return no_answer(method, path, error)

    async def headers(self, content_type: str = _JSON, accept: str = _JSON) -> dict[str, str]:
        """Return the headers of a request, with the credentials that are valid now."""
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": self._user_agent}
        if authorization := await self._authorization():
            headers["Authorization"] = authorization
        return headers


@asynccontextmanager
async def connect(
    *,
    user_agent: str,
    kubeconfig: Path | None = None,
    context: str | None = None,
    connections: int = 100,
    watch_seconds: float = WATCH_SECONDS,
) -> AsyncIterator[Kube]:
    """Open a session with the credentials that `find_access` finds.

    Args:
        user_agent: the name of this client in the API server's logs.
        kubeconfig: a kubeconfig; None: the first one that `find_access` finds.
        context: of the kubeconfig; None: its current one.
        connections: the number of concurrent requests, without watches; others wait in order.
        watch_seconds: see `WATCH_SECONDS`.

    Raises:
        NoAccess: there are no usable credentials.
    """
    access = await find_access(kubeconfig, context)
    async with open_http(access) as http:
        yield Kube(
            http,
            access,
            user_agent=user_agent,
            connections=connections,
            watch_seconds=watch_seconds,
        )


def _given(params: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that are not empty."""
    return {key: value for key, value in params.items() if value}
