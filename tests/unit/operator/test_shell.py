"""Tests the operator between its decisions and the API server, on a cluster in memory."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Conflict, NotFound, Refused, TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_operator import pod_executor, work_queue
from elasticjob_operator.core.model.actions import EmitEvent, WriteBackReplicas
from elasticjob_operator.errors import StaleState
from elasticjob_operator.events import Events, Subject
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import Retry, WorkQueue

from tests.support.job_cluster import pod_names
from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster, job_body
from tests.support.simulator.nodes import limit_pods

KEY = JobKey(NAMESPACE, JOB)


def test_a_version_that_the_store_has_already_returns_no_key() -> None:
    body = job_body(2, 1, 6)
    body["metadata"] |= {"uid": "u", "resourceVersion": "5"}
    store = Store()
    assert store.update(ELASTIC_JOBS, body) == KEY
    assert store.update(ELASTIC_JOBS, body) is None, (
        "the watch repeats the answer to a write of our own"
    )
    body["metadata"]["resourceVersion"] = "4"
    assert store.update(ELASTIC_JOBS, body) is None
    body["metadata"]["resourceVersion"] = "6"
    assert store.update(ELASTIC_JOBS, body) == KEY
    assert store.job_keys() == [KEY]
    assert store.change(store.job(KEY), None) == KEY
    assert store.job_keys() == []


async def test_pods_that_a_quota_refuses_do_not_delay_the_next_step_of_a_plan() -> None:
    cluster = Cluster(replicas=3)
    limit_pods(cluster, 1)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.operator.watch()
    with pytest.raises(Retry) as quota:
        await cluster.operator.reconciler.reconcile(KEY)
    assert quota.value.due is None
    await cluster.apply(SCALE_PLANS, "fewer", replicaResourceSpecs={"worker": {"replicas": 2}})
    for _ in ("the job owns the plan", "the plan begins"):
        await cluster.operator.watch()
        with pytest.raises(Retry) as quota:
            await cluster.operator.reconciler.reconcile(KEY)
        assert quota.value.due == 0.0
    assert cluster.kube.objects[SCALE_PLANS, "fewer"]["status"]["startTime"]


async def test_the_operators_own_writes_do_not_shorten_the_pause_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pause in (
        "FIRST_PAUSE_SECONDS",
        "LONGEST_PAUSE_SECONDS",
        "LONGEST_PAUSE_WHEN_CHANGED_SECONDS",
    ):
        monkeypatch.setattr(work_queue, pause, 1000.0)
    cluster = Cluster(replicas=1)
    refused = asyncio.Event()
    tries = list[str]()

    def refusing(resource: Resource, body: Json) -> None:
        if resource == PODS:
            tries.append(body["metadata"]["name"])
            refused.set()
            raise Refused(403, "Forbidden", "exceeded quota")

    def watched() -> None:
        job = copy.deepcopy(cluster.kube.objects[ELASTIC_JOBS, JOB])
        asyncio.get_running_loop().call_soon(saw, job)  # after the answer
        saw(job)  # and before it

    def saw(job: Any) -> None:
        if key := cluster.operator.store.update(ELASTIC_JOBS, job):
            queue.add(key)

    queue: WorkQueue[JobKey] = WorkQueue(cluster.operator.reconciler.reconcile)
    cluster.kube.before_create = refusing
    cluster.kube.after_write = watched
    await cluster.create(ELASTIC_JOBS, cluster._body)
    async with asyncio.timeout(10):
        await refused.wait()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert tries == ["job-master"], (
        "the first refusal stops the others, and nothing is tried before the pause is over"
    )
    await queue.close()


@pytest.mark.guarantee("errors-have-one-meaning")
@pytest.mark.parametrize(
    "error", [NotFound(404, "NotFound", "no such namespace"), TryLater(503, "", "later")]
)
async def test_every_error_of_the_api_server_leads_to_a_retry(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_executor, "_CREATE_RETRY_SECONDS", (0.0,))
    cluster = Cluster(replicas=2)

    def failing(*_: Any) -> None:
        raise error

    await cluster.create(ELASTIC_JOBS, cluster._body)
    cluster.kube.before_create = failing
    await cluster.operator.watch()
    with pytest.raises(Retry, match=str(error)):
        await cluster.operator.reconciler.reconcile(KEY)


async def test_creates_that_conflict_on_a_quota_are_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_executor, "_CREATE_RETRY_SECONDS", (0.0, 0.0))
    cluster = Cluster(replicas=2)
    collided = set[str]()

    def colliding(resource: Resource, body: Json) -> None:
        if resource == PODS and (name := body["metadata"]["name"]) not in collided:
            collided.add(name)
            raise Conflict(409, "Conflict", "the object has been modified: resourcequota")

    cluster.kube.before_create = colliding
    await cluster.start()
    assert pod_names(cluster) == [
        "job-worker-0",
        "job-worker-1",
    ]


@pytest.mark.guarantee("lost-answer-of-a-create")
async def test_a_pod_whose_create_got_no_answer_is_not_created_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch is late, so only a list shows that the pod exists.

    `Cluster.check` runs after every write.
    """
    monkeypatch.setattr(pod_executor, "_CREATE_RETRY_SECONDS", ())
    cluster = Cluster(replicas=1)
    create = cluster.kube.create
    lost = list[str]()

    async def losing(resource: Any, namespace: str | None, body: Any) -> Any:
        answer = await create(resource, namespace, body)
        if resource == PODS and not lost and names.LABEL_INDEX in body["metadata"]["labels"]:
            lost.append(body["metadata"]["name"])
            raise TryLater(0, "TimeoutError", "no answer")
        return answer

    monkeypatch.setattr(cluster.kube, "create", losing)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.operator.watch()
    with pytest.raises(Retry):
        await cluster.operator.reconciler.reconcile(KEY)
    await cluster.operator.reconciler.reconcile(KEY)
    assert pod_names(cluster) == lost


