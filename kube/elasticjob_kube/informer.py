"""A list-and-watch cache of one collection, decoded to small structs.

The cache may lag behind the API server, but never goes back: an older version of an object never
replaces a newer one. Every list removes the objects that it does not contain. A writer puts the
server's answers to its own writes into the cache (`observe`, `forget`), so that it reads what it
wrote.

The one exception is a cluster whose storage was restored from a backup. Its resource versions run
backwards, and a watch from a later version would report nothing. So after a failed watch the
informer asks for the present version. If it is an earlier one, everything is listed again, and
replaces the cache.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from elasticjob_kube.answers import UNDECODABLE
from elasticjob_kube.errors import Expired, KubeError, NotFound
from elasticjob_kube.resources import Resource
from elasticjob_kube.salvage import MAX_DEPTH, was_cut
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
_BACK_OFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses after consecutive failures; the last one is repeated."""
_SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event counts as failed. A longer one resets the back-off."""
_BUSY = 429
"""From this status on an error is that of a running server, which was not restored just now."""
_MAX_DELETED_REMEMBERED = 10_000
"""The number of deleted objects whose last version is kept: a late answer to a write must not bring
one of them back.
"""


class Metadata(Protocol):
    """The fields of an object's metadata that the cache reads."""

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
    """The position of a watch: an object with nothing but a resource version."""

    metadata: _Version


class Identity(_Version, frozen=True):
    """The identity of an object that cannot be decoded."""

    uid: str
    name: str = ""
    namespace: str = ""


class _Identified(msgspec.Struct):
    metadata: Identity


_decode_identified = msgspec.json.Decoder(_Identified).decode


class _Unread(msgspec.Struct, frozen=True):
    """An object that cannot be decoded, and the reason."""

    metadata: Identity
    why: str


class _Page(msgspec.Struct):
    metadata: _Version
    items: list[msgspec.Raw] | None = None


