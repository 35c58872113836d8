"""HorizontalPodAutoscalers whose bounds do not fit the job that they scale."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.budgets import scaler_problems


@pytest.mark.parametrize(
    ("worker", "autoscaling", "bounds", "problem"),
    [
        ({"replicas": 2}, {}, (4, 8), "takes it from 2 members into 4 to 8 before it measures"),
        ({"replicas": 2}, {"enabled": True}, (1, 8), "works against spec.autoscaling of the job"),
        (
            {"replicas": 2, "maxReplicas": 4},
            {},
            (1, 8),
            "asks for 1 to 8 members; the job allows 1 to 4",
        ),
        ({"replicas": 2, "maxReplicas": 8}, {}, (1, 8), ""),
        ({}, {}, (1, 8), ""),
    ],
)
def test_an_autoscaler_with_other_bounds_than_its_job_is_named(
    worker: dict[str, Any], autoscaling: dict[str, Any], bounds: tuple[int, int], problem: str
) -> None:
    roles = {"worker": {"template": {}, "minReplicas": 1, **worker}}
    spec = {"framework": "jax", "replicaSpecs": roles, "autoscaling": autoscaling}
    job = msgspec.convert({"metadata": {"name": "job"}, "spec": spec}, ElasticJob)
    target = {"kind": "ElasticJob", "name": "job"}
    bounded: dict[str, Any] = {
        "scaleTargetRef": target,
        "minReplicas": bounds[0],
        "maxReplicas": bounds[1],
    }
    of_another_kind = {**bounded, "scaleTargetRef": {**target, "kind": "Job"}}
    scalers = [{"metadata": {"name": "hpa"}, "spec": each} for each in (of_another_kind, bounded)]
    found = list(scaler_problems(scalers, [job]))
    assert len(found) == bool(problem)
    assert problem in "".join(found)
