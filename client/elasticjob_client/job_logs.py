"""What the members of a job write, as one series of lines: so far, or until the job has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import get_job
from elasticjob_client.logs import LogLine, LogOptions, log_line, read_log
from elasticjob_client.logs_follow import LogFollower
from elasticjob_client.members import Choice, chosen_pods, job_pods


async def job_logs(
    cluster: Cluster,
    name: str,
    choice: Choice,
    options: LogOptions,
    *,
    follow: bool,
    tell: Callable[[str], None],
) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of the members that are meant, one member after the other.

    With `follow` as they are written.
    `tell` is called with what a user should know of them, such as that no ranks are known.

    Raises:
        NoSuchObject: there is no such job.
        ClientError: there is no such member, or a log cannot be read.
    """
    job = await get_job(cluster, name)
    if follow:
        await job_pods(cluster, job)  # so that a missing right is said once
        async with aclosing(LogFollower(cluster, job, choice, options, tell).lines()) as followed:
            async for each in followed:
                yield each
        return
    pods, ranks = await chosen_pods(cluster, job, choice)
    if choice.needs_ranks and not ranks:
        tell(f"no ranks are known: {', '.join(pod.name for pod in pods[:8])} by index")
    for pod in pods:
        if not pod.has_begun and not options.previous:
            tell(f"pod {pod.name} has not begun yet")
            continue
        async with aclosing(read_log(cluster, pod, options)) as lines:
            async for text in lines:
                yield log_line(pod, ranks, text)
