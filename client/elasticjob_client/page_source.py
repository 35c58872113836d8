"""Gets the data of a job's page from the job's master, or from the answers that it stored."""

from __future__ import annotations

import asyncio
import json
import ssl
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp
import msgspec
from elasticjob_api import names
from elasticjob_dashboard.data import Sections, page_sections, sections_of
from elasticjob_kube.connection import ClosingConnector

from elasticjob_client.answers import stored_master
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnavailable, MasterUnreachable
from elasticjob_client.jobs import get_job
from elasticjob_client.master import MasterEndpoint, TokenRefused, reach_master

_DATA = "/status"
_SECONDS = 5.0
_MAX_BYTES = 24 << 20
"""20,000 members with the longest names take 22.5 MiB; 10,000 with usual names, 5.3 MiB."""
LARGE_BYTES = 1 << 20
MOST_LARGE = 4
"""Pages of one server whose data is larger than that."""
_LARGE_SECONDS = 15.0
"""The time after its last answer in which a page counts; open pages get one every two seconds."""


class LargeAnswers:
    """The pages of a server whose masters have lately answered much, of which there are few."""

    def __init__(self) -> None:
        self._last: dict[object, float] = {}

    def admit(self, page: object) -> bool:
        """Return whether a page may have much data now."""
        now = asyncio.get_running_loop().time()
        recent = {each: at for each, at in self._last.items() if now - at < _LARGE_SECONDS}
        self._last = recent
        if page in recent or len(recent) < MOST_LARGE:
            recent[page] = now
            return True
        return False


@dataclass(frozen=True)
class Turns:
    """What the pages of one user do one at a time.

    Attributes:
        reading: reads an answer of a master.
        sending: reads the data and sends it as a whole.
        logs: reads the logs of all members of a job.
    """

    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    logs: asyncio.Lock = field(default_factory=asyncio.Lock)


class Source(ABC):
    """Gets the page's data from a master.

    A master may be anyone's program, so its answers are bounded, and each user's pages read one
    answer at a time.
    """

    def __init__(self, where: str, turns: Turns, large: LargeAnswers) -> None:
        self._where = where
        self._turns = turns
        self._large = large
        self._http = aiohttp.ClientSession(
            connector=ClosingConnector(), timeout=aiohttp.ClientTimeout(total=_SECONDS)
        )

    async def close(self) -> None:
        """End the connections."""
        await self._http.close()

    @abstractmethod
    async def read(self) -> Sections:
        """Return the page's data in sections. Raises `ClientError` if there is none."""

    async def sections(self) -> Sections:
        """Return the page's data in sections; `problem` says why there is none now."""
        try:
            return {**await self.read(), "problem": b"null"}
        except ClientError as error:
            return {"problem": json.dumps(str(error)).encode()}

    async def _request(self, endpoint: MasterEndpoint) -> Sections:
        where = self._where
        try:
            async with self._http.get(
                f"https://{endpoint.address}{_DATA}",
                headers={"Authorization": f"Bearer {endpoint.token}"},
                ssl=ssl.create_default_context(cadata=endpoint.authority.decode()),
                server_hostname=names.TLS_SERVER_NAME,
                allow_redirects=False,
            ) as answer:
                if answer.status == 401:
                    raise TokenRefused(f"{where} does not accept this job's token")
                if answer.status != 200:
                    raise ClientError(f"{where} answered {answer.status} to GET {_DATA}")
                async with self._turns.reading:
                    body = await self._bounded(answer, where)
                    return await asyncio.to_thread(sections_of, body)
        except msgspec.DecodeError as error:
            raise ClientError(f"{where} answered what is no page's data: {error}") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise MasterUnreachable(
                f"{where} can't be reached at {endpoint.address}: {reason}"
            ) from error

    async def _bounded(self, answer: aiohttp.ClientResponse, where: str) -> bytes:
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > _MAX_BYTES:
                raise ClientError(f"{where} answered more than {_MAX_BYTES} bytes")
            if len(body) > LARGE_BYTES and not self._large.admit(self):
                raise ClientError(
                    f"{where} answered more than {LARGE_BYTES} bytes, while {MOST_LARGE} others "
                    "do: close one of these pages"
                )
        return bytes(body)


class JobSource(Source):
    """Gets the data from the job's master, or from the answers that it stored.

    If the present master no longer answers, the next one is looked up.
    """

    def __init__(self, cluster: Cluster, job: str, turns: Turns, large: LargeAnswers) -> None:
        super().__init__(f"the master of {cluster.namespace}/{job}", turns, large)
        self._cluster = cluster
        self._job = job
        self._endpoint: MasterEndpoint | None = None
        self._way = AsyncExitStack()

    async def close(self) -> None:
        """End the connections."""
        await self._way.aclose()
        await super().close()

    async def read(self) -> Sections:
        """Return the page's data in sections. Raises `ClientError` if there is none."""
        try:
            return await self._from_master()
        except (MasterUnavailable, MasterUnreachable) as problem:
            stored = await stored_master(self._cluster, self._job, problem)
        return page_sections(stored.answers, ended=True)

    async def _from_master(self) -> Sections:
        if self._endpoint is not None:
            try:
                return await self._request(self._endpoint)
            except (MasterUnreachable, TokenRefused):
                self._endpoint = None
                await self._way.aclose()

        async def connect(endpoint: MasterEndpoint, _: AsyncExitStack) -> Sections:
            answer = await self._request(endpoint)
            self._endpoint = endpoint
            return answer

        return await reach_master(
            self._cluster,
            await get_job(self._cluster, self._job),
            connect,
            self._way,
            port=names.HTTP_PORT,
        )


class EndpointSource(Source):
    """Gets the data from the one master at an address, such as that of a run on this machine."""

    def __init__(self, endpoint: MasterEndpoint, where: str) -> None:
        super().__init__(where, Turns(), LargeAnswers())
        self._endpoint = endpoint

    async def read(self) -> Sections:
        """Return the page's data in sections. Raises `ClientError` if there is none."""
        return await self._request(self._endpoint)
