"""What users write does not decide how much work one decision is, or how much memory it takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests.validation import MAX_SPEC_BYTES, validation_error
from elasticjob_operator.core.members.reconcile import MAX_CREATED_BYTES, MAX_CREATES
from elasticjob_operator.core.model.actions import CreatePod, DeleteScaler, PatchStatus
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.scaling.plan_queue import MAX_WAITING
from elasticjob_operator.core.scaling.request_status import MAX_ENDED
from elasticjob_operator.core.scaling.resolve import resolve

from tests.support.work import counted

Json = dict[str, Any]
NOW = 1_800_000_000.0
DEFAULTS = Defaults(master_image="m:1", agent_image="a:1")
API_VERSION = "elasticjob.dev/v1alpha1"


def metadata(name: str, **more: Any) -> Json:
    created = {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        **created,
        **more,
    }


def running_job(members: int = 2, *, template: Json | None = None, **spec: Any) -> ElasticJob:
    """Return a job that has begun, and has no pods yet."""
    container = {"name": "train", "image": "i:1", "command": ["train"]}
    worker = {"template": template or {"spec": {"containers": [container]}}, "replicas": members}
    replica = {"desired": members, "indices": f"0-{members - 1}", "highestIndex": -1}
    body = {
        "metadata": metadata("job"),
        "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}, **spec},
        "status": {"phase": "Running", "replicaStatuses": {"worker": replica}},
    }
    return msgspec.convert(body, ElasticJob)


def scale_outs(number: int, **status: Any) -> tuple[ScaleOut, ...]:
    return tuple(
        msgspec.convert(
            {
                "metadata": metadata(f"out-{n:05}"),
                "spec": {"jobName": "job", "count": 1},
                "status": status,
            },
            ScaleOut,
        )
        for n in range(number)
    )


def scale_ins(number: int) -> tuple[ScaleIn, ...]:
    return tuple(
        msgspec.convert(
            {"metadata": metadata(f"in-{n:05}"), "spec": {"jobName": "job", "count": 1}}, ScaleIn
        )
        for n in range(number)
    )


def plans(number: int, owners: Sequence[ScaleOut] = ()) -> tuple[ScalePlan, ...]:
    made = []
    for n in range(number):
        references = [
            {
                "apiVersion": API_VERSION,
                "kind": "ScaleOut",
                "name": owner.metadata.name,
                "uid": owner.metadata.uid,
                "controller": True,
            }
            for owner in owners[n : n + 1]
        ]
        body = {
            "metadata": metadata(f"plan-{n:05}", ownerReferences=references),
            "spec": {"jobName": "job", "createPods": [{}]},
        }
        made.append(msgspec.convert(body, ScalePlan))
    return tuple(made)


def crowded(number: int) -> Observed:
    """Return a job with this number of ScaleIns, of ScaleOuts, and of plans of both kinds."""
    outs = scale_outs(number)
    return Observed(
        running_job(),
        plans=plans(number, outs[: number // 2]),
        scale_ins=scale_ins(number),
        scale_outs=outs,
    )


@pytest.mark.guarantee("one-job-delays-no-other")
def test_the_work_of_a_decision_grows_no_faster_than_the_number_of_requests() -> None:
    few, many = [
        counted(partial(decide, observed, NOW, DEFAULTS))[1]
        for observed in (crowded(400), crowded(800))
    ]
    assert many < 2.5 * few


@pytest.mark.guarantee("one-job-delays-no-other")
def test_the_newest_requests_are_refused_when_too_many_wait() -> None:
    observed = Observed(running_job(), scale_outs=scale_outs(MAX_WAITING + 2))
    refused = {
        action.name: action.patch["message"]
        for action in decide(observed, NOW, DEFAULTS).actions
        if isinstance(action, PatchStatus) and action.patch.get("phase") == "ScaleFailed"
    }
    message = (
        "spec.jobName: 500 plans and requests of ElasticJob 'job' wait already, and no more can "
        "wait; create it again when some of them have ended"
    )
    assert refused == {"out-00500": message, "out-00501": message}


@pytest.mark.guarantee("one-job-delays-no-other")
def test_the_requests_that_ended_first_are_deleted_when_a_job_has_too_many() -> None:
    ended = scale_outs(MAX_ENDED + 2, phase="ScaleSucceeded", completionTime="2027-01-15T08:00:00Z")
    observed = Observed(running_job(), scale_outs=ended)
    deleted = [
        action.name
        for action in decide(observed, NOW, DEFAULTS).actions
        if isinstance(action, DeleteScaler)
    ]
    assert deleted == ["out-00000", "out-00001"]


def template_of(variables: int = 0, *, containers: int = 1, value: str = "") -> Json:
    env = [{"name": f"V{n}", "value": value} for n in range(variables)]
    first = {"name": "train", "image": "i:1", "command": ["train"], "env": env}
    others = [{"name": f"c{n}", "image": "i:1"} for n in range(1, containers)]
    return {"spec": {"containers": [first, *others]}}


@pytest.mark.guarantee("one-job-delays-no-other")
def test_a_decision_makes_no_more_bytes_of_pods_than_its_bound() -> None:
    template = template_of(4000, value="$(ELASTICJOB_RANK)" * 13)
    size = len(msgspec.json.encode(template))
    creates = [
        action
        for action in decide(Observed(running_job(5000, template=template)), NOW, DEFAULTS).actions
        if isinstance(action, CreatePod)
    ]
    assert len(creates) == 1 + MAX_CREATED_BYTES // size  # with the master
    members = Observed(running_job(5000))
    small = [
        action for action in decide(members, NOW, DEFAULTS).actions if isinstance(action, CreatePod)
    ]
    assert len(small) == 1 + MAX_CREATES


@pytest.mark.guarantee("one-job-delays-no-other")
def test_a_template_above_the_bound_of_a_decision_still_gets_one_pod() -> None:
    template = template_of(1, value="x" * (MAX_CREATED_BYTES + 1))
    actions = decide(Observed(running_job(3, template=template)), NOW, DEFAULTS).actions
    members = [each for each in actions if isinstance(each, CreatePod) and "worker" in each.name]
    assert [each.name for each in members] == ["job-worker-0"]


@pytest.mark.guarantee("one-job-delays-no-other")
def test_resource_limits_are_checked_without_reading_every_container_of_every_member() -> None:
    resources = ("cpu", "memory", *(f"example.com/r{n}" for n in range(6)))
    autoscaling = {"resourceLimits": dict.fromkeys(resources, "1000000")}
    plan = msgspec.convert(
        {
            "metadata": metadata("plan"),
            "spec": {"jobName": "job", "replicaResourceSpecs": {"worker": {"replicas": 1000}}},
        },
        ScalePlan,
    )

    def work(containers: int) -> int:
        job = running_job(900, template=template_of(containers=containers), autoscaling=autoscaling)
        return counted(lambda: resolve(job, (), plan))[1]

    more = 500
    calls_of_a_container = 10
    assert work(1 + more) - work(1) < 2 * more * len(resources) * calls_of_a_container


@pytest.mark.guarantee("bad-input-is-refused")
def test_a_job_whose_spec_is_too_large_is_refused() -> None:
    template = template_of(1, value="x" * MAX_SPEC_BYTES)
    error = validation_error(running_job(template=template))
    size = len(msgspec.json.encode(running_job(template=template).spec))
    assert error == (
        f"spec: has {size} bytes as JSON, above the 524288 of a job; keep files and long values "
        "in a ConfigMap or in the image, and refer to them"
    )
    assert validation_error(running_job()) is None
