"""A Kubernetes session for hot paths.

Requests are plain JSON over aiohttp, because the official client's own request path costs as much
CPU as the rest of an operator (measured: 930 against 1,600 creates a second). Its aiohttp session
is not used either: for every request it looks for a proxy in the environment and, in another
thread, for a .netrc file, which together cost as much as the request itself. The official client
only reads kubeconfigs, see `kubeconfig`.
"""

from __future__ import annotations

import asyncio
import copy
import io
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import aiohttp
import msgspec
from aiohttp import AddrInfoType
from aiohttp.abc import AbstractStreamWriter

from elasticjob_kube.access import Access, pod_access, uses_service_account
from elasticjob_kube.errors import (
    Cause,
    Expired,
    KubeError,
    NoAccess,
    Refused,
    TryLater,
    error_from,
)
from elasticjob_kube.resources import Resource
from elasticjob_kube.salvage import cut

T = TypeVar("T")
Json = dict[str, Any]
PatchKind = Literal["json-patch", "merge-patch", "strategic-merge-patch", "apply-patch"]

REQUEST_SECONDS = 30.0
WATCH_SECONDS = 45.0
"""The longest life of a watch, after which it is opened again where it ended; each one lives a
random part less.

It bounds how long a watch is believed that is dead without an error: its packets get lost, or the
server or a proxy hangs. Bookmarks come too seldom to show that (once a minute), and keep-alive
probes reach no further than the next proxy. The price is a request a watch and 40 s, which the API
server answers from its cache, on an open connection.
"""
KEEP_ALIVE_SECONDS = 75.0
"""How long an idle connection is kept; the API server closes it after 90. A new one costs more than
a request.
"""
_MAX_WATCH_LINE_BYTES = 16 * 1024 * 1024
_SOCKET_OPTIONS = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 3,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 15_000,
}
"""A connection whose other end has gone without a word breaks after 16 s, whether it waits or
sends. So none of those that are kept idle is used for the next request, which would wait for
nothing.
"""
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CHUNKED_BODY_BYTES = 1024 * 1024
"""A larger body is sent in parts, so that sending it does not hold up the event loop."""
_SHOWN_ANSWER_BYTES = 100
_SHOWN_ERROR_BYTES = 500
"""Of an answer that is not JSON, as much is shown in the error's message."""
_CONNECT_SECONDS = 5.0
"""A lost packet is sent again after 1 and 3 s; the next attempt, after 7 s, is better made anew."""
_SHORTEST_WATCH = 0.8
"""Of the longest life: so that the watches of many clients do not begin and end together after an
outage for ever.
"""
_DEAD_WATCH = 1.2
"""Of the longest life: by then the server has ended every watch that is not dead."""


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Reason(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class WatchEvent(msgspec.Struct):
    """One line of a watch: `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.

    `object` is undecoded JSON.
    """

    type: str
    object: msgspec.Raw


class _Guarded(aiohttp.BytesPayload):
    """A body that calls `before_write` once the connection is open, just before the first byte is sent."""

    def __init__(self, data: bytes, before_write: Callable[[], None]) -> None:
        super().__init__(data)
        self._before_write = before_write

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Send the body, or end the request by what `before_write` raises."""
        self._before_write()
        await super().write_with_length(writer, content_length)


_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_EVENT = msgspec.json.Decoder(WatchEvent)


class Kube:
    """Requests to one API server.

    Every method raises a `KubeError` (see errors.py) unless the request succeeded.

    Attributes:
        http: the connections, with certificates and proxy; for requests that need other credentials see `headers`.
        host: URL of the API server.
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
        self._watch_seconds = watch_seconds
        self._authorization = access.authorization
        self.host = access.host.rstrip("/")
        self._user_agent = user_agent
        # Waiting for a connection must not count against a request's own time-out, nor hold up a
        # watch.
        self._all_slots = asyncio.Semaphore(connections)
        self._low_priority_slots = asyncio.Semaphore(max(connections // 4, 1))
        self._priority_slots: asyncio.Semaphore | nullcontext[None] = nullcontext()
        self._before_write: Callable[[], None] | None = None
        self.answers: Counter[tuple[str, int]] = Counter()
        """Number of answers by method and status; status 0: no answer. Watches are not counted."""

    def guarded(self, before_write: Callable[[], None]) -> Kube:
        """Return the same session, but every write calls `before_write` first, which raises if it must not be sent."""
        session = copy.copy(self)
        session._before_write = before_write
        return session

    def low_priority(self) -> Kube:
        """Return the same session for requests that can wait.

        They get a quarter of the connections at most.
        """
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
        """Return one object, read from etcd (never from the API server's cache)."""
        return _decoded(await self.request("GET", resource.path(namespace, name)), as_type)

    async def get_cached_metadata(
        self, resource: Resource, namespace: str | None, name: str
    ) -> Json:
        """Return an object with its metadata only, from the API server's cache, which may be a moment behind."""
        path = resource.path(namespace, name)
        return _object(
            await self.request("GET", path, params={"resourceVersion": "0"}, accept=_METADATA)
        )

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
        as_type: type[Any] = dict,
    ) -> Any:
        """Return the whole list object of a collection; `namespace=None` means all namespaces.

        With `as_type`, a value in it that cannot be decoded is cut out of its object
        (`salvage.was_cut`).
        """
        params = {"labelSelector": label_selector, "fieldSelector": field_selector}
        accept = _METADATA_LIST if metadata_only else _JSON
        data = await self.request("GET", resource.path(namespace), params=params, accept=accept)
        if as_type is not dict:
            with suppress(*_UNDECODABLE):
                return msgspec.json.decode(data, type=as_type)
            data = await asyncio.to_thread(cut, data)
        return _decoded(data, as_type)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Json:
        """Create an object and return it as stored. `AlreadyExists` when the name is taken.

        Args:
            resource: its kind.
            namespace: of the object.
            body: the object.
            dry_run: only check it; it is returned as it would be stored.
            strict: refuse fields that the API server does not know, which it drops else.
        """
        params = {"dryRun": "All" if dry_run else "", "fieldValidation": "Strict" if strict else ""}
        return _object(
            await self.request("POST", resource.path(namespace), params=params, body=body)
        )

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
    ) -> Json:
        """Put an object.

        With `metadata.resourceVersion` in the body, `Conflict` when it has changed since.
        """
        return _object(
            await self.request("PUT", resource.path(namespace, name, subresource), body=body)
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        kind: PatchKind = "merge-patch",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> Json:
        """Patch an object.

        A failed `test` of a JSON patch is `Refused`, another resourceVersion is `Conflict`.
        """
        params = {"fieldManager": field_manager, "force": "true" if force else ""}
        content_type = f"application/{kind}+{'yaml' if kind == 'apply-patch' else 'json'}"
        path = resource.path(namespace, name, subresource)
        return _object(
            await self.request("PATCH", path, params=params, body=body, content_type=content_type)
        )

    async def apply_status(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        field_manager: str,
    ) -> None:
        """Apply the fields of a status that belong to a manager.

        The object need not be one that can be decoded.
        """
        params = {"fieldManager": field_manager, "force": "true"}
        path = resource.path(namespace, name, "status")
        await self.request(
            "PATCH", path, params=params, body=body, content_type="application/apply-patch+yaml"
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

        With `uid`, only that one (`Conflict` when another object has the name now).

        Returns the object while it lives on for its grace period or finalizers, else the server's
        `Status`.
        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return _object(await self.request("DELETE", resource.path(namespace, name), body=options))

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
            return await self._send(method, path, params, body, content_type, accept, seconds)

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        accept: str,
        seconds: float,
    ) -> bytes:
        try:
            async with self.http.request(
                method,
                self.host + path,
                params={key: value for key, value in (params or {}).items() if value},
                data=None if body is None else self._payload(method, msgspec.json.encode(body)),
                headers=await self.headers(content_type, accept),
                timeout=_timeout(seconds),
            ) as response:
                data: bytes = await response.read()
                self.answers[method, response.status] += 1
                if response.status >= 400:
                    raise _error(response, data)
                return data
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self.answers[method, 0] += 1
            raise _no_answer(method, path, error) from error

    def _payload(self, method: str, data: bytes) -> bytes | io.BytesIO | _Guarded:
        if self._before_write is not None and method != "GET":
            return _Guarded(data, self._before_write)
        return data if len(data) <= _CHUNKED_BODY_BYTES else io.BytesIO(data)

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
        """Yield the changes after `resource_version` until the server ends the watch, after `WATCH_SECONDS` or less.

        A value that cannot be decoded is cut out of its object (`salvage.was_cut`).

        Raises `Expired` when the version is too old (list again), and `TryLater` when the
        connection breaks or the server has not ended the watch when it should have.
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
                params={key: value for key, value in params.items() if value},
                headers=await self.headers(_JSON, _METADATA if metadata_only else _JSON),
                timeout=_timeout(_DEAD_WATCH * self._watch_seconds),
                read_bufsize=_MAX_WATCH_LINE_BYTES,
            ) as response:
                if response.status >= 400:
                    raise _error(response, await response.read())
                async for line in response.content:
                    event = await _event(line)
                    if event.type == "ERROR":
                        raise _watch_error(event)
                    yield event
        except (
            TimeoutError,
            aiohttp.ClientError,
            OSError,
            msgspec.DecodeError,
            ValueError,
        ) as error:
            raise _no_answer("WATCH", path, error) from error

    async def stream(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of an answer as they come, such as those of a log that is followed.

        It has no time-out.
        """
        try:
            async with self.http.get(
                self.host + path,
                params=params,
                headers=await self.headers(accept="*/*"),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            ) as response:
                if response.status >= 400:
                    raise _error(response, await response.read())
                async for part in response.content.iter_any():
                    yield part
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _no_answer("GET", path, error) from error

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
    """Open a session.

    The given kubeconfig, else `$KUBECONFIG`, else the pod's service account, else ~/.kube/config.

    Args:
        user_agent: the name of this client in the API server's logs.
        kubeconfig: see above.
        context: of the kubeconfig; None: its current one.
        connections: requests at a time; further ones wait in order. Watches do not count.
        watch_seconds: see `WATCH_SECONDS`.

    Raises:
        NoAccess: none of them is usable.
    """
    access = await _access(kubeconfig, context)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0,
            ssl=access.context,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            socket_factory=_probed_socket,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=access.proxy,
    ) as http:
        yield Kube(
            http,
            access,
            user_agent=user_agent,
            connections=connections,
            watch_seconds=watch_seconds,
        )


async def _access(path: Path | None, context: str | None) -> Access:
    if uses_service_account(os.environ, path, context):
        return pod_access(os.environ)
    try:
        from elasticjob_kube import (
            kubeconfig,
        )  # only where it is needed: it imports the official client
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        message = (
            "to use a kubeconfig, install elasticjob[kubeconfig]; without, this runs in a pod only"
        )
        raise NoAccess(message) from error
    return await kubeconfig.access(path, context)


def _probed_socket(address: AddrInfoType) -> socket.socket:
    """Return a socket that notices when its other end has gone (see `_SOCKET_OPTIONS`)."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SOCKET_OPTIONS.items():
        if hasattr(
            socket, name
        ):  # TCP_USER_TIMEOUT is Linux', and the command line runs elsewhere, too
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, _CONNECT_SECONDS))


def _object(data: bytes) -> Json:
    decoded: Json = _decoded(data, dict[str, Any])
    return decoded


def _decoded(data: bytes, as_type: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=as_type)
    except msgspec.ValidationError:
        raise  # JSON, but not of this type: for the caller to handle
    except RecursionError as error:
        raise Refused(
            0, "Unreadable", "the object cannot be read: it is nested too deeply"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        start = data[:_SHOWN_ANSWER_BYTES].decode(errors="replace")
        raise TryLater(0, "NotJson", f"the answer is not the API server's: {start!r}") from error


def _error(response: aiohttp.ClientResponse, data: bytes) -> KubeError:
    try:
        status = msgspec.json.decode(data, type=_Reason)
    except _UNDECODABLE:
        status = _Reason(message=data[:_SHOWN_ERROR_BYTES].decode(errors="replace"))
    wait = response.headers.get("Retry-After", "")
    retry_after = float(wait) if wait.isdigit() else None
    message = status.message or f"the API server answered {response.status} {response.reason}"
    error = error_from(response.status, status.reason, message, retry_after)
    if status.details is not None:
        error.causes = tuple(
            Cause(cause.field, cause.message) for cause in status.details.causes or ()
        )
    return error


async def _event(line: bytes) -> WatchEvent:
    with suppress(*_UNDECODABLE):
        return _EVENT.decode(line)
    return _EVENT.decode(await asyncio.to_thread(cut, line))


class _StatusObject(_Reason):
    code: int = 500


def _watch_error(event: WatchEvent) -> KubeError:
    status = msgspec.json.decode(event.object, type=_StatusObject)
    if status.reason in ("Expired", "Gone") or status.code == 410:
        return Expired(410, status.reason, status.message)
    return error_from(status.code, status.reason, status.message)


def _no_answer(method: str, path: str, error: BaseException) -> TryLater:
    return TryLater(
        0,
        type(error).__name__,
        f"{method} {path}: no answer from the API server: {error or type(error).__name__}",
    )
