"""Reads the logs of a job's pods for its page: the last lines of one pod, or those of all members.

Both use the rights of the page's user. The lines of all members are sent as text while they are
read, so that neither their number nor their length takes memory here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TypedDict

from aiohttp import web
from elasticjob_api.transports import abort

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NotAllowed
from elasticjob_client.jobs import get_job
from elasticjob_client.logs import LogOptions, read_log
from elasticjob_client.members import Choice, job_pods, why_none

MOST_LINES = 200
LONGEST_LINE = 1000
_LOG_SECONDS = 10.0
_SEND_SECONDS = 10.0
_SENT_BYTES = 65_536
_NOTE = "elasticjob: "
"""Begins a line that is no member's; no pod has such a name."""


class LastLines(TypedDict):
    """The last lines, and why there are no more; `problem` is empty if there is none."""

    lines: list[str]
    problem: str


async def last_lines(cluster: Cluster, job: str, pod: str) -> LastLines:
    """Return the last lines of a pod's log, shortened.

    Args:
        cluster: its user may get the job, list its pods and read their logs.
        job: its name.
        pod: the name of one of its pods; of others, nothing is read.
    """
    lines: deque[str] = deque(maxlen=MOST_LINES)
    problem = ""
    try:
        async with asyncio.timeout(_LOG_SECONDS):
            found = await get_job(cluster, job)
            pods = await job_pods(cluster, found)
            chosen = next((each for each in pods if each.name == pod), None)
            if chosen is None:
                raise ClientError(why_none(found, pods, Choice(pod=pod[:253])))
            async with aclosing(
                read_log(cluster, chosen, LogOptions(tail=MOST_LINES))
            ) as found_lines:
                async for line in found_lines:
                    lines.append(line[:LONGEST_LINE])
    except ClientError as error:
        problem = str(error)
    except TimeoutError:
        problem = f"the log of {pod} was not read within {_LOG_SECONDS:.0f} s"
    return {"lines": list(lines), "problem": problem}


async def send_logs(
    cluster: Cluster, job: str, request: web.Request, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send the lines of all members, each after its pod's name; `find` names a text that is in all.

    What cannot be read is a line that begins with `elasticjob: `. A reader that does not read is
    disconnected.
    """
    find = request.query.get("find", "")
    response = web.StreamResponse(headers=headers)
    response.content_type = "text/plain"
    await response.prepare(request)
    unsent = bytearray()

    async def send() -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await response.write(bytes(unsent))
        unsent.clear()

    with suppress(ConnectionError):
        try:
            async with aclosing(_lines(cluster, job, find.casefold())) as lines:
                async for line in lines:
                    if request.transport is None:  # the reader has gone
                        return response
                    unsent += line.encode(errors="replace") + b"\n"
                    if len(unsent) > _SENT_BYTES:
                        await send()
            await send()
            await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                abort(request.transport)
    return response


async def _lines(cluster: Cluster, job: str, find: str) -> AsyncGenerator[str, None]:
    """Yield the lines of all members that contain a text, in lower case, and what is missing."""
    try:
        found = await get_job(cluster, job)
        pods = await job_pods(cluster, found)
        every = Choice(every=True)
        members = every.of(pods, {})
        if not members:
            raise ClientError(why_none(found, pods, every))
    except ClientError as error:
        yield _note(error)
        return
    for pod in members:
        if not pod.has_begun:
            continue
        try:
            async with aclosing(read_log(cluster, pod, LogOptions())) as lines:
                async for line in lines:
                    if find in line.casefold():
                        yield f"{pod.name} {line}"
        except ClientError as error:  # such as a pod that was deleted meanwhile
            yield _note(error)
            if isinstance(error, NotAllowed):
                return


def _note(error: ClientError) -> str:
    return f"{_NOTE}{' '.join(str(error).split())}"
