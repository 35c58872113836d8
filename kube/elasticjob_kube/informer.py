"""A list-and-watch cache of one collection, decoded to small structs.

The cache may lag behind the API server, but never goes back: an older version of an object never replaces a newer one,
and every list removes what is not in it. A writer adds the server's answers to its own writes (`observe`, `forget`), so
that it reads what it wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from elasticjob_kube.errors import Expired, KubeError
from elasticjob_kube.resources import Resource
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
_BACK_OFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses after failures in a row; the last one is repeated."""
_SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event counts as failed; one that lasts as long resets the back-off."""
_MAX_DELETED_REMEMBERED = 10_000
"""Deleted objects whose last version is remembered, so that a late answer to a write does not bring them back."""


class Metadata(Protocol):
    """What the cache reads of an object's metadata."""

    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def resource_version(self) -> str: ...  # noqa: D102


class Cached(Protocol):
    """An object that can be cached."""

    @property
    def metadata(self) -> Metadata: ...  # noqa: D102


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    """The watch's position: an object of the collection's kind with nothing but a resource version."""

    metadata: _Version


class _Identity(_Version):
    uid: str
    name: str = ""


class _Identified(msgspec.Struct):
    """The identity of an object that cannot be decoded as its type."""

    metadata: _Identity


class _Page(msgspec.Struct):
    metadata: _Version
    items: list[msgspec.Raw] | None = None


T = TypeVar("T", bound=Cached)
Change = Callable[[T | None, T | None], None]
"""Called with (before, after); None before means new, None after means gone."""


class Informer(Generic[T]):
    """The objects of one collection by UID, kept current by `run`."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        as_type: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        on_change: Change[T],
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._decoder = msgspec.json.Decoder(as_type)
        self._on_change = on_change
        self._objects: dict[str, T] = {}
        self._deleted_at: dict[str, int] = {}
        self.synced = asyncio.Event()

    def __iter__(self) -> Iterable[T]:
        return iter(self._objects.values())

    def get(self, uid: str) -> T | None:
        """Return the object with this UID as last observed, or None."""
        return self._objects.get(uid)

    async def run(self) -> None:
        """List, then watch, for ever; a broken watch is resumed where it ended, an expired one is listed again."""
        version, failures = "", 0
        while True:
            failure: object = None
            started = asyncio.get_running_loop().time()
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                async for event in self._kube.watch(
                    self._resource, self._namespace, resource_version=version, **self._selectors
                ):
                    version = self._apply(event.type, event.object) or version
                    failures = 0
                if asyncio.get_running_loop().time() - started < _SHORTEST_WATCH_SECONDS:
                    failure = "it ended at once"
            except KubeError as error:
                version = "" if isinstance(error, Expired) else version
                failure = error
            if asyncio.get_running_loop().time() - started >= _SHORTEST_WATCH_SECONDS:
                failures = 0  # the watch was up, though nothing happened in it
            if failure is not None:
                pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                failures += 1
                log.warning("watch of %s: %s; again in %g s", self._resource.plural, failure, pause)
                await asyncio.sleep(pause)

    async def refresh(self) -> None:
        """List now: for a writer that got no answer and must know the result before it decides again."""
        await self._list()

    def observe(self, item: T) -> None:
        """Put the server's answer to an own write into the cache, ahead of the watch."""
        self._put(item)

    def forget(self, uid: str) -> None:
        """Remove an object that the server has answered is gone, ahead of the watch."""
        if old := self._objects.get(uid):
            self._remove(uid, old.metadata.resource_version)

    async def _list(self) -> str:
        page = await self._kube.list(self._resource, self._namespace, as_type=_Page, **self._selectors)
        version = page.metadata.resource_version
        read = [self._read(raw) for raw in page.items or ()]
        items = [item for item in read if not isinstance(item, _Identified)]
        listed = {item.metadata.uid for item in read}
        for uid, old in list(self._objects.items()):
            # An object that was written after the list was made is not in it, but exists.
            if uid not in listed and int(old.metadata.resource_version) <= int(version):
                self._remove(uid, version)
        for item in items:
            self._put(item)
        return version

    def _apply(self, kind: str, raw: msgspec.Raw) -> str | None:
        if kind == "BOOKMARK":
            return msgspec.json.decode(raw, type=_Bookmark).metadata.resource_version
        item = self._read(raw)
        if kind == "DELETED":
            self._remove(item.metadata.uid, item.metadata.resource_version)
        elif not isinstance(item, _Identified):
            self._put(item)
        return item.metadata.resource_version or None

    def _read(self, raw: msgspec.Raw) -> T | _Identified:
        """Decode an object; one that cannot be decoded stays in the cache as last read, and affects no other."""
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            item = msgspec.json.decode(raw, type=_Identified)
            log.warning("%s %s cannot be read and is left alone: %s", self._resource.kind, item.metadata.name, error)
            return item

    def _put(self, item: T) -> None:
        uid, version = item.metadata.uid, int(item.metadata.resource_version)
        old = self._objects.get(uid)
        if old is not None and int(old.metadata.resource_version) >= version:
            return
        if self._deleted_at.get(uid, -1) >= version:
            return  # the answer to a create came after the watch's event of its deletion
        self._objects[uid] = item
        self._on_change(old, item)

    def _remove(self, uid: str, version: str) -> None:
        old = self._objects.pop(uid, None)
        self._deleted_at[uid] = int(version)
        if len(self._deleted_at) > _MAX_DELETED_REMEMBERED:
            del self._deleted_at[next(iter(self._deleted_at))]
        if old is not None:
            self._on_change(old, None)
