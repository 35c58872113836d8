"""An ElasticPool in a chaos run: most jobs share room for few pods, and some of them are urgent.

An urgent job gets members of the others when it comes, and they get them back when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from elasticjob_api.meta import Json
from elasticjob_client.related import of_kind
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import ELASTIC_POOLS, PODS, PRIORITY_CLASSES
from elasticjob_kube.session import Kube

from tests.support.chaos.cluster import NAMESPACE
from tests.support.chaos.schedule import JobDraw

LABELS = {"shares": "pool"}
URGENT = "urgent"
MOST_PODS = 6
"""Each of three jobs has room for its master and a member."""
_NOT_COUNTED = ("migrate", "resources")
"""Requests whose new members do not wait for room (docs/pool.md)."""
_LOOK_SECONDS = 1.0
_MEMBER = re.compile(r"(job-\d+)-worker-")


@dataclass
class SharedPool:
    """The pool, and the check that its jobs never have more pods than it has room for.

    Attributes:
        jobs: the names of the jobs in it that exist and are not being deleted.
        looks: how often the pods were counted.
        most: the most pods that its jobs have had.
    """

    kube: Kube
    finding: Callable[[str], None]
    jobs: set[str] = field(default_factory=set)
    looks: int = 0
    most: int = 0

    async def create(self) -> None:
        """Create the pool and the priority class."""
        urgent = {"metadata": {"name": URGENT}, "value": 1000}
        await self.kube.create(PRIORITY_CLASSES, None, urgent)
        spec = {"selector": LABELS, "capacity": {"pods": str(MOST_PODS)}, "cooldownSeconds": 5}
        pool = of_kind(ELASTIC_POOLS, {"metadata": {"name": "shared"}, "spec": spec})
        await self.kube.create(ELASTIC_POOLS, NAMESPACE, pool)

    async def watch(self) -> None:
        """Count the pods until cancelled."""
        while True:
            with contextlib.suppress(KubeError):
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Count the pods once; a list is the state at one moment."""
        before = set(self.jobs)
        pods = (await self.kube.list(PODS, NAMESPACE))["items"]
        held = pods_of(pods, before & self.jobs)
        total = held.total()
        self.looks += 1
        if total > max(self.most, MOST_PODS):
            self.finding(f"the pool has room for {MOST_PODS} pods, and its jobs have {dict(held)}")
        self.most = max(self.most, total)


def pods_of(pods: Collection[Json], jobs: Collection[str]) -> Counter[str]:
    """Return the members of each job that have not ended, and one more for the job's master."""
    held = Counter[str]()
    for pod in pods:
        match = _MEMBER.match(pod["metadata"]["name"])
        if match and match[1] in jobs and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            held[match[1]] += 1
    held.update(set(held))
    return held


def in_pool(draw: JobDraw) -> JobDraw:
    """Return the draw of a job that may be in the pool: three of four are, one of them urgent."""
    place = int(draw.name.rpartition("-")[2]) % 4
    if place == 3:
        return draw
    requests = tuple(each for each in draw.requests if each.kind not in _NOT_COUNTED)
    priority = URGENT if place == 1 else ""
    return replace(draw, requests=requests, priority=priority)
