"""A list-and-watch cache of one collection, decoded to small structs.

The cache may lag behind the API server, but never goes back: an older version of an object never
replaces a newer one, and every list removes what is not in it. A writer adds the server's answers
to its own writes (`observe`, `forget`), so that it reads what it wrote.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from elasticjob_kube.errors import Expired, KubeError, NotFound
from elasticjob_kube.resources import Resource
from elasticjob_kube.salvage import MAX_DEPTH, was_cut
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
_BACK_OFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses after failures in a row; the last one is repeated."""
_SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event counts as failed; one that lasts as long resets the
back-off.
"""
_MAX_DELETED_REMEMBERED = 10_000
"""Deleted objects whose last version is remembered, so that a late answer to a write does not bring
them back.
"""


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


class _Version(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str


class _Bookmark(msgspec.Struct):
    """The watch's position.

    An object of the collection's kind with nothing but a resource version.
    """

    metadata: _Version


class Identity(_Version, frozen=True):
    """Which object it is that cannot be decoded."""

    uid: str
    name: str = ""
    namespace: str = ""


class _Identified(msgspec.Struct):
    metadata: Identity


class _Unread(msgspec.Struct, frozen=True):
    """An object that cannot be decoded, and why."""

    metadata: Identity
    why: str


class _Page(msgspec.Struct):
    metadata: _Version
    items: list[msgspec.Raw] | None = None


_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
T = TypeVar("T", bound=Cached)
Change = Callable[[T | None, T | None], None]
"""Called with (before, after); None before means new, None after means gone."""
Unreadable = Callable[[Identity, str], None]
"""Called with an object that cannot be decoded, and why; once, as long as that does not change."""


class Informer(Generic[T]):
    """The objects of one collection by UID, kept current by `run`."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        as_type: type[T] | Callable[[msgspec.Raw], T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        on_change: Change[T],
        on_unreadable: Unreadable = lambda _, __: None,
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._namespace = namespace
        self._selectors: dict[str, Any] = {
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        if metadata_only:
            self._selectors["metadata_only"] = True
        self._decode = (
            msgspec.json.Decoder(as_type).decode if isinstance(as_type, type) else as_type
        )
        self._on_change = on_change
        self._on_unreadable = on_unreadable
        self._unread: dict[str, str] = {}
        self._objects: dict[str, T] = {}
        self._deleted_at: dict[str, int] = {}
        self.synced = asyncio.Event()

    def __iter__(self) -> Iterable[T]:
        return iter(self._objects.values())

    def get(self, uid: str) -> T | None:
        """Return the object with this UID as last observed, or None."""
        return self._objects.get(uid)

    async def run(self) -> None:
        """List, then watch, for ever.

        A broken watch is resumed where it ended, an expired one is listed again. Where the cluster
        does not serve the kind, it is looked for again and again; the log says so once.
        """
        version = ""
        failures = 0
        is_missing = False
        while True:
            failure: object = None
            started = asyncio.get_running_loop().time()
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                    if is_missing:
                        log.info(
                            "watch of %s: the cluster serves them again", self._resource.plural
                        )
                        is_missing = False
                async for event in self._kube.watch(
                    self._resource, self._namespace, resource_version=version, **self._selectors
                ):
                    version = self._apply(event.type, event.object) or version
                    failures = 0
                if asyncio.get_running_loop().time() - started < _SHORTEST_WATCH_SECONDS:
                    failure = "it ended at once"
            except KubeError as error:
                version = "" if isinstance(error, Expired | NotFound) else version
                failure = error
            if asyncio.get_running_loop().time() - started >= _SHORTEST_WATCH_SECONDS:
                failures = 0  # the watch was up, though nothing happened in it
            if failure is not None:
                pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                failures += 1
                if not isinstance(failure, NotFound):
                    log.warning(
                        "watch of %s: %s; again in %g s", self._resource.plural, failure, pause
                    )
                elif not is_missing:  # said once: that can be so for days
                    log.warning(
                        "watch of %s: the cluster does not serve them; trying again",
                        self._resource.plural,
                    )
                    is_missing = True
                await asyncio.sleep(pause)

    async def refresh(self) -> None:
        """List now.

        For a writer that got no answer and must know the result before it decides again.
        """
        await self._list()

    def observe(self, item: T) -> None:
        """Put the server's answer to an own write into the cache, ahead of the watch."""
        self._put(item)

    def keep(self, item: T) -> None:
        """Put an object into the cache that exists although the watch has reported it as gone.

        No selector matches it.
        No watch reports it any more; the next list, or `forget`, removes it.
        """
        self._deleted_at.pop(item.metadata.uid, None)
        self._put(item)

    def forget(self, uid: str) -> None:
        """Remove an object that the server has answered is gone, ahead of the watch."""
        if old := self._objects.get(uid):
            self._remove(uid, old.metadata.resource_version)

    async def _list(self) -> str:
        page = await self._kube.list(
            self._resource, self._namespace, as_type=_Page, **self._selectors
        )
        version = page.metadata.resource_version
        items = [item for raw in page.items or () if (item := self._read(raw)) is not None]
        listed = {item.metadata.uid for item in items}
        for uid, old in list(self._objects.items()):
            # An object that was written after the list was made is not in it, but exists.
            if uid not in listed and int(old.metadata.resource_version) <= int(version):
                self._remove(uid, version)
        for uid in self._unread.keys() - listed:
            del self._unread[uid]
        for item in items:
            self._take(item)
        return version

    def _apply(self, kind: str, raw: msgspec.Raw) -> str | None:
        if kind == "BOOKMARK":
            return msgspec.json.decode(raw, type=_Bookmark).metadata.resource_version
        item = self._read(raw)
        if item is None:
            return None
        if kind == "DELETED":
            self._remove(item.metadata.uid, item.metadata.resource_version)
        else:
            self._take(item)
        return item.metadata.resource_version or None

    def _read(self, raw: msgspec.Raw) -> T | _Unread | None:
        """Decode an object, or at least its identity; None when not even that can be decoded."""
        try:
            if not was_cut(raw):
                return self._decode(raw)
            why = f"a value in it is nested more than {MAX_DEPTH} levels deep, or is no valid text"
        except _UNDECODABLE as error:
            why = str(error)
        try:
            return _Unread(msgspec.json.decode(raw, type=_Identified).metadata, why)
        except _UNDECODABLE as error:
            log.warning("a %s cannot be read and is left alone: %s", self._resource.kind, error)
            return None

    def _take(self, item: T | _Unread) -> None:
        """Put an object into the cache.

        One that cannot be decoded stays there as last read, and affects no other.
        """
        if not isinstance(item, _Unread):
            self._put(item)
        elif not self._is_old(item.metadata) and self._unread.get(item.metadata.uid) != item.why:
            self._unread[item.metadata.uid] = item.why
            log.warning(
                "%s %s cannot be read and is left alone: %s",
                self._resource.kind,
                item.metadata.name,
                item.why,
            )
            self._on_unreadable(item.metadata, item.why)

    def _put(self, item: T) -> None:
        uid = item.metadata.uid
        old = self._objects.get(item.metadata.uid)
        if self._is_old(item.metadata):
            return
        self._unread.pop(uid, None)
        self._objects[uid] = item
        self._on_change(old, item)

    def _is_old(self, metadata: Metadata) -> bool:
        """Whether this version or a later one is cached, or was deleted."""
        uid = metadata.uid
        version = int(metadata.resource_version)
        old = self._objects.get(uid)
        if old is not None and int(old.metadata.resource_version) >= version:
            return True
        return (
            self._deleted_at.get(uid, -1) >= version
        )  # the answer to a create came after the event of its deletion

    def _remove(self, uid: str, version: str) -> None:
        old = self._objects.pop(uid, None)
        self._unread.pop(uid, None)
        self._deleted_at[uid] = int(version)
        if len(self._deleted_at) > _MAX_DELETED_REMEMBERED:
            del self._deleted_at[next(iter(self._deleted_at))]
        if old is not None:
            self._on_change(old, None)
