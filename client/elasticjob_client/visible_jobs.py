"""Reads the jobs that a user may list, in all namespaces, and what the user may change there.

Each request has the user's credentials, so the API server decides. A user who may not list the jobs
of the whole cluster gets those of each namespace where that is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_dashboard.jobs import MOST_JOBS, Rights, VisibleJobs
from elasticjob_kube.errors import KubeError, Refused
from elasticjob_kube.resources import ELASTIC_JOBS, NAMESPACES, SCALE_PLANS, Resource

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.rights import REVIEWS, Right

T = TypeVar("T")
_UNKNOWN_USER = 401
_FORBIDDEN = 403
_MOST_PLANS = 2000
_MOST_NAMESPACES = 200
_RECHECK_SECONDS = 60.0
"""How long namespaces and rights are believed. The API server checks each change anyway."""
_SHARE = 10
"""A reading that takes long is used for this many times as long, so that it loads nothing."""
_SUSPEND = Right("patch", ELASTIC_JOBS)
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
    """

    def __init__(
        self, cluster: Cluster, namespace: str | None, *, elsewhere: Sequence[str] = ()
    ) -> None:
        self._cluster = cluster
        self._chosen = namespace
        self._elsewhere = elsewhere
        self.is_refused = False
        """Whether the API server does not know the user any more."""
        self._places: Sequence[str] = ()
        self._note = ""
        self._rights: dict[str, Rights] = {}
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
                self._rights = {}
                self._recheck_at = started + _RECHECK_SECONDS
            self._latest = await self._read()
        except KubeError as error:
            self._recheck_at = 0.0
            self.is_refused = error.status == _UNKNOWN_USER
            kind = Unauthorized if self.is_refused else ClientError
            raise kind(f"the jobs cannot be listed: {error.message}") from error
        self._read_again_at = now() + _SHARE * (now() - started)
        return self._latest

    async def _read(self) -> VisibleJobs:
        listings = [self._list(ELASTIC_JOBS, place, MOST_JOBS) for place in self._places]
        pages = [page for page in await asyncio.gather(*listings) if page is not None]
        if not pages:  # the rights were taken away since they were looked up
            self._recheck_at = 0.0
            raise ClientError("the jobs cannot be listed any more: looking for others")
        raws = [raw for page in pages for raw in page.items or ()]
        jobs = _readable(raws, ElasticJob)
        notes = [self._note] if self._note else []
        if len(jobs) < len(raws):
            notes.append(f"{len(raws) - len(jobs)} jobs cannot be read: is this command older?")
        plans: list[ScalePlan] = []
        for listed in await asyncio.gather(
            *(self._list(SCALE_PLANS, place, _MOST_PLANS) for place in self._places)
        ):
            if listed is None:
                notes.append("you may not list the plans of all these jobs")
                continue
            plans += _readable(listed.items or (), ScalePlan)
        return VisibleJobs(
            jobs,
            plans,
            await self._rights_in({job.metadata.namespace for job in jobs}),
            sum(page.metadata.remaining_item_count for page in pages),
            tuple(dict.fromkeys(notes)),
        )

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
        except Refused as error:
            if error.status != _FORBIDDEN:
                raise
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
        return await self._list(ELASTIC_JOBS, place, 1) is not None

    async def _demand(self, namespace: str) -> None:
        """Raise the API server's error if the jobs of a namespace cannot be listed."""
        await self._cluster.kube.list(ELASTIC_JOBS, namespace, limit=1, as_type=_Page)

    async def _list(self, resource: Resource, place: str, limit: int) -> _Page | None:
        """Return the first objects, or None if the user may not list them."""
        try:
            return await self._cluster.kube.list(
                resource, place or None, limit=limit, as_type=_Page
            )
        except Refused as error:
            if error.status != _FORBIDDEN:
                raise
            return None

    async def _rights_in(self, namespaces: Iterable[str]) -> dict[str, Rights]:
        if _ALL not in self._rights:
            self._rights[_ALL] = await self._review(_ALL)
        everywhere = self._rights[_ALL]
        new = [each for each in namespaces if each not in self._rights]
        if everywhere != Rights(suspend=True, scale=True):
            found = await asyncio.gather(*map(self._review, new))
            self._rights.update(zip(new, found, strict=True))
        return {each: self._rights.get(each, everywhere) for each in namespaces}

    async def _review(self, namespace: str) -> Rights:
        may = [await self._may(right, namespace) for right in (_SUSPEND, _SCALE)]
        return Rights(*may)

    async def _may(self, right: Right, namespace: str) -> bool:
        answer = await self._cluster.kube.create(REVIEWS, None, right.review(namespace))
        return bool(answer["status"].get("allowed"))


def _readable(raws: Iterable[msgspec.Raw], as_type: type[T]) -> list[T]:
    found: list[T] = []
    for raw in raws:
        try:
            found.append(msgspec.json.decode(raw, type=as_type))
        except (msgspec.DecodeError, RecursionError):
            continue
    return found
