"""Reads or follows the log of one pod, by GET requests over the open session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from elasticjob_kube.errors import NotFound, Refused, TryLater
from elasticjob_kube.resources import PODS

from elasticjob_client.cluster import Cluster, explained
from elasticjob_client.errors import WrongArgument
from elasticjob_client.members import JobPod, Ranks

_RETRY_SECONDS = 1.0
_LONGEST_LINE = 1 << 20
"""Bytes; a longer line is cut in pieces."""
_BAD_REQUEST = 400
_DURATION = re.compile(r"([0-9]{1,9})(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class LogOptions:
    """Chooses lines of a container's log; None for all."""

    tail: int | None = None
    since_seconds: int | None = None
    previous: bool = False
    timestamps: bool = False


@dataclass(frozen=True)
class LogLine:
    """A line of a member's log.

    Attributes:
        pod: name of the pod.
        role: the member's role.
        index: the member's index in its role.
        rank: the rank in the present world; None if unknown, or outside of the world.
        text: without the line's end.
    """

    pod: str
    role: str
    index: int
    rank: int | None
    text: str


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as 90, 90s, 5m, 2h or 1d. Raises `WrongArgument`."""
    match = _DURATION.fullmatch(text)
    if match is None or not int(match[1]):
        raise WrongArgument(
            f"duration {text[:40]!r} is not valid: give seconds (90), or 30s, 5m, 2h, 1d"
        )
    return int(match[1]) * _UNITS[match[2] or "s"]


def log_line(pod: JobPod, ranks: Ranks, text: str) -> LogLine:
    """Return a line of a pod's log."""
    return LogLine(pod.name, pod.role, pod.index, ranks.get(pod.metadata.uid), text)


async def read_log(cluster: Cluster, pod: JobPod, options: LogOptions) -> AsyncGenerator[str, None]:
    """Yield the lines that a pod's container has written until now.

    Raises:
        NoSuchObject: the pod does not exist.
        ClientError: there is no such log.
    """
    async with aclosing(_lines(cluster, pod, _query(pod, options))) as lines:
        with explained(cluster, PODS, pod.name):
            async for line in lines:
                yield line


async def follow_log(
    cluster: Cluster, pod: JobPod, options: LogOptions
) -> AsyncGenerator[str, None]:
    """Yield the lines of a pod's container until it ends, also across broken connections.

    Raises:
        ClientError: the user may not read the log.
    """
    query = _query(pod, replace(options, timestamps=True))  # the next request starts at a time
    query["follow"] = "true"
    seen = Position()
    while True:
        repeated = replace(seen)
        try:
            async with aclosing(_lines(cluster, pod, query)) as lines:
                async for line in lines:
                    time, _, text = line.partition(" ")
                    if repeated.skips(time):
                        continue
                    seen.add(time)
                    yield line if options.timestamps else text
            return
        except NotFound:
            return
        except Refused as error:
            if error.status == _BAD_REQUEST:  # the container is deleted
                return
            with explained(cluster, PODS, pod.name):
                raise
        except TryLater:
            await asyncio.sleep(_RETRY_SECONDS)
        if seen.time:
            query.pop("tailLines", None)
            query.pop("sinceSeconds", None)
            query["sinceTime"] = seen.time


@dataclass
class Position:
    """The end of the lines that were read: the latest time, and the number of lines with it."""

    time: str = ""
    lines: int = 0

    def add(self, time: str) -> None:
        """Count a line as read."""
        self.lines = self.lines + 1 if time == self.time else 1
        self.time = time

    def skips(self, time: str) -> bool:
        """Return whether the next line, which has this time, was read before; count it off."""
        if time == self.time and self.lines:
            self.lines -= 1
            return True
        return time < self.time


def _query(pod: JobPod, options: LogOptions) -> dict[str, str]:
    query = {"container": pod.container}
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.since_seconds is not None:
        query["sinceSeconds"] = str(options.since_seconds)
    flags = {"previous": options.previous, "timestamps": options.timestamps}
    return query | {name: "true" for name, value in flags.items() if value}


async def _lines(cluster: Cluster, pod: JobPod, query: dict[str, str]) -> AsyncGenerator[str, None]:
    """Yield the lines of one answer. Raises KubeError."""
    path = PODS.path(cluster.namespace, pod.name, "log")
    rest = b""
    async with aclosing(cluster.kube.stream(path, params=query)) as parts:
        async for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
            if len(rest) > _LONGEST_LINE:
                yield rest.decode(errors="replace")
                rest = b""
    if rest:
        yield rest.decode(errors="replace")
