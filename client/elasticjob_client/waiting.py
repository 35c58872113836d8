"""Waits for objects, through broken connections and restarts of the API server.

A job is waited for until it reaches a milestone: a phase, its end, or a step of its training.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TypeVar, get_args

import msgspec
from elasticjob_api.elasticjob import ElasticJob, Phase
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, Resource

from elasticjob_client.cluster import Cluster, explained
from elasticjob_client.errors import JobEnded, NoSuchObject, NotInTime, WrongArgument
from elasticjob_client.jobs import end_of, read

T = TypeVar("T")
_PHASES: tuple[Phase, ...] = get_args(Phase)
STEP = re.compile(r"step=([0-9]{1,16})")
_RETRY_SECONDS = 1.0


def parse_phase(text: str, *, others: str = "") -> Phase:
    """Return the phase with this name, in upper or lower case.

    Raises `WrongArgument`, whose message lists the phases and `others`.
    """
    for phase in _PHASES:
        if phase.casefold() == text.casefold():
            return phase
    known = ", ".join(each.lower() for each in _PHASES)
    raise WrongArgument(f"{text[:40]!r} is not a phase of a job: give {known}{others}")


def parse_milestone(text: str) -> Callable[[ElasticJob], bool]:
    """Return a function that checks whether a job has reached a milestone.

    Args:
        text: a phase such as running, `ended`, or step=N.

    Raises:
        WrongArgument: there is no such milestone.
    """
    if match := STEP.fullmatch(text):
        step = int(match[1])
        return lambda job: job.status.progress is not None and job.status.progress.step >= step
    if text.casefold() == "ended":
        return lambda job: job.status.phase in ENDED
    phase = parse_phase(text, others=", ended, or step=N")
    return lambda job: (job.status.phase or "Pending") == phase


async def wait_for(
    cluster: Cluster, name: str, milestone: str, *, seconds: float | None = None
) -> ElasticJob:
    """Wait until a job has reached a milestone, and return the job.

    Raises:
        NoSuchObject: the job does not exist or is deleted.
        JobEnded: the job has ended without reaching the milestone.
        NotInTime: the time is over.
        ClientError: there is no such milestone, or the user may not watch the job.
    """
    reached = parse_milestone(milestone)

    def check(found: Json) -> ElasticJob | None:
        job = read(found, ElasticJob)
        if reached(job):
            return job
        if job.status.phase in ENDED:
            raise JobEnded(end_of(job))
        return None

    return await wait_until(cluster, ELASTIC_JOBS, name, check, seconds=seconds)


async def wait_until(
    cluster: Cluster,
    resource: Resource,
    name: str,
    check: Callable[[Json], T | None],
    *,
    seconds: float | None = None,
) -> T:
    """Call `check` on the present object and after each change; return its first result.

    Also after `seconds`, `check` has been called on the present object once, unless the API server
    does not answer.

    Raises:
        NoSuchObject: the object does not exist or is deleted.
        NotInTime: the time is over; `seconds=None`: no bound.
        ClientError: the user may not watch the object, or `check` has raised it.
    """
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    seen: Json = {}

    def look(found: Json) -> T | None:
        nonlocal seen
        seen = found
        return check(found)

    with explained(cluster, resource, name):
        # The time-out does not end the first look, so that 0 seconds ask for the present state.
        with suppress(TryLater):
            result = look(await cluster.kube.get(resource, cluster.namespace, name))
            if result is not None:
                return result
        try:
            async with asyncio.timeout_at(end):
                while True:
                    try:
                        return await _first(cluster, resource, name, look)
                    except TryLater:
                        await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError as error:
            what = f"{resource.kind} {cluster.namespace}/{name}"
            message = f"{what}: what was waited for has not come within {seconds:g} s"
            if phase := (seen.get("status") or {}).get("phase"):
                message += f"; it is {phase}"
            raise NotInTime(message) from error


async def _first(
    cluster: Cluster, resource: Resource, name: str, check: Callable[[Json], T | None]
) -> T:
    """Return the first result of `check`; raises KubeError when the connection breaks."""
    while True:
        found = await cluster.kube.get(resource, cluster.namespace, name)
        if (result := check(found)) is not None:
            return result
        watch = cluster.kube.watch(
            resource,
            cluster.namespace,
            resource_version=found["metadata"]["resourceVersion"],
            field_selector=f"metadata.name={name}",
        )
        async with aclosing(watch) as events:  # the API server ends each watch after a while
            async for event in events:
                if event.type == "DELETED":
                    raise NoSuchObject(f"{resource.kind} {cluster.namespace}/{name} was deleted")
                if event.type == "BOOKMARK":
                    continue
                if (result := check(msgspec.json.decode(event.object))) is not None:
                    return result
