"""`elasticjob pool list` and `describe` on an API server with fixed answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.played_api import PlayedApi, listed

CREATED = "2026-01-01T00:00:00Z"
WAITS = "waits for room in ElasticPool gpus"


def metadata(name: str, **labels: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-{name}",
        "creationTimestamp": CREATED,
        "labels": labels,
    }


def pool(name: str, created: str = CREATED, **selector: str) -> dict[str, Any]:
    return {
        "metadata": metadata(name) | {"creationTimestamp": created},
        "spec": {"selector": selector, "capacity": {"cpu": "8", "nvidia.com/gpu": 16}},
        "status": {
            "jobs": 2,
            "waiting": 1,
            "used": "nvidia.com/gpu 4/16",
            "longestWaiting": f"urgent: {WAITS}",
            "lastAct": "night 2: ElasticPool gpus is full",
            "lastActTime": CREATED,
        },
    }


def job(name: str, phase: str, active: int, **status: Any) -> dict[str, Any]:
    requests = {"nvidia.com/gpu": 2, "cpu": "100m"}
    container = {"name": "main", "resources": {"limits": requests}}
    worker = {
        "replicas": 4,
        "minReplicas": 1,
        "maxReplicas": 8,
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "metadata": metadata(name, team="vision"),
        "spec": {"framework": "custom", "replicaSpecs": {"worker": worker}},
        "status": {
            "phase": phase,
            "replicaStatuses": {"worker": {"desired": active or 4, "active": active, **status}},
        },
    }


NIGHT = job("night", "Running", 2, asked=4)
URGENT = job("urgent", "Suspended", 0)
URGENT["status"]["message"] = WAITS
PLAN = {
    "metadata": metadata("night-pool-7"),
    "spec": {"jobName": "night", "source": "Pool", "reason": "urgent (0 of 4 members) waits"},
    "status": {"phase": "Succeeded", "change": "worker 4 to 2"},
}
OTHER_PLAN = {
    "metadata": metadata("other"),
    "spec": {"jobName": "elsewhere", "source": "Manual"},
    "status": {},
}
GPUS = pool("gpus", team="vision")
ANSWERS = {
    "GET elasticpools": listed(pool("all", "2026-01-02T00:00:00Z"), GPUS),
    "GET elasticpools/gpus": GPUS,
    "GET elasticpools/all": pool("all", "2026-01-02T00:00:00Z"),
    "GET elasticjobs": listed(NIGHT, URGENT, job("ended", "Succeeded", 0)),
    "GET scaleplans": listed(PLAN, OTHER_PLAN),
}


@pytest.fixture
def api() -> PlayedApi:
    """An API server with two pools, of which one is older, and three jobs."""
    return PlayedApi(ANSWERS)


async def test_pools_are_listed_with_what_is_used_who_waits_and_the_last_plan(
    api: PlayedApi, tmp_path: Path
) -> None:
    code, shown, problems = await api.command(tmp_path, "pool", "list")
    assert code == 0, problems
    (line,) = [line for line in shown.splitlines() if line.startswith("gpus")]
    assert " ".join(line.split()).startswith("gpus Priority 2 1 nvidia.com/gpu 4/16 night 2: ")


async def test_a_pools_page_has_its_jobs_with_sizes_shares_waits_and_last_acts(
    api: PlayedApi, tmp_path: Path
) -> None:
    code, shown, problems = await api.command(tmp_path, "pool", "describe", "gpus")
    assert code == 0, problems
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "Selector team=vision" in lines
    assert "Capacity cpu 8, nvidia.com/gpu 16" in lines
    assert "Jobs 2, of which 1 wait" in lines
    at = lines.index("JOB PHASE MEMBERS ASKED BOUNDS SHARE WAITS FOR LAST ACT")
    night, urgent = lines[at + 1 :]
    assert night.startswith("night Running 2 4 1 to 8 25% 2 members more ")
    assert night.endswith(" ago, worker 4 to 2: urgent (0 of 4 members) waits")
    assert urgent == f"urgent Suspended 0 4 1 to 8 0% {WAITS} -"


async def test_a_pools_jobs_are_read_by_its_selector(api: PlayedApi, tmp_path: Path) -> None:
    assert (await api.command(tmp_path, "pool", "describe", "gpus"))[0] == 0
    (query,) = [
        query
        for called, query in zip(api.requests, api.queries, strict=True)
        if called == "GET elasticjobs"
    ]
    assert query in ("labelSelector=team=vision", "labelSelector=team%3Dvision")


async def test_a_job_that_an_older_pool_selects_is_not_on_a_pools_page(
    api: PlayedApi, tmp_path: Path
) -> None:
    code, shown, problems = await api.command(tmp_path, "pool", "describe", "all", "-o", "json")
    assert code == 0, problems
    assert [each["kind"] for each in json.loads(shown)["items"]] == ["ElasticPool"]


async def test_a_pools_objects_are_a_list_of_the_api(api: PlayedApi, tmp_path: Path) -> None:
    code, shown, problems = await api.command(tmp_path, "pool", "describe", "gpus", "-o", "json")
    assert code == 0, problems
    items = json.loads(shown)["items"]
    assert [(each["kind"], each["metadata"]["name"]) for each in items] == [
        ("ElasticPool", "gpus"),
        ("ElasticJob", "night"),
        ("ElasticJob", "urgent"),
        ("ScalePlan", "night-pool-7"),
    ]


async def test_a_pool_that_does_not_exist_is_one_line(api: PlayedApi, tmp_path: Path) -> None:
    code, shown, problems = await api.command(tmp_path, "pool", "describe", "gone")
    assert (code, shown) == (1, "")
    assert problems.startswith("error: ElasticPool ns/gone: ")


async def test_a_page_of_a_pool_of_a_queue_names_the_queue_and_who_waits_for_its_quota(
    tmp_path: Path,
) -> None:
    found = pool("queue", team="vision")
    found["spec"] = {"clusterQueue": "research"}
    answers = {**ANSWERS, "GET elasticpools/queue": found, "GET elasticpools": listed(found)}
    code, shown, problems = await PlayedApi(answers).command(tmp_path, "pool", "describe", "queue")
    assert code == 0, problems
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "Capacity the quota of ClusterQueue research" in lines
    assert "Jobs 2 with quota; 1 jobs and Workloads wait" in lines
    assert not any(line.startswith("night") for line in lines), "it is in no queue"