@pytest.mark.guarantee("status-conflicts")
async def test_an_edit_before_the_write_back_is_not_a_refusal() -> None:
    cluster = Cluster(replicas=2)
    await cluster.start()
    job = cluster.operator.store.job(KEY)
    assert job is not None
    cluster.edit_role(replicas=5)
    with pytest.raises(StaleState):
        await cluster.operator.executor.execute(job, [WriteBackReplicas("worker", 3)])
    assert cluster.operator.store.observed(job).last_refusal == ""


async def test_a_request_for_a_job_that_cannot_be_read_waits_with_a_pause() -> None:
    cluster = Cluster()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.create(ELASTIC_JOBS, {**cluster._body, "spec": {"framework": 7}})
    await cluster.operator.watch()
    with pytest.raises(Retry, match="cannot be read"):
        await cluster.operator.reconciler.reconcile(KEY)
    assert "status" not in cluster.kube.objects[SCALE_OUTS, "more"]


@pytest.mark.parametrize(
    ("labels", "job"), [({}, "other"), ({names.LABEL_JOB_UID: "an earlier job"}, JOB)]
)
async def test_a_plan_of_another_job_with_the_name_of_a_needed_plan_is_reported_and_left_alone(
    labels: Any, job: str
) -> None:
    cluster = Cluster(replicas=2)
    await cluster.start()
    generation = cluster.job().metadata.generation + 1
    name = f"{JOB}-spec-{generation}"
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    await cluster.kube.create(
        SCALE_PLANS, NAMESPACE, {"metadata": metadata, "spec": {"jobName": job}}
    )
    cluster.edit_role(replicas=3)
    before = copy.deepcopy(cluster.kube.objects[SCALE_PLANS, name])
    await cluster.operator.watch()
    with pytest.raises(Retry, match="does not belong to this job"):
        await cluster.operator.reconciler.reconcile(KEY)
    assert cluster.kube.objects[SCALE_PLANS, name] == before


BAD_TEMPLATES: list[tuple[Any, str]] = [
    ({}, "spec.replicaSpecs.worker.template.spec.containers: must have at least one container"),
    (
        {"spec": []},
        "spec.replicaSpecs.worker.template: Expected `object | null`, got `array` - at `$.spec`",
    ),
    ({"spec": {"containers": {"name": "train"}}}, "got `object` - at `$.spec.containers`"),
    (
        {"spec": {"containers": [{"command": "train --fast"}]}},
        "got `str` - at `$.spec.containers[0].command`",
    ),
    (
        {"spec": {"containers": [{"command": ["t"], "env": {"A": "b"}}]}},
        "at `$.spec.containers[0].env`",
    ),
    (
        {"spec": {"containers": [{"command": ["t"]}], "terminationGracePeriodSeconds": "9"}},
        "Expected `int | null`",
    ),
    (
        {"spec": {"containers": [{"command": ["t"], "resources": {"limits": {"cpu": "many"}}}]}},
        "spec.replicaSpecs.worker.template: 'many' is not a quantity such as 500m",
    ),
    (
        {"spec": {"initContainers": [{"resources": {"limits": {"memory": "much"}}}]}},
        "spec.replicaSpecs.worker.template: 'much' is not a quantity",
    ),
    ({"metadata": "x", "spec": {"containers": [{"command": ["t"]}]}}, "at `$.metadata`"),
]


@pytest.mark.parametrize(
    ("template", "message"), BAD_TEMPLATES, ids=[message[-40:] for _, message in BAD_TEMPLATES]
)
async def test_an_invalid_template_fails_the_job_and_names_the_field(
    template: Any, message: str
) -> None:
    cluster = Cluster(replicas=2, worker={"template": template})
    await cluster.start()
    assert cluster.job().status.phase == "Failed"
    assert message in cluster.job().status.message
    assert cluster.kube.all(PODS) == []


async def test_a_change_of_size_is_logged_once_and_is_an_event_of_the_job_and_of_the_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    cluster = Cluster(replicas=2)
    await cluster.start()
    why = "it is slow:\nERROR a line that is none"
    await cluster.apply(
        SCALE_PLANS, "more", reason=why, replicaResourceSpecs={"worker": {"replicas": 3}}
    )
    await cluster.settle()
    await cluster.operator.executor.events.flush()
    sent = [(each["reason"], each["regarding"]["kind"]) for each in cluster.kube.events]
    started = (
        f"{NAMESPACE}/{JOB}: ScalingStarted: more (Manual): worker 2 to 3; {' '.join(why.split())}"
    )
    assert started in caplog.messages
    assert all("\n" not in line for line in caplog.messages)
    for reason in ("ScalingStarted", "ScalingSucceeded"):
        assert {kind for said, kind in sent if said == reason} == {"ElasticJob", "ScalePlan"}


async def test_a_long_note_is_truncated_to_the_limit_of_the_api_server() -> None:
    events = Events(Cluster().operator.session, "me")
    subject = Subject(ELASTIC_JOBS, NAMESPACE, JOB, "uid")
    body = events._body(subject, EmitEvent("Told", "é" * 1000))
    assert 1020 < len(body["note"].encode()) <= 1024
