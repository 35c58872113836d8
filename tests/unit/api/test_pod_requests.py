"""What a pod requests: the same number for quota, pools, bounds and the auto-scaler."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.pod_requests import pod_requests, role_requests, template_requests


def container(cpu: int | str, **fields: Any) -> Json:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


def sidecar(cpu: int) -> Json:
    return container(cpu, restartPolicy="Always")


def test_requests_add_up_over_containers_and_fall_back_to_limits() -> None:
    one = {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    two = {"resources": {"limits": {"cpu": 1}}}
    found = pod_requests({"containers": [one, two, {}]})
    assert found == {"cpu": Decimal("1.25"), "memory": Decimal(2**30)}
    assert template_requests({"spec": []}) == {}
    assert template_requests({"spec": {"containers": ["garbage"]}}) == {}


@pytest.mark.parametrize(
    ("first", "cpu"),
    [
        ([], 2),
        ([container(1)], 2),
        ([container(5)], 5),
        ([sidecar(1)], 3),
        ([sidecar(1), container(2)], 3),
        ([sidecar(1), container(4)], 5),
        ([container(4), sidecar(1)], 4),
        ([sidecar(1), sidecar(2), container(1)], 5),
        ([sidecar(1), container(3), sidecar(3)], 6),
    ],
)
def test_sidecars_run_beside_all_that_start_after_them(first: list[Json], cpu: int) -> None:
    found = pod_requests({"initContainers": first, "containers": [container(2)]})
    assert found == {"cpu": Decimal(cpu)}


def test_a_plan_sets_the_first_container_only() -> None:
    pod = {"initContainers": [sidecar(1)], "containers": [container(2), container(4)]}
    body = {
        "metadata": {"name": "job"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {"spec": pod}}}},
        "status": {"replicaStatuses": {"worker": {"resources": {"cpu": "3"}}}},
    }
    assert role_requests(msgspec.convert(body, ElasticJob), "worker")["cpu"] == Decimal(8)
