"""Tests what the admission webhook says about jobs, and that it lets pass what it cannot judge."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.errors import NotFound
from elasticjob_operator import admission_review
from elasticjob_operator.certificates import new_admission_secrets
from elasticjob_operator.core.admission import Verdict, judge_job, judge_request
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.model.observed import Observed

from tests.support.simulator.cluster import job_body

ALONE = "spec.replicaSpecs.worker.dependsOn: worker wait for each other"


def job(*, needs: str = "", status: Json | None = None, **spec: Any) -> ElasticJob:
    body = job_body(2, 1, 2, **spec)
    body["spec"]["replicaSpecs"]["worker"]["dependsOn"] = [needs] if needs else []
    return msgspec.convert({**body, "status": status or {}}, ElasticJob)


@pytest.mark.guarantee("refused-at-the-door")
@pytest.mark.parametrize(
    ("after", "before", "refusal"),
    [
        (job(needs="worker"), None, ALONE),
        (job(needs="worker"), job(), ALONE),
        (job(needs="worker", runPolicy={"suspend": True}), job(needs="worker"), ""),
        (job(needs="worker", status={"phase": "Failed"}), job(), ""),
        (job(needs="worker", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), None, ""),
        (job(), job(needs="worker"), ""),
    ],
    ids=["new", "edited", "was so before", "ended", "of another controller", "repaired"],
)
def test_an_error_is_refused_where_it_comes_in_and_never_keeps_a_job_from_being_repaired(
    after: ElasticJob, before: ElasticJob | None, refusal: str
) -> None:
    assert judge_job(after, before).refusal.startswith(refusal)
    assert bool(judge_job(after, before).refusal) == bool(refusal)


@pytest.mark.guarantee("refusals-name-the-bound")
def test_webhook_and_operator_refuse_options_of_torchrun_with_the_same_text() -> None:
    refused = job(framework="pytorch")
    container = refused.spec.replica_specs["worker"].template["spec"]["containers"][0]
    container |= {"command": ["torchrun", "--nnodes=2", "train.py"]}
    refusal = judge_job(refused, None).refusal
    assert refusal.endswith(
        "the agent sets '--nnodes=2' for torchrun in each world; remove it, and set replicas in "
        "place of --nnodes"
    )
    assert refusal == validation_error(refused)


def test_an_auto_scaler_that_has_no_choice_gets_a_warning() -> None:
    [warning] = judge_job(
        job(worker={"minReplicas": 2}, autoscaling={"enabled": True}), None
    ).warnings
    assert "minReplicas and maxReplicas are both 2" in warning
    assert judge_job(job(autoscaling={"enabled": True}), None) == Verdict()


def test_a_job_that_kubernetes_cannot_scale_or_count_gets_a_warning() -> None:
    template = {"spec": {"containers": [{"name": "train", "image": "i", "command": ["train"]}]}}
    spec = {"framework": "custom", "replicaSpecs": {"sweep": {"template": template}}}
    sweep = msgspec.convert({"metadata": {"name": "sweep"}, "spec": spec}, ElasticJob)
    [warning] = judge_job(sweep, None).warnings
    assert "no role worker" in warning
    assert "a PodDisruptionBudget with maxUnavailable or a percentage allows no" in warning


def test_plans_of_operator_and_masters_and_of_a_job_that_is_not_begun_pass() -> None:
    spec = {"jobName": "job", "removePods": [{"role": "ps", "index": 0}]}
    plan = msgspec.convert({"metadata": {"namespace": "n"}, "spec": spec}, ScalePlan)
    assert judge_request(None, plan).refusal.startswith("spec.jobName: there is no ElasticJob")
    assert judge_request(Observed(job()), plan) == Verdict()
    auto = msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, source="Auto"))
    assert judge_request(None, auto) == Verdict()


async def test_an_object_that_no_decoder_can_read_is_not_judged() -> None:
    deep = (
        '{"request": {"uid": "u", "kind": {"kind": "ElasticJob"}, "namespace": "n", "object": %s}}'
    )
    nested = "[" * 100_000 + "]" * 100_000
    with pytest.raises((ValueError, RecursionError)):
        await admission_review.answer(None, (deep % nested).encode())  # type: ignore[arg-type]


class NothingStored:
    """An API server that has no object."""

    async def get(self, *_: Any, **__: Any) -> None:
        raise NotFound(404, "NotFound", "it does not exist")

    get_cached_metadata = get


@pytest.mark.parametrize(
    ("pod", "fields"),
    [
        ({"imagePullSecrets": [{}, {"name": "mine"}]}, ["imagePullSecrets: there is no Secret"]),
        ({"imagePullSecrets": [{"name": None}]}, []),
        ({"imagePullSecrets": None, "serviceAccount": "old"}, ["there is no ServiceAccount 'old'"]),
        ({"serviceAccountName": None}, ["there is no ServiceAccount 'default'"]),
    ],
)
async def test_what_a_job_leaves_empty_does_not_let_it_pass_unjudged(
    pod: Json, fields: list[str]
) -> None:
    body = job_body(2, 1, 2)
    body["spec"]["replicaSpecs"]["worker"]["template"]["spec"] |= pod
    question = {"uid": "u", "kind": {"kind": "ElasticJob"}, "namespace": "n", "object": body}
    asked = msgspec.json.encode({"request": question})
    answer = await admission_review.answer(NothingStored(), asked)  # type: ignore[arg-type]
    warnings = msgspec.json.decode(answer)["response"]["warnings"]
    assert len(warnings) == len(fields)
    assert all(field in warning for field, warning in zip(fields, warnings, strict=True))


def test_the_path_of_the_webhook_is_one_that_a_service_may_have() -> None:
    token = new_admission_secrets("webhook", "ns")[names.SECRET_TOKEN]
    assert re.fullmatch(rb"[a-z0-9]{64}", token), "the API server refuses other letters"


DESCRIBED = """
import asyncio, sys, threading
import msgspec
from elasticjob_operator.admission_review import answer

def see(frame, event, _):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        print("described in a thread:", frame.f_locals["obj"])

threading.setprofile(see)
asyncio.run(answer(None, sys.stdin.buffer.read()))
"""


def test_the_threads_of_the_webhook_are_never_the_first_to_read_a_type() -> None:
    body = job_body(2, 1, 2)
    pod = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = "9"  # refused, so nothing is asked of an API server
    question = {"uid": "u", "kind": {"kind": "ElasticJob"}, "namespace": "n", "object": body}
    asked = msgspec.json.encode({"request": question})
    command = [sys.executable, "-c", DESCRIBED]
    done = subprocess.run(command, input=asked, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"", "two threads that begin with a type at once end the process"
