"""What users write does not decide how much work one decision is, or how much memory it takes."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests.validation import MAX_SPEC_BYTES, validation_error
from elasticjob_operator.core.members.reconcile import MAX_CREATED_BYTES, MAX_CREATES
from elasticjob_operator.core.model.actions import CreatePod, DeleteScaling, PatchStatus
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling.request_status import MAX_ENDED
from elasticjob_operator.core.scaling.resolve import resolve
from elasticjob_operator.core.scaling.waiting_queue import MAX_WAITING

from tests.support.hostile_jobs import (
    DEFAULTS,
    NOW,
    metadata,
    plans,
    running_job,
    scale_ins,
    scale_outs,
    template_of,
)
from tests.support.work import counted


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
        if isinstance(action, DeleteScaling)
    ]
    assert deleted == ["out-00000", "out-00001"]


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
        return counted(lambda: resolve(job, Pods(), plan))[1]

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
