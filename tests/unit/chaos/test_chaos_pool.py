"""Tests the check of a chaos run that the jobs of a pool have no more pods than it has room for."""

from __future__ import annotations

from itertools import islice
from typing import Any

from elasticjob_api.meta import Json

from tests.support.chaos.pool import MOST_PODS, URGENT, SharedPool, in_pool, pods_of
from tests.support.chaos.schedule import draw_jobs


def pod(name: str, phase: str = "Running") -> Json:
    return {"metadata": {"name": name}, "status": {"phase": phase}}


def test_members_that_may_run_are_counted_and_their_masters() -> None:
    pods = [
        pod("job-1-master-0"),
        pod("job-1-worker-0"),
        pod("job-1-worker-1-2", "Pending"),
        pod("job-1-worker-2", "Failed"),
        pod("job-2-master-0"),
        pod("job-3-worker-0"),
    ]
    assert pods_of(pods, {"job-1", "job-2"}) == {"job-1": 3}


async def test_more_pods_than_the_pool_has_room_for_are_a_finding_once() -> None:
    found: list[str] = []
    kube: Any = _Listed([pod(f"job-1-worker-{index}") for index in range(MOST_PODS)])
    shared = SharedPool(kube, found.append, {"job-1"})
    await shared.look()
    await shared.look()
    assert found == [
        f"the pool has room for {MOST_PODS} pods, and its jobs have {{'job-1': {MOST_PODS + 1}}}"
    ]
    kube.pods.pop()
    room = SharedPool(kube, found.append, {"job-1"})
    await room.look()
    assert (room.most, len(found)) == (MOST_PODS, 1)


class _Listed:
    """An API server with these pods."""

    def __init__(self, pods: list[Json]) -> None:
        self.pods = pods

    async def list(self, *_: object) -> Json:
        return {"items": self.pods}


def test_urgent_and_other_jobs_are_in_the_pool_and_replace_no_members() -> None:
    jobs = [in_pool(draw) for draw in islice(draw_jobs(1), 20)]
    assert {job.priority for job in jobs} == {None, "", URGENT}
    kinds = {request.kind for job in jobs if job.priority is not None for request in job.requests}
    assert kinds == {"out", "in", "plan", "scale", "edit", "suspend"}
