"""Reads the jobs that a user may list, in all namespaces, and what the user may change there.

Each request has the user's credentials, so the API server decides. A user who may not list the jobs
of the whole cluster gets those of each namespace where that is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.meta import describe_for_threads
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_dashboard.jobs import (
    MOST_JOBS,
    MOST_POOLS,
    Rights,
    ShownPool,
    VisibleJobs,
    shown_job,
    shown_plan,
    shown_pool,
)
from elasticjob_kube.errors import Forbidden, KubeError, NotFound, TooLarge
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    ELASTIC_POOLS,
    NAMESPACES,
    SCALE_PLANS,
    Resource,
)

from elasticjob_client.cluster import Cluster, failure_of
from elasticjob_client.errors import ClientError
from elasticjob_client.rights import REVIEWS, Right

T = TypeVar("T")
S = TypeVar("S")
describe_for_threads(ElasticJob, ScalePlan, ElasticPool)
_UNKNOWN_USER = 401
_MOST_PLANS = 2000
_MOST_OBJECTS = 4000
"""Of a kind, in all namespaces together."""
_MOST_BYTES = 16 << 20
"""Of an answer: 500 jobs of 32 KiB. An object may be as large as the API server takes, so of larger
ones fewer are read.
"""
_FEWER = 8
LISTS_AT_ONCE = 4
"""Answers with objects that a server reads at a time, for all its users."""
_MOST_NAMESPACES = 200
_RECHECK_SECONDS = 60.0
"""How long namespaces and rights are believed. The API server checks each change anyway."""
_SHARE = 10
"""A reading that takes long is used for this many times as long, so that it loads nothing."""
_PATCH = Right("patch", ELASTIC_JOBS)
_SCALE = Right("create", SCALE_PLANS)
_ALL = ""
"""In place of a namespace: all of them."""


class Unauthorized(ClientError):
    """The API server does not know the user: the token is wrong, or has expired."""


class _Page(msgspec.Struct, rename="camel"):
    class Metadata(msgspec.Struct, rename="camel"):
        remaining_item_count: int = 0

    metadata: Metadata
    items: list[msgspec.Raw] | None = None


class _Listed(NamedTuple, Generic[S]):
    """What is shown of the listed objects, and the numbers of the unreadable and the unread."""

    shown: Sequence[S]
    unreadable: int
    more: int


class _Named(msgspec.Struct):
    class Metadata(msgspec.Struct):
        name: str

    metadata: Metadata


class JobsReader:
    """The jobs as they were lately.

    Args:
        cluster: the user's session.
        namespace: the namespace to read; None for all in which the user may list jobs.
        elsewhere: the namespaces that are tried for a user who may not list namespaces; empty: the
            session's.
        turns: shared by the readers of a server, so that it holds few answers at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        *,
        elsewhere: Sequence[str] = (),
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self._cluster = cluster
        self._chosen = namespace
        self._elsewhere = elsewhere
        self._turns = turns or asyncio.Semaphore(LISTS_AT_ONCE)
        self.is_refused = False
        """Whether the API server does not know the user any more."""
        self._places: Sequence[str] = ()
        self._note = ""
        self._rights: dict[str, Rights] = {}
        self._rights_end = 0.0
        self._recheck_at = 0.0
        self._latest = VisibleJobs()
        self._read_again_at = 0.0

    async def read(self) -> VisibleJobs:
        """Return the jobs. Raises `ClientError` if none can be listed."""
        now = asyncio.get_running_loop().time
        started = now()
        if started < self._read_again_at:
            return self._latest
        try:
            if started >= self._recheck_at:
                self._places = await self._find_places()
                self._recheck_at = started + _RECHECK_SECONDS
            self._latest = await self._read()
        except KubeError as error:
            self._recheck_at = 0.0
            self.is_refused = error.status == _UNKNOWN_USER
            kind = Unauthorized if self.is_refused else failure_of(error)
            raise kind(f"the jobs cannot be listed: {error.message}") from error
        self._read_again_at = now() + _SHARE * (now() - started)
        return self._latest

    async def _read(self) -> VisibleJobs:
        share = _MOST_OBJECTS // len(self._places)
        listings = [
            self._list(ELASTIC_JOBS, place, min(MOST_JOBS, share), ElasticJob, shown_job)
            for place in self._places
        ]
        lists = [each for each in await asyncio.gather(*listings) if each is not None]
        if not lists:  # the rights were taken away since they were looked up
            self._recheck_at = 0.0
            raise ClientError("the jobs cannot be listed any more: looking for others")
        jobs = [job for each in lists for job in each.shown]
        notes = [self._note] if self._note else []
        if unreadable := sum(each.unreadable for each in lists):
            notes.append(f"{unreadable} jobs cannot be read: is this command older?")
        plans = await asyncio.gather(
            *(
                self._list(SCALE_PLANS, place, min(_MOST_PLANS, share), ScalePlan, shown_plan)
                for place in self._places
            )
        )
        pools = await asyncio.gather(*map(self._pools, self._places))
        if None in plans:
            notes.append("you may not list the plans of all these jobs")
        return VisibleJobs(
            jobs,
            [plan for each in plans if each is not None for plan in each.shown],
            [pool for each in pools for pool in each],
            await self.rights_in({job.namespace for job in jobs}),
            sum(each.more for each in lists),
            tuple(notes),
        )

    async def _pools(self, place: str) -> Sequence[ShownPool]:
        """Return the pools; none where the user may not list them, or the kind does not exist."""
        try:
            found = await self._list(ELASTIC_POOLS, place, MOST_POOLS, ElasticPool, shown_pool)
        except NotFound:
            return ()
        return () if found is None else found.shown

    async def _find_places(self) -> Sequence[str]:
        """Return where jobs can be listed: everywhere, or some namespaces."""
        self._note = ""
        if self._chosen is not None:
            await self._demand(self._chosen)
            return (self._chosen,)
        if await self._may_list(_ALL):
            return (_ALL,)
        try:
            found = await self._cluster.kube.list(
                NAMESPACES, metadata_only=True, limit=_MOST_NAMESPACES, as_type=_Page
            )
        except Forbidden:
            spaces = list(self._elsewhere) or [self._cluster.namespace]
            where = ", ".join(spaces[:5]) + (", …" if len(spaces) > 5 else "")
            self._note = f"only jobs of {where}: you may not list namespaces"
        else:
            if found.metadata.remaining_item_count:
                self._note = f"only jobs of the first {_MOST_NAMESPACES} namespaces"
            raws = found.items or ()
            spaces = [msgspec.json.decode(raw, type=_Named).metadata.name for raw in raws]
        allowed = await asyncio.gather(*map(self._may_list, spaces))
        places = [space for space, may in zip(spaces, allowed, strict=True) if may]
        if not places:
            await self._demand(spaces[0] if spaces else self._cluster.namespace)
        return places

    async def _may_list(self, place: str) -> bool:
        try:
            await self._demand(place)
        except Forbidden:
            return False
        return True

    async def _demand(self, place: str) -> None:
        """Raise the API server's error if the jobs of a namespace, or of all, cannot be listed."""
        await self._cluster.kube.list(ELASTIC_JOBS, place or None, limit=1, as_type=_Page)

    async def _list(
        self,
        resource: Resource,
        place: str,
        most: int,
        as_type: type[T],
        show: Callable[[T], S | None],
    ) -> _Listed[S] | None:
        """Return what is shown of the first objects, or None if the user may not list them.

        The objects are forgotten at once: those of many users would need much memory.
        """
        async with self._turns:
            while True:
                try:
                    page = await self._cluster.kube.list(
                        resource, place or None, limit=most, most_bytes=_MOST_BYTES, as_type=_Page
                    )
                    break
                except TooLarge:
                    most = most // _FEWER or 1
                except Forbidden:
                    return None
            more = page.metadata.remaining_item_count
            return await asyncio.to_thread(_listed, page.items or (), more, as_type, show)

    async def rights_in(self, namespaces: Iterable[str]) -> dict[str, Rights]:
        """Return what the user may change, at most a minute old. Raises `KubeError`."""
        now = asyncio.get_running_loop().time()
        if now >= self._rights_end:
            self._rights = {}
            self._rights_end = now + _RECHECK_SECONDS
        if _ALL not in self._rights:
            self._rights[_ALL] = await self._review(_ALL)
        everywhere = self._rights[_ALL]
        new = [each for each in namespaces if each not in self._rights]
        if everywhere != Rights(patch=True, scale=True):
            found = await asyncio.gather(*map(self._review, new))
            self._rights.update(zip(new, found, strict=True))
        return {each: self._rights.get(each, everywhere) for each in namespaces}

    async def _review(self, namespace: str) -> Rights:
        may = [await self._may(right, namespace) for right in (_PATCH, _SCALE)]
        return Rights(*may)

    async def _may(self, right: Right, namespace: str) -> bool:
        answer = await self._cluster.kube.create(REVIEWS, None, right.review(namespace))
        return bool(answer["status"].get("allowed"))


def _listed(
    raws: Iterable[msgspec.Raw], more: int, as_type: type[T], show: Callable[[T], S | None]
) -> _Listed[S]:
    """Return what is shown of objects, one after the other."""
    found: list[S] = []
    unreadable = 0
    for raw in raws:
        try:
            shown = show(msgspec.json.decode(raw, type=as_type))
        except (msgspec.DecodeError, RecursionError):
            unreadable += 1
            continue
        if shown is not None:
            found.append(shown)
    return _Listed(found, unreadable, more)
