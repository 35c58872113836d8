"""What the members of a job write, as one series of lines: so far, or until the job has ended."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import get_job
from elasticjob_client.logs import LogLine, LogOptions, log_line, read_log
from elasticjob_client.logs_follow import LogFollower
from elasticjob_client.members import Choice, chosen_pods

log = logging.getLogger("elasticjob.client")


async def job_logs(
    cluster: Cluster, name: str, choice: Choice, options: LogOptions, *, follow: bool
) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of the members that are meant, one member after the other; with `follow` as they are written.

    Raises:
        NoSuchObject: there is no such job.
        ClientError: there is no such member, or a log cannot be read.
    """
    job = await get_job(cluster, name)
    if follow:
        async with aclosing(LogFollower(cluster, job, choice, options, log.info).lines()) as followed:
            async for each in followed:
                yield each
        return
    pods, ranks = await chosen_pods(cluster, job, choice)
    for pod in pods:
        if pod.has_begun:
            async with aclosing(read_log(cluster, pod, options)) as lines:
                async for text in lines:
                    yield log_line(pod, ranks, text)
