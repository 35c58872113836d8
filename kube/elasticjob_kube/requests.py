"""Sends requests to an API server, with bounds on their number and their duration.

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
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import nullcontext
from typing import Any, Self

import msgspec

from elasticjob_kube.access import Access
from elasticjob_kube.answers import WatchEvent, answer_error, decode_event, no_answer
from elasticjob_kube.clock import Clock
from elasticjob_kube.errors import TooLarge, TryLater
from elasticjob_kube.resources import Resource
from elasticjob_kube.transport import Http, Response

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
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Requests:
    """Sends requests to one API server.

    Every method raises a `KubeError` (see errors.py) unless the request succeeded.

    Attributes:
        http: the connections, with certificates and proxy; `headers` returns the credentials.
        host: URL of the API server.
        namespace: see `Access`.
        answers: number of answers by method and status, without watches; status 0 stands for no
            answer.
        clock: learns the time from the answers.
    """

    def __init__(
        self,
        http: Http,
        access: Access,
        *,
        user_agent: str,
        connections: int,
        watch_seconds: float = WATCH_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self.http = http
        self.host = access.host.rstrip("/")
        self.namespace = access.namespace
        self.answers: Counter[tuple[str, int]] = Counter()
        self.clock = clock or Clock()
        self._broken: tuple[type[Exception], ...] = (TimeoutError, OSError, *http.failures)
        self._unreadable: tuple[type[Exception], ...]
        self._unreadable = (*self._broken, msgspec.DecodeError, ValueError)
        self._authorization = access.authorization
        self._user_agent = user_agent
        self._watch_seconds = watch_seconds
        # The time that a request waits for a connection must not count against its time-out, nor
        # delay a watch.
        self._all_slots = asyncio.Semaphore(connections)
        self._low_priority_slots = asyncio.Semaphore(max(connections // 4, 1))
        self._priority_slots: asyncio.Semaphore | nullcontext[None] = nullcontext()
        self._before_write: Callable[[], None] | None = None

    def guarded(self, before_write: Callable[[], None]) -> Self:
        """Return the same session, but every write first calls `before_write`.

        If `before_write` raises, the write is not sent. It is called after that of this session.
        """
        earlier = self._before_write or (lambda: None)

        def before() -> None:
            earlier()
            before_write()

        session = copy.copy(self)
        session._before_write = before
        return session

    def low_priority(self) -> Self:
        """Return the same session for requests that can wait, with a quarter of the connections."""
        session = copy.copy(self)
        session._priority_slots = self._low_priority_slots
        return session

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        seconds: float = REQUEST_SECONDS,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send one request and return the body of a successful answer, undecoded.

        Raises:
            TooLarge: the answer has more than `most_bytes`.
            KubeError: any other error.
        """
        async with self._priority_slots, self._all_slots:
            begun = time.monotonic()
            try:
                async with self.http.request(
                    method,
                    self.host + path,
                    params=_given(params or {}),
                    body=None if body is None else msgspec.json.encode(body),
                    before_write=None if method == "GET" else self._before_write,
                    headers=await self.headers(content_type, accept),
                    seconds=seconds,
                ) as response:
                    self.clock.observe(response.headers.get("Date"), time.monotonic() - begun)
                    data = await _body(response, most_bytes)
            except self._broken as error:
                self.answers[method, 0] += 1
                raise self._no_answer(method, path, error) from error
        self.answers[method, response.status] += 1
        if response.status >= 400:
            raise answer_error(response, data)
        return data

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
            async with self.http.request(
                "GET",
                self.host + path,
                params=_given(params),
                headers=await self.headers(accept=METADATA if metadata_only else JSON),
                seconds=_DEAD_WATCH * self._watch_seconds,
            ) as response:
                if response.status >= 400:
                    raise answer_error(response, await response.read())
                async for line in response.content:
                    yield await decode_event(line)
        except self._unreadable as error:
            raise self._no_answer("WATCH", path, error) from error

    async def stream(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the parts of an answer as they arrive, such as those of a followed log.

        The request has no time-out.
        """
        try:
            async with self.http.request(
                "GET",
                self.host + path,
                params=params,
                headers=await self.headers(accept="*/*"),
                seconds=None,
            ) as response:
                if response.status >= 400:
                    raise answer_error(response, await response.read())
                async for part in response.content.iter_any():
                    yield part
        except self._broken as error:
            raise no_answer("GET", path, error) from error

    def _no_answer(self, method: str, path: str, error: Exception) -> TryLater:
        """Return the error of a request without an answer.

        If the server, or a proxy before it, is silent on one connection, it may be silent on all:
        the next requests shall not wait, one after the other, for those that are idle now.
        """
        if isinstance(error, TimeoutError):
            self.http.close_idle()
        return no_answer(method, path, error)

    async def headers(self, content_type: str = JSON, accept: str = JSON) -> dict[str, str]:
        """Return the headers of a request, with the credentials that are valid now."""
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": self._user_agent}
        if authorization := await self._authorization():
            headers["Authorization"] = authorization
        return headers


async def _body(response: Response, most: int | None) -> bytes:
    if most is None:
        whole: bytes = await response.read()
        return whole
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > most:
            raise TooLarge(response.status, "TooLarge", f"the answer has more than {most} bytes")
    return bytes(body)


def _given(params: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that are not empty."""
    return {key: value for key, value in params.items() if value}
