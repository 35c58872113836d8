"""A change of size that the operator would refuse is refused before it is requested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, JobEnded
from elasticjob_client.scaling import SizeChange, parse_size, refusal, removal, request_size

from tests.support.played_api import NO_REQUESTS, PlayedApi

METADATA = {"name": "ux", "namespace": "ns", "uid": "u"}


def job(phase: str = "Running", **policy: Any) -> dict[str, Any]:
    """Return a job of 3 workers, which may have from 2 to 4, and of one launcher."""
    container = {"name": "train", "image": "i", "command": ["train"]}
    template = {"spec": {"containers": [container]}}
    return {
        "metadata": METADATA,
        "spec": {
            "framework": "horovod",
            "runPolicy": policy,
            "replicaSpecs": {
                "worker": {"minReplicas": 2, "maxReplicas": 4, "template": template},
                "launcher": {"template": template},
            },
        },
        "status": {
            "phase": phase,
            "replicaStatuses": {
                "worker": {"desired": 3, "indices": "0-2", "highestIndex": 4},
                "launcher": {"desired": 1, "indices": "0", "highestIndex": 0},
            },
        },
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (parse_size("9", role="worker"), "9 members of role worker would be above maxReplicas 4"),
        (parse_size("1", role="worker"), "1 members of role worker would be below minReplicas 2"),
        (parse_size("+2", role="worker"), "5 members of role worker would be above maxReplicas 4"),
        (parse_size("-2", role="worker"), "1 members of role worker would be below minReplicas 2"),
        (parse_size("2", role="launcher"), "each launcher would start a training of its own"),
        (parse_size("4", role="ps"), "ps is not a role of the job; it has launcher, worker"),
        (removal(["ux-worker-3"], role="worker"), "ux-worker-3 is not a member of role worker"),
        (removal(["ux-launcher-0"], role="worker"), "ux-launcher-0 is not a member of role worker"),
        (removal(["nobody"], role="worker"), "nobody is not a member of role worker"),
        (
            removal(["ux-worker-0", "ux-worker-1"], role="worker"),
            "1 members of role worker would be below minReplicas 2",
        ),
        (parse_size("4", role="worker"), ""),
        (parse_size("+1", role="worker"), ""),
        (parse_size("-1", role="worker"), ""),
        (removal(["ux-worker-2"], role="worker"), ""),
    ],
)
def test_bounds_roles_and_members_are_checked(change: SizeChange, why: str) -> None:
    found = refusal(msgspec.convert(job(), ElasticJob), change)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("phase", "policy", "why"),
    [
        ("Succeeded", {}, "has ended (Succeeded)"),
        ("Failed", {"suspend": True}, "has ended (Failed)"),
        ("Stopped", {"stop": True}, "has ended (Stopped)"),
        ("Suspended", {"suspend": True}, "is suspended"),
        ("Running", {"stop": True}, "is being stopped"),
    ],
)
async def test_a_job_that_takes_no_requests_gets_none(
    tmp_path: Path, phase: str, policy: dict[str, Any], why: str
) -> None:
    api = PlayedApi(NO_REQUESTS | {"GET elasticjobs/ux": job(phase, **policy)})
    ended = phase in ("Succeeded", "Failed", "Stopped")
    for text in ("4", "+1"):
        async with api.cluster(tmp_path) as cluster:
            with pytest.raises(ClientError, match=re.escape(why)) as caught:
                await request_size(cluster, "ux", parse_size(text, role="worker"))
        assert isinstance(caught.value, JobEnded) == ended
    assert not [each for each in api.requests if not each.startswith("GET")]


@pytest.mark.parametrize("pending", ["scaleplans", "scaleins"])
async def test_a_difference_is_left_to_the_operator_while_other_requests_are_under_way(
    tmp_path: Path, pending: str
) -> None:
    request = {
        "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"jobName": "ux"},
    }
    api = PlayedApi(
        NO_REQUESTS
        | {"GET elasticjobs/ux": job(), f"GET {pending}": {"items": [request]}}
        | {"POST scaleouts": {"metadata": {"name": "ux-1"}}}
    )
    async with api.cluster(tmp_path) as cluster:
        made = await request_size(cluster, "ux", parse_size("+2", role="worker"))
        assert made.name == "ux-1"
        with pytest.raises(ClientError, match="above maxReplicas 4"):
            await request_size(cluster, "ux", parse_size("9", role="worker"))


@pytest.mark.parametrize(
    ("policy", "size", "asked"),
    [
        ({"suspend": True}, 4, [{"spec": {"replicaSpecs": {"worker": {"replicas": 4}}}}]),
        ({}, 3, []),
    ],
)
async def test_python_sets_the_size_of_a_resume_and_requests_no_size_that_the_job_has(
    tmp_path: Path, policy: dict[str, Any], size: int, asked: list[dict[str, Any]]
) -> None:
    found = job("Suspended" if policy else "Running", **policy)
    about = {"GET elasticjobs/ux": found, "PATCH elasticjobs/ux": found}
    api = PlayedApi(NO_REQUESTS | about)
    async with api.cluster(tmp_path) as cluster:

        async def session() -> Cluster:
            return cluster

        known = msgspec.convert(found, ElasticJob)
        assert await AsyncJob(session, known).scale(size, wait=True) == ""
    assert [json.loads(body) for body in api.bodies] == asked
