"""The informer against a collection that answers what the test says.

Old news, bad objects, and watches that break.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from elasticjob_api.meta import Json
from elasticjob_kube import informer as informers
from elasticjob_kube.errors import Expired, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import WatchEvent


class Metadata(msgspec.Struct, rename="camel"):
    """The cached metadata."""

    uid: str
    resource_version: str
    labels: dict[str, str] = {}


class Thing(msgspec.Struct):
    """An object."""

    metadata: Metadata


class Collection:
    """The session, with one collection in it.

    Each watch takes the next script: events, then an error or an end.
    """

    def __init__(self, *watches: list[Json | KubeError]) -> None:
        self.items: list[Json] = []
        self.version = "1"
        self.watches = list(watches)
        self.lists = 0
        self.refusals: list[KubeError] = []
        """The errors of the lists after the first one; later lists succeed."""
        self.all_read = asyncio.Event()

    async def list(self, *_: Any, as_type: type[Any], limit: int | None = None, **__: Any) -> Any:
        if limit is not None:
            page = {"metadata": {"resourceVersion": self.version}, "items": self.items[:limit]}
            return msgspec.json.decode(msgspec.json.encode(page), type=as_type)
        self.lists += 1
        if self.lists > 1 and self.refusals:
            raise self.refusals.pop(0)
        page = {"metadata": {"resourceVersion": self.version}, "items": self.items}
        return msgspec.json.decode(msgspec.json.encode(page), type=as_type)

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        if not self.watches:
            self.all_read.set()
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, KubeError):
                raise event
            version = int(event["object"]["metadata"]["resourceVersion"])
            self.version = str(max(int(self.version), version))
            yield msgspec.json.decode(msgspec.json.encode(event), type=WatchEvent)


def thing(uid: str, version: int, **labels: Any) -> Json:
    return {
        "metadata": {"uid": uid, "name": uid, "resourceVersion": str(version), "labels": labels}
    }


def event(kind: str, uid: str, version: int, **labels: Any) -> Json:
    return {"type": kind, "object": thing(uid, version, **labels)}


async def informer_versions(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Run an informer until all scripted watches have ended; return its versions by UID."""
    monkeypatch.setattr(informers, "_BACK_OFF_SECONDS", (0.0, 0.001))
    cache: dict[str, int] = {}

    def changed(before: Thing | None, after: Thing | None) -> None:
        if after is not None:
            cache[after.metadata.uid] = int(after.metadata.resource_version)
        elif before is not None:
            del cache[before.metadata.uid]

    informer: Informer[Thing] = Informer(collection, PODS, Thing, on_change=changed)  # type: ignore[arg-type]
    running = asyncio.create_task(informer.run())
    reading = asyncio.create_task(collection.all_read.wait())
    async with asyncio.timeout(10):
        await asyncio.wait([running, reading], return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    if running.done():
        running.result()
    running.cancel()
    await asyncio.wait([running, reading])
    return cache


@pytest.mark.guarantee("unreadable-object")
async def test_an_unreadable_object_hides_no_other_and_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = event("MODIFIED", "a", 5, bad=7)
    collection = Collection([bad, event("ADDED", "b", 6), event("ADDED", "c", 7, bad=7)])
    collection.items = [thing("a", 1), thing("z", 1, bad=7)]
    assert await informer_versions(collection, monkeypatch) == {"a": 1, "b": 6}


async def test_an_unreadable_object_stays_cached_and_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collection = Collection(
        [event("ADDED", "a", 2), event("ADDED", "b", 3), Expired(410, "Expired", "")], []
    )
    collection.watches[1] = [event("DELETED", "b", 9, bad=7)]
    collection.items = [thing("a", 4, bad=7), thing("b", 3)]
    collection.version = "5"
    assert await informer_versions(collection, monkeypatch) == {"a": 2}


@pytest.mark.guarantee("repeated-or-stale-plans")
async def test_an_older_version_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection(
        [
            event("ADDED", "a", 5),
            event("MODIFIED", "a", 4),
            event("DELETED", "b", 8),
            event("ADDED", "b", 7),
        ]
    )
    assert await informer_versions(collection, monkeypatch) == {"a": 5}


@pytest.mark.guarantee("errors-have-one-meaning", "watch-cut-or-expired")
async def test_a_broken_watch_resumes_and_an_expired_one_lists_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collection = Collection(
        [event("ADDED", "a", 2), Refused(403, "Forbidden", "")], [event("ADDED", "b", 3)], []
    )
    assert await informer_versions(collection, monkeypatch) == {"a": 2, "b": 3}
    assert collection.lists == 1
    collection = Collection([event("ADDED", "a", 2), Expired(410, "Expired", "")])
    collection.version = "9"
    assert await informer_versions(collection, monkeypatch) == {}
    assert collection.lists > 1


@pytest.mark.guarantee("kueue-not-installed")
async def test_a_kind_that_is_no_longer_served_is_logged_once_and_watched_when_it_is_served_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    gone = NotFound(404, "", "404 page not found")
    collection = Collection(
        [event("ADDED", "a", 2), gone], [event("ADDED", "c", 8), gone], [event("ADDED", "d", 11)]
    )
    starting = TryLater(429, "TooManyRequests", "storage is (re)initializing")
    collection.refusals = [gone, starting, gone, starting]
    collection.items = [thing("b", 7)]
    collection.version = "8"
    assert await informer_versions(collection, monkeypatch) == {"b": 7, "d": 11}
    said = [
        record.getMessage().partition(": ")[2]
        for record in caplog.records
        if "serve" in record.getMessage()
    ]
    once = ["the cluster does not serve them; trying again", "the cluster serves them again"]
    assert said == [*once, *once], "each time that it goes, and that it comes back"


@pytest.mark.guarantee("storage-restored")
@pytest.mark.parametrize("version", ["4", "1000"], ids=["backwards", "revision-bumped"])
async def test_a_collection_that_was_restored_from_a_backup_is_listed_again(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection()
    backup = [thing("a", 2), thing("b", 3)]
    events: list[Json | KubeError] = [
        event("MODIFIED", "a", 7),
        event("DELETED", "b", 8),
        event("ADDED", "c", 9),
    ]
    end: KubeError = TryLater(503, "", "no connection")
    if version == "1000":
        end = Expired(410, "Expired", "")  # as by `etcdutl snapshot restore --mark-compacted`
    collection.watches = [events, [end], [event("MODIFIED", "a", 5)]]
    collection.items = [thing("a", 2), thing("b", 3)]
    collection.version = "4"
    watch = collection.watch

    async def restoring(*args: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        if collection.watches[:1] == [[end]]:
            collection.items = backup
            collection.version = version
        async for each in watch(*args, **options):
            yield each

    monkeypatch.setattr(collection, "watch", restoring)
    if version == "1000":
        del collection.watches[2]
        assert await informer_versions(collection, monkeypatch) == {"a": 2, "b": 3}
    else:
        assert await informer_versions(collection, monkeypatch) == {"a": 5, "b": 3}


@pytest.mark.guarantee("storage-restored")
@pytest.mark.parametrize(("status", "trusted"), [(0, False), (410, False), (429, True)])
async def test_what_is_cached_is_not_trusted_after_a_lost_watch_until_the_storage_is_checked(
    status: int, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Expired(status, "", "") if status == 410 else TryLater(status, "", "")
    collection = Collection([error])
    informer: Informer[Thing] = Informer(
        collection,  # type: ignore[arg-type]
        PODS,
        Thing,
        on_change=lambda _, __: None,
    )
    monkeypatch.setattr(informers, "_BACK_OFF_SECONDS", (0.0,))
    asked: list[bool] = []
    answer = collection.list

    async def noted(*args: Any, **options: Any) -> Any:
        asked.append(informer.is_trusted)
        return await answer(*args, **options)

    monkeypatch.setattr(collection, "list", noted)
    running = asyncio.create_task(informer.run())
    async with asyncio.timeout(10):
        await collection.all_read.wait()
    assert asked == [True, trusted]
    assert informer.is_trusted
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("end", [[], [Expired(410, "Expired", "")]], ids=["ended", "expired"])
async def test_watches_that_end_at_once_restart_after_a_pause(
    end: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", slept)
    await informer_versions(Collection(*([list(end)] * 5)), monkeypatch)
    assert pauses == [0.0, 0.001, 0.001, 0.001, 0.001]
