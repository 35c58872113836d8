"""Tests the conditions Unreadable and ReconcileFailed.

The operator writes each once, removes it later, and repeats a refused write.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Condition
from elasticjob_kube.clock import Clock
from elasticjob_kube.errors import KubeError, NotFound, TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS, Resource
from elasticjob_operator.events import Events, Subject
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.work_queue import Retry

from tests.support.wait import until

PLAN = Subject(SCALE_PLANS, "ns", "plan", "plan-uid")


class Session:
    """Records applied objects and sent events, and answers with `error` while it is set."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str, list[str]]] = []
        self.events: list[tuple[str, str]] = []
        self.error: KubeError | None = None
        self.clock = Clock()

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: dict[str, Any],
        *,
        field_manager: str,
        subresource: str,
    ) -> None:
        assert subresource == "status"
        assert body["metadata"]["uid"]
        found = [condition["type"] for condition in body.get("status", {}).get("conditions", ())]
        self.applied.append((f"{resource.kind} {namespace}/{name}", field_manager, found))
        if self.error is not None:
            raise self.error

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> None:
        self.events.append((body["regarding"]["kind"], body["reason"]))


def conditions_of(session: Any) -> OwnConditions:
    return OwnConditions(session, Events(session, "me"))


def job(*conditions: str) -> ElasticJob:
    worker = {"template": {"spec": {"containers": [{"name": "t", "command": ["t"]}]}}}
    body = {
        "metadata": {"name": "job", "namespace": "ns", "uid": "job-uid", "resourceVersion": "1"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}},
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }
    return msgspec.convert(body, ElasticJob)


async def test_an_unreadable_object_gets_one_condition_until_it_can_be_read() -> None:
    session = Session()
    conditions = conditions_of(session)
    for _ in range(3):
        conditions.set(PLAN, "Unreadable", "CannotBeDecoded", "it is deep")
    await until("written", lambda: session.applied)
    conditions.clear(PLAN, "Unreadable", ())
    await until("taken back", lambda: len(session.applied) == 2)
    conditions.clear(PLAN, "Unreadable", ())
    await conditions.writes.close()
    manager = "elasticjob-operator-unreadable"
    assert session.applied == [
        ("ScalePlan ns/plan", manager, ["Unreadable"]),
        ("ScalePlan ns/plan", manager, []),
    ]
    assert session.events == [("ScalePlan", "Unreadable")]


async def test_a_condition_of_an_earlier_process_is_removed() -> None:
    session = Session()
    conditions = conditions_of(session)
    conditions.clear(PLAN, "Unreadable", [Condition(type="Ready", status="True")])
    conditions.clear(PLAN, "Unreadable", [Condition(type="Unreadable", status="True")])
    conditions.reconciled(job("ReconcileFailed"), None)
    conditions.reconciled(job("Running"), None)
    await until("taken back", lambda: len(session.applied) == 2)
    await conditions.writes.close()
    assert [found for _, _, found in session.applied] == [[], []]
    assert session.events == []


@pytest.mark.guarantee("unforeseen-operator-error")
async def test_a_repeated_failure_is_written_and_reported_once() -> None:
    session = Session()
    conditions = conditions_of(session)
    for error in (TypeError("x"), TypeError("x"), Retry("the API server is busy"), TypeError("x")):
        conditions.reconciled(job(), error)
    await until("written", lambda: session.applied and session.events)
    await conditions.writes.close()
    assert session.applied == [
        ("ElasticJob ns/job", "elasticjob-operator-reconcilefailed", ["ReconcileFailed"])
    ]
    assert session.events == [("ElasticJob", "ReconcileFailed")]


async def test_a_write_without_an_answer_is_repeated_but_not_for_a_deleted_object() -> None:
    session = Session()
    conditions = conditions_of(session)
    session.error = TryLater(503, "", "not ready")
    conditions.set(PLAN, "Unreadable", "CannotBeDecoded", "it is deep")
    await until("tried", lambda: session.applied)
    session.error = NotFound(404, "NotFound", "gone")
    await until("tried again", lambda: len(session.applied) == 2)
    await conditions.writes.close()
    conditions.set(
        Subject(ELASTIC_JOBS, "ns", "job", "u"), "Unreadable", "CannotBeDecoded", "it is deep"
    )
    assert conditions.writes.results["failed"] == 1
