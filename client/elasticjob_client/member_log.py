"""Reads the last lines of one member's log, in a bounded size, for the job's page."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TypedDict

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import get_job
from elasticjob_client.logs import LogOptions, read_log
from elasticjob_client.members import Choice, job_pods, why_none

MOST_LINES = 200
LONGEST_LINE = 1000
_SECONDS = 10.0


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
        async with asyncio.timeout(_SECONDS):
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
        problem = f"the log of {pod} was not read within {_SECONDS:.0f} s"
    return {"lines": list(lines), "problem": problem}
