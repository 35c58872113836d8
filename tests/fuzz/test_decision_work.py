"""Draws jobs with thousands of variables, members or requests, and counts the work of a decision.

The work may grow with what users have written, and with the members, but not with the product of
two of them.
"""

from __future__ import annotations

import random
from dataclasses import astuple, dataclass
from functools import partial

import msgspec
import pytest
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.members.reconcile import MAX_CREATED_BYTES
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling.resolve import resolve

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

pytestmark = pytest.mark.guarantee("one-job-delays-no-other")
MOST_LIMITS = 8
FIXED_CALLS = 1_000_000
"""As many as 4 MiB of pods need, of which one decision makes no more."""
CALLS_OF_A_THING = 300
MOST_BYTES = 2 * MAX_CREATED_BYTES
"""Templates have half of a pod's bytes or more; the operator adds the other fields."""


@dataclass(frozen=True)
class Shape:
    """How often a job has each thing of which users choose the number."""

    variables: int = 1
    containers: int = 1
    limits: int = 1
    members: int = 2
    requests: int = 1


def work_of(shape: Shape) -> tuple[int, int]:
    """Return the calls of a decision and of a plan's check, and the bytes of pods to create."""
    template = template_of(shape.variables, containers=shape.containers)
    limits = {f"example.com/r{n}": "1000000" for n in range(shape.limits)}
    job = running_job(shape.members, template=template, autoscaling={"resourceLimits": limits})
    outs = scale_outs(shape.requests)
    observed = Observed(
        job,
        plans=plans(shape.requests, outs[: shape.requests // 2]),
        scale_ins=scale_ins(shape.requests),
        scale_outs=outs,
    )
    sizes = {"replicaResourceSpecs": {"worker": {"replicas": 2 * shape.members}}}
    plan = {"metadata": metadata("plan"), "spec": {"jobName": "job", **sizes}}
    checked = partial(resolve, job, Pods(), msgspec.convert(plan, ScalePlan))
    decision, calls = counted(partial(decide, observed, NOW, DEFAULTS))
    made = sum(
        len(msgspec.json.encode(action.body))
        for action in decision.actions
        if isinstance(action, CreatePod)
    )
    return calls + counted(checked)[1], made


def check(shape: Shape) -> None:
    calls, made = work_of(shape)
    assert calls < FIXED_CALLS + CALLS_OF_A_THING * sum(astuple(shape)), shape
    assert made < MOST_BYTES, shape


@pytest.mark.parametrize(
    "shape",
    [
        Shape(variables=4000, members=2000),
        Shape(containers=500, limits=MOST_LIMITS, members=2000),
        Shape(requests=2000),
    ],
)
def test_no_decision_costs_the_product_of_two_numbers(shape: Shape) -> None:
    check(shape)


def test_no_decision_about_a_random_job_costs_the_product_of_two_numbers(
    inputs: int, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(inputs // 250):
        most = Shape(4000, 500, MOST_LIMITS, 2000, 1000)
        check(Shape(*(rng.choice((1, rng.randint(1, number))) for number in astuple(most))))
