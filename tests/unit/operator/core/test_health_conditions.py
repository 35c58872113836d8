"""Tests that the health conditions follow the master's report, with one event for each change."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.elasticjob import Progress
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_operator.core.conditions import HEALTH_CONDITIONS
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.cluster import JOB, Cluster

SINCE = "2026-01-01T12:00:00Z"


class Watched(Cluster):
    """A running job, and the events that its operator sends."""

    def __init__(self) -> None:
        super().__init__()
        self.kube.now = lambda: self.now

    async def report(self, **progress: Any) -> None:
        """Write what the master writes, and let the operator see it."""
        await self.events()
        self.kube.events.clear()
        self.kube.set_status(ELASTIC_JOBS, JOB, progress=progress)
        await self.settle()

    async def sent(self) -> list[tuple[str, str, str]]:
        """Return type, reason and note of the events since the last report."""
        await self.events()
        return [(each["type"], each["reason"], each["note"]) for each in self.kube.events]

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        """Return status, reason and message of a condition; None when there is none."""
        status = self.kube.objects[ELASTIC_JOBS, JOB]["status"]
        found = [c for c in status["conditions"] if c["type"] == kind]
        return (
            (found[0]["status"], found[0]["reason"], found[0].get("message", "")) if found else None
        )


async def running() -> Watched:
    cluster = Watched()
    await cluster.start()
    return cluster


async def test_a_healthy_job_has_no_such_conditions_and_no_such_events() -> None:
    cluster = await running()
    await cluster.report(step=5)
    assert [cluster.condition(each.type) for each in HEALTH_CONDITIONS] == [None] * 4
    assert await cluster.sent() == []


async def test_a_stall_is_a_condition_and_an_event_and_so_is_its_end() -> None:
    cluster = await running()
    text = f"no step has been finished since {SINCE}; the last one is 7"
    await cluster.report(step=7, stalledSince=SINCE)
    assert cluster.condition("TrainingStalled") == ("True", "Stalled", text)
    assert await cluster.sent() == [("Warning", "Stalled", text)]
    await cluster.report(step=8)
    assert cluster.condition("TrainingStalled") == ("False", "Resumed", "")
    assert await cluster.sent() == [("Normal", "Resumed", "steps are finished again")]


async def test_stragglers_are_named_and_a_new_one_is_news() -> None:
    cluster = await running()
    await cluster.report(step=1, stragglers=["job-worker-1"])
    assert cluster.condition("Stragglers") == (
        "True",
        "StragglersFound",
        "much slower than the others: job-worker-1",
    )
    await cluster.report(step=2, stragglers=["job-worker-1", "job-worker-0"])
    assert await cluster.sent() == [
        ("Warning", "StragglersFound", "much slower than the others: job-worker-0, job-worker-1")
    ]
    await cluster.report(step=3)
    assert cluster.condition("Stragglers") == ("False", "NoStragglers", "")


async def test_why_a_straggler_is_not_replaced_is_said() -> None:
    cluster = await running()
    await cluster.report(
        step=1, stragglers=["job-worker-1"], whyNotReplaced="it is the work, not the node"
    )
    text = "much slower than the others: job-worker-1; not replaced: it is the work, not the node"
    assert cluster.condition("Stragglers") == ("True", "StragglersFound", text)


async def test_a_node_that_failed_its_check_is_named_with_the_error() -> None:
    cluster = await running()
    await cluster.report(unfit={"job-worker-1": "no GPU answers"})
    assert cluster.condition("UnfitNodes") == (
        "True",
        "NodeCheckFailed",
        "job-worker-1: no GPU answers",
    )
    await cluster.report(step=1)
    assert cluster.condition("UnfitNodes") == ("False", "AllFit", "")


@pytest.mark.guarantee("process-restarts-are-shown")
async def test_each_restart_of_a_training_process_in_its_pod_is_an_event() -> None:
    cluster = await running()
    for restart in ("job-worker-0: restart 1, after exit code 9", "job-worker-0: restart 2"):
        await cluster.report(processRestarted=restart)
        assert cluster.condition("ProcessRestarted") == (
            "True",
            "TrainingProcessRestarted",
            restart,
        )
        assert await cluster.sent() == [("Warning", "TrainingProcessRestarted", restart)]


@pytest.mark.guarantee("no-writes-at-rest")
@pytest.mark.parametrize(
    "progress",
    [
        {"stalledSince": SINCE},
        {"stragglers": ["a", "b"]},
        {"unfit": {"a": "b"}},
        {"processRestarted": "a: restart 1"},
    ],
)
async def test_what_stays_as_it_is_costs_no_write_and_no_event(progress: Json) -> None:
    cluster = await running()
    await cluster.report(step=7, **progress)
    version = cluster.kube.writes
    for metric in range(5):
        await cluster.report(step=7, metrics={"loss": float(metric)}, **progress)
        assert await cluster.sent() == []
    assert cluster.kube.writes == version, "the operator wrote although nothing had changed for it"


async def test_a_new_operator_reports_nothing_that_was_reported_before() -> None:
    cluster = await running()
    await cluster.report(step=7, stalledSince=SINCE)
    await cluster.sent()
    cluster.kube.events.clear()
    cluster.kube.crash_in = 1
    cluster.edit_role(replicas=3)
    await cluster.settle()
    assert [event for event in await cluster.sent() if event[1] == "Stalled"] == []
    assert cluster.condition("TrainingStalled") is not None


async def test_a_suspension_ends_the_conditions_without_an_event_that_training_continues() -> None:
    cluster = await running()
    await cluster.report(step=7, stalledSince=SINCE, stragglers=["job-worker-0"])
    cluster.edit_policy(suspend=True)
    await cluster.settle()
    for kind in ("TrainingStalled", "Stragglers"):
        assert cluster.condition(kind) == ("False", "Suspended", "spec.runPolicy.suspend is true")
    await cluster.report(step=7)  # the master's last report
    cluster.edit_policy(suspend=False)
    await cluster.settle()
    assert cluster.condition("TrainingStalled") == ("False", "Resumed", "")
    assert [event for event in await cluster.sent() if event[1] == "Resumed"] == []


async def test_with_the_jobs_end_the_conditions_end() -> None:
    cluster = await running()
    await cluster.report(step=7, stalledSince=SINCE)
    deadline = {"activeDeadlineSeconds": 1}
    cluster.edit_policy(**deadline)
    await cluster.settle()
    assert cluster.condition("Failed") is not None
    assert cluster.condition("TrainingStalled") == ("False", "JobFailed", "")


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=1024), max_size=100),
    st.lists(st.text(), max_size=100),
)
def test_however_many_there_are_a_message_stays_short_enough_for_people(
    unfit: Any, slow: Any
) -> None:
    progress = Progress(unfit=unfit, stragglers=slow)
    for condition in HEALTH_CONDITIONS:
        assert len(condition.message(progress)) <= 32_768, "the API server refuses more"
