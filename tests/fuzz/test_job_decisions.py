"""Decides about random jobs that the schema takes, as the operator does: no job may fail it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.model.observed import Observed

from tests.support.crd_schema import problems
from tests.support.fuzz.random_resources import RandomResources
from tests.support.hostile_jobs import DEFAULTS, NOW, metadata
from tools.generate import definitions


def draw(made: RandomResources, schema: Json) -> Json | None:
    """Return the spec of a random job; None if the API server would refuse it."""
    try:
        spec: Json = msgspec.json.decode(made.body(ELASTIC_JOBS, "job"))["spec"]
    except (msgspec.DecodeError, ValueError, RecursionError, KeyError, TypeError):
        return None
    if problems(spec, schema["properties"]["spec"]):
        return None
    templates = [role.get("template") or {} for role in spec["replicaSpecs"].values()]
    return spec if all((each.get("spec") or {}).get("containers") for each in templates) else None


def job_of(spec: Json, **status: Any) -> ElasticJob:
    body = {"metadata": metadata("job"), "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(body), type=ElasticJob)


@pytest.mark.guarantee("bad-input-is-refused")
def test_no_job_that_the_schema_takes_fails_the_decision_about_it(inputs: int, seed: int) -> None:
    schema: Json = definitions()[ELASTIC_JOBS.plural]["spec"]["versions"][0]["schema"]
    schema = schema["openAPIV3Schema"]
    made = RandomResources(random.Random(seed), {ELASTIC_JOBS: schema}, ("job",))
    taken: Counter[str] = Counter()
    for _ in range(inputs // 4):
        spec = draw(made, schema)
        if spec is None:
            continue
        try:
            jobs = [job_of(spec)]
        except msgspec.ValidationError:  # the operator sets such a job aside
            continue
        if validation_error(jobs[0]) is None:
            begun = {"desired": 2, "indices": "0-1", "highestIndex": -1}
            statuses = dict.fromkeys(spec["replicaSpecs"], begun)
            jobs.append(job_of(spec, phase="Running", replicaStatuses=statuses))
        for job in jobs:
            decision = decide(Observed(job), NOW, DEFAULTS)
            taken.update(type(action).__name__ for action in decision.actions)
    print(dict(taken))
    assert taken["CreatePod"] > 0
