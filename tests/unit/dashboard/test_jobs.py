"""Tests the rows of the page of all jobs: their order, their values, and what they offer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import format_time
from elasticjob_dashboard.jobs import (
    MOST_JOBS,
    Rights,
    VisibleJobs,
    jobs_sections,
    offered,
    requested_gpus,
    shown_job,
    shown_plan,
)
from elasticjob_dashboard.page import Page

NOW = 1_000_000.0
ALL = {"ns": Rights(patch=True, scale=True)}


def job(
    name: str = "a",
    phase: str | None = "Running",
    *,
    spec: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **status: Any,
) -> ElasticJob:
    container = {"name": "train", "resources": {"limits": limits or {}}}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    found = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": worker}, **(spec or {})},
        "status": {"phase": phase, **status} if phase else {},
    }
    return msgspec.convert(found, ElasticJob)


def plan(name: str, phase: str, **status: Any) -> ScalePlan:
    found = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"jobName": "a"},
        "status": {"phase": phase, **status},
    }
    return msgspec.convert(found, ScalePlan)


def page(*jobs: ElasticJob, plans: Iterable[ScalePlan] = (), **visible: Any) -> dict[str, Any]:
    shown = [each for each in map(shown_plan, plans) if each is not None]
    sections = jobs_sections(VisibleJobs(list(map(shown_job, jobs)), shown, **visible), NOW)
    return {name: json.loads(part) for name, part in sections.items()}


def test_jobs_that_need_a_look_come_first_and_ended_ones_last() -> None:
    stalled = {"stalledSince": format_time(NOW - 60)}
    found = page(
        job("done", "Succeeded"),
        job("old-failure", "Failed", completionTime=format_time(NOW - 200_000)),
        job("suspended", "Suspended"),
        job("stopped", "Stopped", completionTime=format_time(NOW - 60)),
        job("b-running"),
        job("a-running"),
        job("new", None),
        job("stalled", progress=stalled),
        job("failure", "Failed", completionTime=format_time(NOW - 60)),
        job("unfit", progress={"unfit": {"pod": "disk"}}),
        job("done-stalled", "Succeeded", progress=stalled),
    )
    assert found["order"] == [
        f"ns/{name}"
        for name in (
            "failure", "stalled", "unfit", "new", "a-running", "b-running", "suspended", "done",
            "done-stalled", "old-failure", "stopped",
        )
    ]  # fmt: skip
    assert found["ns/stalled"]["stalledSince"] == NOW - 60
    assert found["ns/done-stalled"]["stalledSince"] is None


def test_requested_gpus_follow_sizes_and_plans_and_are_none_without_members() -> None:
    two = {"nvidia.com/gpu": "2"}
    sized = {"desired": 3}
    assert requested_gpus(job(limits=two, phase=None)) == 4
    assert requested_gpus(job(limits=two, replicaStatuses={"worker": sized})) == 6
    planned = {"worker": sized | {"resources": {"nvidia.com/gpu": "4"}}}
    assert requested_gpus(job(limits=two, replicaStatuses=planned)) == 12
    single = {"worker": sized | {"resourcesByIndex": {"1": {"nvidia.com/gpu": "1"}}}}
    assert requested_gpus(job(limits=two, replicaStatuses=single)) == 5
    assert requested_gpus(job(limits=two, phase="Suspended")) == 0
    assert requested_gpus(job(limits=two, phase="Succeeded")) == 0
    assert requested_gpus(job(limits={"nvidia.com/gpu": "many"})) == 0
    assert requested_gpus(job()) == 0


def test_plans_that_wait_are_told_with_what_they_wait_for() -> None:
    waiting = plan("a-1", "Draining", waitingFor="worker-2", change="worker 3 to 2")
    other = msgspec.structs.replace(
        waiting, spec=msgspec.structs.replace(waiting.spec, job_name="b")
    )
    found = page(job(), plans=(plan("a-0", "Succeeded"), waiting, other))
    assert found["ns/a"]["waiting"] == ["a-1, Draining, worker 3 to 2, waits for worker-2"]
    many = page(job(), plans=[plan(f"a-{number}", "Pending") for number in range(7)])
    assert many["ns/a"]["waiting"][-1] == "2 more"


def test_changes_are_offered_where_the_user_may_and_the_job_takes_them() -> None:
    def offers(found: ElasticJob, **visible: Any) -> list[str]:
        row = page(found, **visible)[f"ns/{found.metadata.name}"]
        offered: list[str] = row["offers"]
        return offered

    suspended = job(spec={"runPolicy": {"suspend": True}})
    assert offers(job(), rights=ALL) == ["suspend", "scale", "stop"]
    assert offers(suspended, rights=ALL) == ["resume", "stop"]
    assert offers(job(phase="Failed"), rights=ALL) == []
    assert offers(job(spec={"runPolicy": {"stop": True}}), rights=ALL) == []
    assert offers(job(), rights={"ns": Rights(scale=True)}) == ["scale"]
    assert offered(job(), ALL["ns"]).items() <= page(job(), rights=ALL)["ns/a"].items()
    assert offers(job()) == []
    assert offers(job(), rights={"other": ALL["ns"]}) == []


def test_the_list_is_bounded_and_says_how_many_more_there_are() -> None:
    jobs = [job(f"j{number}") for number in range(MOST_JOBS + 3)]
    found = page(*jobs, job("stalled", "Retrying"), more=7)
    assert len(found["order"]) == MOST_JOBS
    assert found["order"][0] == "ns/stalled"
    assert found["more"] == 11


@pytest.mark.guarantee("page-shows-the-job")
def test_only_the_page_with_the_rights_of_its_user_can_ask_for_a_change() -> None:
    assert [
        "POST" in page.text
        for page in (Page(), Page(reads_logs=True), Page(reads_logs=True, of_all_jobs=True))
    ] == [False, False, True]