T = TypeVar("T", bound=Cached)
Change = Callable[[T | None, T | None], None]
"""Called with (before, after): before is None for a new object, after for a deleted one."""
Unreadable = Callable[[Identity, str], None]
"""Called with an object that cannot be decoded, and the reason; once per reason."""


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
        only: Callable[[str], bool] | None = None,
        on_change: Change[T],
        on_unreadable: Unreadable = lambda _, __: None,
        on_rewound: Callable[[], None] = lambda: None,
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
        self._on_rewound = on_rewound
        self._only = only
        """Whether to cache the objects of a namespace; None: those of all."""
        self._newest = 0
        """The latest version that was received, of the collection or of an object."""
        self._unread: dict[str, str] = {}
        self._objects: dict[str, T] = {}
        self._deleted_at: dict[str, int] = {}
        self._is_missing = False
        self.synced = asyncio.Event()
        self.is_trusted = True
        """Whether no connection was lost since the storage was last known not to be restored."""

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, uid: str) -> T | None:
        """Return the object with this UID as last observed, or None."""
        return self._objects.get(uid)

    async def run(self) -> None:
        """List, then watch, for ever.

        A broken watch resumes where it ended; after an expired one the collection is listed again.
        If the cluster does not serve the kind, the informer tries again and logs this once.
        """
        loop = asyncio.get_running_loop()
        version = ""
        failures = 0
        while True:
            failure: object = None
            started = loop.time()
            try:
                if failures and version and await self._is_rewound():
                    version = ""
                if not version:
                    version = await self._list()
                    self.synced.set()
                    self._log_missing(is_missing=False)
                self.is_trusted = True
                async for event in self._kube.watch(
                    self._resource, self._namespace, resource_version=version, **self._selectors
                ):
                    version = self._apply(event.type, event.object) or version
                    failures = 0
                if loop.time() - started < _SHORTEST_WATCH_SECONDS:
                    failure = "it ended at once"
            except KubeError as error:
                if isinstance(error, Expired | NotFound):
                    version = ""
                failure = error
            if loop.time() - started >= _SHORTEST_WATCH_SECONDS:
                failures = 0  # the watch worked, though it had no event
            if failure is None:
                continue
            if isinstance(failure, KubeError) and failure.status < _BUSY:
                self.is_trusted = False
            pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
            failures += 1
            if isinstance(failure, NotFound):
                self._log_missing(is_missing=True)
            else:
                log.warning("watch of %s: %s; again in %g s", self._resource.plural, failure, pause)
            await asyncio.sleep(pause)

    def _log_missing(self, *, is_missing: bool) -> None:
        """Log once whether the cluster serves the kind: it may be missing for days."""
        if is_missing == self._is_missing:
            return
        self._is_missing = is_missing
        plural = self._resource.plural
        if is_missing:
            log.warning("watch of %s: the cluster does not serve them; trying again", plural)
        else:
            log.info("watch of %s: the cluster serves them again", plural)

    async def refresh(self) -> None:
        """List now: a writer that got no answer must know the result before it decides again."""
        await self._list()

    def observe(self, item: T) -> None:
        """Cache the server's answer to a write, ahead of the watch."""
        self._put(item)

    def keep(self, item: T) -> None:
        """Cache an object that exists although the watch has reported it as deleted.

        The selectors no longer match it, so no watch reports it. The next list, or `forget`,
        removes it.
        """
        self._deleted_at.pop(item.metadata.uid, None)
        self._put(item)

    def forget(self, uid: str) -> None:
        """Remove an object that the server has reported as deleted, ahead of the watch."""
        if old := self._objects.get(uid):
            self._remove(uid, old.metadata.resource_version)

    async def _is_rewound(self) -> bool:
        """Return whether the collection has an earlier version than one received before."""
        newest = self._newest
        page = await self._kube.list(
            self._resource, self._namespace, as_type=_Page, limit=1, **self._selectors
        )
        return int(page.metadata.resource_version) < newest

    async def _list(self) -> str:
        newest = self._newest
        page = await self._kube.list(
            self._resource, self._namespace, as_type=_Page, **self._selectors
        )
        version = page.metadata.resource_version
        raws = (raw for raw in page.items or () if not self._version_left_out(raw))
        items = [item for item in map(self._read, raws) if item is not None]
        is_rewound = int(version) < newest or any(
            self._was_newer(item.metadata, newest) for item in items
        )
        if is_rewound:
            plural = self._resource.plural
            log.warning("watch of %s: the storage was restored; all are listed again", plural)
            self._on_rewound()
            self._deleted_at.clear()
            self._newest = 0
        self._newest = max(self._newest, int(version))
        listed = {item.metadata.uid for item in items}
        for uid, old in list(self._objects.items()):
            # An object that was written after the list was made exists, but is not in it.
            is_older = int(old.metadata.resource_version) <= int(version)
            if uid not in listed and (is_older or is_rewound):
                self._remove(uid, version)
        for uid in self._unread.keys() - listed:
            del self._unread[uid]
        for item in items:
            if is_rewound and not isinstance(item, _Unread):
                self._store(item)
            else:
                self._take(item)
        return version

    def _was_newer(self, metadata: Metadata, newest: int) -> bool:
        """Return whether a later version than the listed one was cached before the list."""
        old = self._objects.get(metadata.uid)
        return old is not None and (
            int(metadata.resource_version) < int(old.metadata.resource_version) <= newest
        )

    def _apply(self, kind: str, raw: msgspec.Raw) -> str | None:
        if kind == "BOOKMARK":
            version = msgspec.json.decode(raw, type=_Bookmark).metadata.resource_version
            self._newest = max(self._newest, int(version))
            return version
        if version := self._version_left_out(raw):
            self._newest = max(self._newest, int(version))
            return version
        item = self._read(raw)
        if item is None:
            return None
        if kind == "DELETED":
            self._remove(item.metadata.uid, item.metadata.resource_version)
        else:
            self._take(item)
        return item.metadata.resource_version or None

    def _version_left_out(self, raw: msgspec.Raw) -> str:
        """Return the version of an object that is not cached for its namespace; otherwise empty.

        Nothing else of it is decoded, which takes less time than its other values.
        """
        if self._only is None:
            return ""
        try:
            metadata = _decode_identified(raw).metadata
        except UNDECODABLE:
            return ""
        return "" if self._only(metadata.namespace) else metadata.resource_version

    def _read(self, raw: msgspec.Raw) -> T | _Unread | None:
        """Decode an object, or at least its identity. Return None if neither can be decoded."""
        try:
            if not was_cut(raw):
                return self._decode(raw)
            why = f"a value in it is nested more than {MAX_DEPTH} levels deep, or is not valid text"
        except UNDECODABLE as error:
            why = str(error)
        try:
            return _Unread(_decode_identified(raw).metadata, why)
        except UNDECODABLE as error:
            log.warning("a %s cannot be read and is left alone: %s", self._resource.kind, error)
            return None

    def _take(self, item: T | _Unread) -> None:
        """Cache an object; one that cannot be decoded stays cached as it was last read."""
        if not isinstance(item, _Unread):
            self._put(item)
            return
        metadata = item.metadata
        if self._is_old(metadata) or self._unread.get(metadata.uid) == item.why:
            return
        self._unread[metadata.uid] = item.why
        kind = self._resource.kind
        log.warning("%s %s cannot be read and is left alone: %s", kind, metadata.name, item.why)
        self._on_unreadable(metadata, item.why)

    def _put(self, item: T) -> None:
        if not self._is_old(item.metadata):
            self._store(item)

    def _store(self, item: T) -> None:
        uid = item.metadata.uid
        old = self._objects.get(uid)
        self._unread.pop(uid, None)
        self._newest = max(self._newest, int(item.metadata.resource_version))
        self._objects[uid] = item
        self._on_change(old, item)

    def _is_old(self, metadata: Metadata) -> bool:
        """Return whether this version or a later one is cached, or was deleted."""
        uid = metadata.uid
        version = int(metadata.resource_version)
        old = self._objects.get(uid)
        if old is not None and int(old.metadata.resource_version) >= version:
            return True
        # The answer to a create may come after the event of the deletion.
        return self._deleted_at.get(uid, -1) >= version

    def _remove(self, uid: str, version: str) -> None:
        old = self._objects.pop(uid, None)
        self._unread.pop(uid, None)
        self._deleted_at[uid] = int(version)
        self._newest = max(self._newest, int(version))
        if len(self._deleted_at) > _MAX_DELETED_REMEMBERED:
            del self._deleted_at[next(iter(self._deleted_at))]
        if old is not None:
            self._on_change(old, None)
