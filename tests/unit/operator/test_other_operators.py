"""Tests that pods of an operator with another Lease are reported once for each job."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.pod_identity import MemberIdentity
from elasticjob_kube.clock import Clock
from elasticjob_kube.resources import ELASTIC_JOBS, MAX_EVENT_NOTE_BYTES, Resource
from elasticjob_operator.core.model.identity import identity_of, pod_labels
from elasticjob_operator.core.model.observed import owner_reference
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.events import Events
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.other_operators import OtherOperators
from elasticjob_operator.store import Store

OWN = "one/elasticjob-operator"
OTHER = "two/elasticjob-operator"


class Session:
    """Records the notes of sent events."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.clock = Clock()

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> None:
        assert (body["reason"], body["type"]) == ("AnotherOperator", "Warning")
        self.notes.append(body["note"])


class Setting:
    """A job and the operator of Lease `OWN`."""

    def __init__(self) -> None:
        self.session = Session()
        self.store = Store()
        kube: Any = self.session
        self.events = Events(kube, "me")
        self.others = OtherOperators(self.store, self.events, OWN)
        worker = {"template": {"spec": {"containers": [{"name": "t", "command": ["t"]}]}}}
        body = {
            "metadata": {"name": "job", "namespace": "ns", "uid": "job", "resourceVersion": "1"},
            "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}},
        }
        self.store.update(ELASTIC_JOBS, body)
        found = self.store.job(JobKey("ns", "job"))
        assert found is not None
        self.job: ElasticJob = found

    def add(self, index: int, mark: str | None) -> Pod:
        name = names.member_pod("job", "worker", index, 0)
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": f"pod-{index}",
            "resourceVersion": "1",
            "labels": pod_labels(identity_of(self.job), MemberIdentity("worker", index, 0)),
            "annotations": {} if mark is None else {names.ANNOTATION_OPERATOR: mark},
            "ownerReferences": [owner_reference(self.job)],
        }
        pod = msgspec.convert({"metadata": metadata}, Pod)
        self.store.update_pod(None, pod)
        return pod

    async def notes(self) -> list[str]:
        """Inspect the job twice; return the notes of all events so far."""
        self.others.inspect(self.job)
        self.others.inspect(self.job)
        await self.events.flush()
        return list(self.session.notes)


async def test_a_pod_of_another_operator_is_reported_once_until_the_job_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setting = Setting()
    setting.others.begin([])
    setting.add(0, OTHER)
    setting.add(1, OTHER)
    [note] = await setting.notes()
    assert OWN in note
    assert OTHER in note
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert setting.store.shared_jobs == {"job"}
    setting.store.forget(setting.job)
    assert setting.store.shared_jobs == set()


@pytest.mark.guarantee("two-installations")
async def test_own_unmarked_and_earlier_pods_are_not_reported() -> None:
    setting = Setting()
    setting.others.begin([setting.add(0, OTHER)])
    setting.add(1, OWN)
    setting.add(2, None)
    assert await setting.notes() == []
    setting.add(3, OTHER)
    assert len(await setting.notes()) == 1


async def test_a_mark_that_a_user_has_written_gives_one_event_of_bounded_length() -> None:
    setting = Setting()
    setting.add(0, "x" * 200_000)
    [note] = await setting.notes()
    assert len(note) < MAX_EVENT_NOTE_BYTES
    assert note.endswith("remove one of the two operators")
