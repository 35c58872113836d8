"""Tests that the store separates a job's objects from those of an earlier job of its name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_operator.core.model.limit_ranges import LimitRange
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.custom_watches import custom_informer
from elasticjob_operator.events import Events
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.store import Store

from tests.support.simulator.fake_kube import FakeKube

KEY = JobKey("ns", "job")


def stored(kind: str, name: str, uid: str, version: int, spec: Json, **metadata: Any) -> Json:
    identity = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"kind": kind, "metadata": {**identity, **metadata}, "spec": spec}


def plan(**metadata: Any) -> Json:
    spec = {"jobName": "job", "createPods": [{"role": "worker"}]}
    return stored("ScalePlan", "plan", "plan-uid", 2, spec, **metadata) | {
        "status": {"phase": "Executing"}
    }


def owner(uid: str) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "name": "job", "uid": uid}


def observed_job(store: Store) -> ElasticJob:
    template = {
        "spec": {"containers": [{"name": "train", "image": "train:1", "command": ["train"]}]}
    }
    spec = {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}}
    store.update(ELASTIC_JOBS, stored("ElasticJob", "job", "new", 1, spec))
    job = store.job(KEY)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("metadata", "observed"),
    [
        ({}, True),
        ({"ownerReferences": [owner("new")]}, True),
        ({"ownerReferences": [owner("old")]}, False),
        ({"labels": {names.LABEL_JOB_UID: "new"}}, True),
        ({"labels": {names.LABEL_JOB_UID: "old"}}, False),
        ({"ownerReferences": [{**owner("somebody"), "kind": "ScaleOut"}]}, True),
    ],
)
def test_a_plan_of_an_earlier_job_does_not_belong_to_a_new_job_of_the_same_name(
    metadata: Json, observed: bool
) -> None:
    store = Store()
    job = observed_job(store)
    store.update(SCALE_PLANS, plan(**metadata))
    assert [item.metadata.name for item in store.observed(job).plans] == ["plan"] * observed


def test_default_limits_are_those_of_all_present_limit_ranges_of_the_namespace() -> None:
    store = Store()
    job = observed_job(store)
    memory = limit_range("a", memory="1Gi")
    cpu = limit_range("b", cpu="1")
    larger = limit_range("d", memory="1025Mi", cpu="no quantity")
    for each in (memory, cpu, larger, limit_range("c", namespace="elsewhere", storage="1Gi")):
        store.update_limit_range(None, each)
    assert store.observed(job).default_limits == {"cpu": "1", "memory": "1Gi"}
    store.update_limit_range(larger, None)
    store.update_limit_range(cpu, limit_range("b"))
    store.update_limit_range(memory, None)
    assert store.observed(job).default_limits == {}


def limit_range(uid: str, *, namespace: str = "ns", **default: str) -> LimitRange:
    metadata = {"name": uid, "namespace": namespace, "uid": uid, "resourceVersion": "1"}
    limits = [
        {"type": "Container", "default": default},
        {"type": "Pod", "max": {"nvidia.com/gpu": 1}},
    ]
    return msgspec.convert({"metadata": metadata, "spec": {"limits": limits}}, LimitRange)


def job_body(phase: str, *, suspend: bool) -> Json:
    container = {"name": "train", "image": "train:1", "command": ["train"]}
    role = {"template": {"spec": {"containers": [container]}}, "replicas": 3}
    spec = {
        "framework": "jax",
        "runPolicy": {"suspend": suspend},
        "master": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}},
        "replicaSpecs": {"worker": role},
    }
    return stored("ElasticJob", "job", "new", 1, spec) | {"status": {"phase": phase}}


async def watched(store: Store, phase: str, *, suspend: bool = False) -> Informer[ElasticJob]:
    """Return the operator's informer of jobs after it has listed one in this phase."""
    kube: Any = FakeKube()
    await kube.create(ELASTIC_JOBS, "ns", job_body(phase, suspend=suspend))
    conditions = OwnConditions(kube, Events(kube, "test"))
    informer: Informer[ElasticJob] = custom_informer(
        kube, Scope(), ELASTIC_JOBS, store, conditions, lambda _: None
    )
    store.update(ELASTIC_JOBS, kube.all(ELASTIC_JOBS)[0])  # as from the answer to a write
    await informer.refresh()
    return informer


@pytest.mark.parametrize(("phase", "suspend"), [("Suspended", False), ("Running", True)])
async def test_store_and_informer_keep_one_copy_of_a_job_that_the_operator_has_written(
    phase: str, suspend: bool
) -> None:
    """The job waits for quota or was resumed, or is suspended and its pods have not ended."""
    store = Store()
    informer = await watched(store, phase, suspend=suspend)
    job = store.job(KEY)
    assert job is not None
    assert job is informer.get(job.metadata.uid)
    assert job.spec.replica_specs["worker"].template["spec"]["containers"][0]["image"] == "train:1"


@pytest.mark.guarantee("one-job-delays-no-other")
@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Suspended"])
async def test_the_templates_of_an_ended_or_suspended_job_are_not_kept(phase: str) -> None:
    store = Store()
    informer = await watched(store, phase, suspend=phase == "Suspended")
    job = store.job(KEY)
    assert job is not None
    assert job is informer.get(job.metadata.uid)
    worker = job.spec.replica_specs["worker"]
    assert (worker.template, worker.replicas) == ({"spec": {"containers": [{}]}}, 3)
    assert job.spec.master.template == {}


def test_the_jobs_of_a_namespace_are_found_until_their_last_object_is_gone() -> None:
    store = Store()
    for space, name in (("ns", "job"), ("ns", "late"), ("other", "job")):
        metadata = {
            "name": name,
            "namespace": space,
            "uid": f"{space}/{name}",
            "resourceVersion": "1",
        }
        store.update(ELASTIC_JOBS, job_body("Running", suspend=False) | {"metadata": metadata})
    assert store.job_keys("ns") == [KEY, JobKey("ns", "late")]
    store.set_aside("ns/late")
    store.forget_uid("ns/job")
    assert store.job_keys("ns") == []
    assert store.job_keys() == store.job_keys("other") == [JobKey("other", "job")]
