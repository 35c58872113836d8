"""Bounds what the page of all jobs reads and keeps, as anybody's jobs may be large."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from elasticjob_client.visible_jobs import JobsReader
from elasticjob_dashboard.jobs import MOST_JOBS

from tests.support.played_api import NO_REQUESTS, PlayedApi, listed, played_job

JOBS = 500
LARGEST = 512 << 10
MEGABYTE = 1 << 20


class LargeJobs(PlayedApi):
    """An API server with jobs of many small objects, each as large as it may be."""

    async def _answer(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.json_response({"status": {"allowed": True}})
        if not request.path.endswith("elasticjobs"):
            return web.json_response({"metadata": {}, "items": []})
        number = min(int(request.query.get("limit", JOBS)), JOBS)
        answer = web.StreamResponse()
        await answer.prepare(request)
        more = json.dumps({"remainingItemCount": JOBS - number})
        with suppress(ConnectionError):  # the reader has had enough
            await answer.write(f'{{"metadata":{more},"items":['.encode())
            for index in range(number):
                await answer.write((b"," if index else b"") + _large(index))
            await answer.write(b"]}")
        return answer  # type: ignore[return-value]


def _large(index: int) -> bytes:
    template = {"spec": {"containers": [{"name": "c"}]}, "x": []}
    job = {
        "metadata": {"name": f"j{index}", "namespace": "ns", "uid": f"u{index}"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": template}}},
    }
    many = b",".join([b"{}"] * (LARGEST // 3))
    return json.dumps(job).encode().replace(b'"x": []', b'"x": [%b]' % many)


@pytest.mark.guarantee("page-of-all-jobs")
async def test_large_jobs_of_others_take_little_memory_and_some_of_them_are_shown(
    tmp_path: Path,
) -> None:
    async with LargeJobs({}).cluster(tmp_path) as cluster:
        tracemalloc.start()
        try:
            seen = await JobsReader(cluster, "ns").read()
            kept, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert 0 < len(seen.jobs) < MOST_JOBS
    assert len(seen.jobs) + seen.more == JOBS
    assert seen.jobs[0].row["phase"] == "Pending"
    assert kept < 16 * MEGABYTE
    assert most < 96 * MEGABYTE


POOL = {"metadata": {"name": "gpus", "namespace": "ns"}, "status": {"used": "cpu 1/4"}}


@pytest.mark.parametrize(
    ("answer", "pools"),
    [(listed(POOL), ["ns/gpus"]), (403, []), (404, [])],
    ids=["seen", "not allowed", "older definitions"],
)
async def test_pools_are_read_where_they_exist_and_the_user_may_list_them(
    answer: Any, pools: list[str], tmp_path: Path
) -> None:
    jobs = {"GET elasticjobs": listed(played_job()), "POST ": {"status": {"allowed": True}}}
    api = PlayedApi(jobs | NO_REQUESTS | {"GET elasticpools": answer})
    async with api.cluster(tmp_path) as cluster:
        seen = await JobsReader(cluster, "ns").read()
    assert [job.name for job in seen.jobs] == ["a"]
    assert [pool.row["name"] for pool in seen.pools] == pools
    assert seen.notes == ()
