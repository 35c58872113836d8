"""What the operator makes of the master's findings: conditions that follow them, and one event for each change."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.elasticjob import ElasticJobStatus, Progress
from elasticjob_kube.resources import ELASTIC_JOBS, EVENTS, Resource
from elasticjob_operator.core.health_conditions import CONDITION_TYPES, health_conditions
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.world import JOB, FakeKube, World

Json = dict[str, Any]
SINCE = "2026-01-01T12:00:00Z"


class Watched(World):
    """A running job, and the events that its operator sends."""

    def __init__(self) -> None:
        super().__init__()
        self.kube.now = lambda: self.now
        self.events: list[tuple[str, str, str]] = []
        create = self.kube.create

        async def recording(resource: Resource, namespace: str | None, body: Any) -> Json:
            if resource == EVENTS:
                self.events.append((body["type"], body["reason"], body["note"]))
            return await create(resource, namespace, body)

        setattr(self.kube, FakeKube.create.__name__, recording)

    async def settle(self, *, turns: int = 80) -> None:
        """Let all come to rest, also the events."""
        await super().settle(turns=turns)
        await self.operator.executor.events.flush()

    async def tell(self, **progress: Any) -> None:
        """Write what the master writes, and let the operator see it."""
        self.events.clear()
        self.kube.change(ELASTIC_JOBS, JOB, progress=progress)
        await self.settle()

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        """Return status, reason and message of a condition; None when there is none."""
        status = self.kube.objects[ELASTIC_JOBS, JOB]["status"]
        found = [c for c in status["conditions"] if c["type"] == kind]
        return (found[0]["status"], found[0]["reason"], found[0].get("message", "")) if found else None


async def running() -> Watched:
    world = Watched()
    await world.start()
    return world


async def test_a_healthy_job_has_no_such_conditions_and_no_such_events() -> None:
    world = await running()
    await world.tell(step=5)
    assert [world.condition(kind) for kind in CONDITION_TYPES] == [None, None, None]
    assert world.events == []


async def test_a_stall_is_a_condition_and_an_event_and_so_is_its_end() -> None:
    world = await running()
    text = f"no step has been finished since {SINCE}; the last one is 7"
    await world.tell(step=7, stalledSince=SINCE)
    assert world.condition("Stalled") == ("True", "Stalled", text)
    assert world.events == [("Warning", "Stalled", text)]
    await world.tell(step=8)
    assert world.condition("Stalled") == ("False", "Resumed", "")
    assert world.events == [("Normal", "Resumed", "steps are finished again")]


async def test_stragglers_are_named_and_a_new_one_is_news() -> None:
    world = await running()
    await world.tell(step=1, stragglers=["job-worker-1"])
    assert world.condition("Stragglers") == ("True", "StragglersFound", "much slower than the others: job-worker-1")
    await world.tell(step=2, stragglers=["job-worker-1", "job-worker-0"])
    assert world.events == [("Warning", "StragglersFound", "much slower than the others: job-worker-0, job-worker-1")]
    await world.tell(step=3)
    assert world.condition("Stragglers") == ("False", "NoStragglers", "")


async def test_a_node_that_failed_its_check_is_named_with_what_is_wrong() -> None:
    world = await running()
    await world.tell(unfit={"job-worker-1": "no GPU answers"})
    assert world.condition("UnfitNodes") == ("True", "NodeCheckFailed", "job-worker-1: no GPU answers")
    await world.tell(step=1)
    assert world.condition("UnfitNodes") == ("False", "AllFit", "")


@pytest.mark.parametrize("progress", [{"stalledSince": SINCE}, {"stragglers": ["a", "b"]}, {"unfit": {"a": "b"}}])
async def test_what_stays_as_it_is_costs_no_write_and_no_event(progress: Json) -> None:
    world = await running()
    await world.tell(step=7, **progress)
    version = world.kube.writes
    for metric in range(5):
        await world.tell(step=7, metrics={"loss": float(metric)}, **progress)
        assert world.events == []
    assert world.kube.writes == version, "the operator wrote although nothing had changed for it"


async def test_a_new_operator_tells_nothing_that_was_told_before() -> None:
    world = await running()
    await world.tell(step=7, stalledSince=SINCE)
    world.events.clear()
    world.kube.crash_in = 1
    world.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"]["worker"].update(replicas=3))
    await world.settle()
    assert [event for event in world.events if event[1] == "Stalled"] == []
    assert world.condition("Stalled") is not None


async def test_with_the_jobs_suspension_the_conditions_end_and_nobody_is_told_that_training_goes_on() -> None:
    world = await running()
    await world.tell(step=7, stalledSince=SINCE, stragglers=["job-worker-0"])
    world.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec.setdefault("runPolicy", {}).update(suspend=True))
    await world.settle()
    for kind in ("Stalled", "Stragglers"):
        assert world.condition(kind) == ("False", "Suspended", "spec.runPolicy.suspend is true")
    await world.tell(step=7)  # the master's last words
    world.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["runPolicy"].update(suspend=False))
    await world.settle()
    assert world.condition("Stalled") == ("False", "Resumed", "")
    assert [event for event in world.events if event[1] == "Resumed"] == []


async def test_with_the_jobs_end_the_conditions_end() -> None:
    world = await running()
    await world.tell(step=7, stalledSince=SINCE)
    deadline = {"activeDeadlineSeconds": 1}
    world.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec.setdefault("runPolicy", {}).update(deadline))
    await world.settle()
    assert world.condition("Failed") is not None
    assert world.condition("Stalled") == ("False", "JobFailed", "")


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=1024), max_size=100), st.lists(st.text(), max_size=100))
def test_however_many_there_are_a_message_stays_short_enough_for_people(unfit: Any, slow: Any) -> None:
    status = ElasticJobStatus(progress=Progress(unfit=unfit, stragglers=slow))
    for condition in health_conditions(status):
        assert condition.holds
        assert len(condition.message) <= 32_768, "the API server refuses more"
