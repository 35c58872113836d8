"""Texts are parsed as sizes and as milestones, and milestones are waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus, Progress
from elasticjob_api.meta import ObjectMeta
from elasticjob_client.errors import ClientError, JobEnded, NotInTime
from elasticjob_client.scaling import SizeChange, parse_size, removal, size_change
from elasticjob_client.waiting import parse_milestone, wait_for

from tests.support.played_api import PlayedApi, of_job, played_job


@pytest.mark.parametrize(
    ("text", "kind", "spec"),
    [
        ("8", "ScalePlan", {"replicaResourceSpecs": {"ps": {"replicas": 8}}}),
        ("0", "ScalePlan", {"replicaResourceSpecs": {"ps": {"replicas": 0}}}),
        ("+2", "ScaleOut", {"role": "ps", "count": 2}),
        ("-1", "ScaleIn", {"role": "ps", "count": 1}),
    ],
)
def test_a_size_is_a_plan_and_a_difference_is_a_request(
    text: str, kind: str, spec: dict[str, object]
) -> None:
    change = parse_size(text, role="ps")
    assert (change.resource.kind, change.spec("a")) == (kind, {"jobName": "a", **spec})


def test_pods_to_remove_are_named() -> None:
    change = removal(["a-worker-3"], role="worker")
    assert (change.resource.kind, change.spec("a")["podNames"]) == ("ScaleIn", ["a-worker-3"])


@pytest.mark.parametrize("text", ["", "+", "-0", "+0", "1.5", "2x", "--2", " 2", "1000000", "٣"])
def test_what_is_no_size_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(
        ClientError, match=r"give the new size \(8\), or how many more \(\+2\) or less \(-1\)"
    ):
        parse_size(text, role="worker")


def test_a_program_gives_a_size_as_a_number_or_a_difference_as_a_text() -> None:
    assert size_change(4, role="worker") == SizeChange("worker", replicas=4)
    assert size_change("-1", role="worker") == SizeChange("worker", remove=1)


@pytest.mark.parametrize("size", [-1, 1.5, True, None, [4]])
def test_a_negative_number_is_refused_and_removes_no_pod(size: Any) -> None:
    with pytest.raises(ClientError, match=r"size: .* is not valid; give a whole number"):
        size_change(size, role="worker")


@pytest.mark.parametrize("pods", [(), ("",), ("a-worker-1", None)])
def test_each_pod_to_remove_must_be_named(pods: Any) -> None:
    with pytest.raises(ClientError, match="give the name of each pod to remove"):
        removal(pods, role="worker")


def job(phase: str | None, step: int | None = None) -> ElasticJob:
    progress = None if step is None else Progress(step=step)
    status = ElasticJobStatus(phase=phase, progress=progress)  # type: ignore[arg-type]
    return ElasticJob(
        metadata=ObjectMeta(name="a"),
        spec=ElasticJobSpec(framework="custom", replica_specs={}),
        status=status,
    )


@pytest.mark.parametrize(
    ("milestone", "reached", "not_yet"),
    [
        ("running", job("Running"), job("Starting")),
        ("RUNNING", job("Running"), job(None)),
        ("pending", job(None), job("Running")),
        ("ended", job("Failed"), job("Retrying")),
        ("step=10", job("Running", 10), job("Running", 9)),
        ("step=0", job("Running", 0), job("Running")),
    ],
)
def test_a_milestone_is_a_phase_or_a_step(
    milestone: str, reached: ElasticJob, not_yet: ElasticJob
) -> None:
    is_reached = parse_milestone(milestone)
    assert is_reached(reached)
    assert not is_reached(not_yet)


@pytest.mark.parametrize(
    "milestone", ["", "done", "step", "step=-1", "step=x", "step=99999999999999999"]
)
def test_what_is_no_milestone_is_refused_with_what_would_be_one(milestone: str) -> None:
    with pytest.raises(ClientError, match=r"give pending, .* failed, stopped, ended, or step=N"):
        parse_milestone(milestone)


async def test_a_wait_of_0_seconds_asks_for_the_present_state(tmp_path: Path) -> None:
    async with PlayedApi(of_job(played_job("Succeeded"))).cluster(tmp_path) as cluster:
        for milestone in ("succeeded", "ended"):
            reached = await wait_for(cluster, "a", milestone, seconds=0)
            assert reached.status.phase == "Succeeded"
        with pytest.raises(JobEnded):
            await wait_for(cluster, "a", "running", seconds=0)
    async with PlayedApi(of_job(played_job())).cluster(tmp_path) as cluster:
        with pytest.raises(NotInTime, match="has not come within 0 s; it is Running"):
            await wait_for(cluster, "a", "ended", seconds=0)
