"""Counts the operator's requests, which noise cannot change.

A request that is added here makes each pod or each job dearer, and users wait for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    EVENTS,
    PODS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from tests.support.simulator.cluster import JOB, Cluster, Operator
from tests.support.simulator.fake_kube import FakeKube


class Requests:
    """The operator's session: it keeps each request but Events, as `POST Pod job-worker-0`."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent: list[str] = []
        self._kube = cluster.kube
        cluster.operator = Operator(cast(FakeKube, self))

    def __getattr__(self, name: str) -> Any:
        verb = {"create": "POST", "patch": "PATCH", "delete": "DELETE", "get": "GET"}.get(name)
        method = getattr(self._kube, name)
        return method if verb is None else partial(self._send, verb, method)

    def low_priority(self) -> Requests:
        return self

    async def _send(
        self, verb: str, method: Any, resource: Resource, namespace: str, target: Any, *more: Any,
        subresource: str = "", **options: Any,
    ) -> Any:  # fmt: skip
        name = target if isinstance(target, str) else target["metadata"].get("name")
        if subresource:
            options["subresource"] = subresource
        if resource != EVENTS:
            kind = f"{resource.kind}/{subresource}".rstrip("/")
            self.sent.append(f"{verb} {kind} {name}")
        return await method(resource, namespace, target, *more, **options)

    def until_last(self, kind: str) -> list[str]:
        """Return those until the last one with this beginning, without the ones of this kind."""
        last = max(n for n, request in enumerate(self.sent) if request.startswith(kind))
        return [request for request in self.sent[:last] if not request.startswith(kind)]


async def started(workers: int) -> tuple[Cluster, Requests]:
    """Return a running job, and the requests that the operator sends from now on."""
    cluster = Cluster(replicas=workers, most=None)
    requests = Requests(cluster)
    await cluster.start()
    requests.sent.clear()
    return cluster, requests


async def test_before_the_first_pods_of_a_job_are_what_they_need_and_one_status() -> None:
    cluster = Cluster(replicas=4)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    requests = Requests(cluster)
    await cluster.run_operator()
    pods = [request for request in requests.sent if "Pod" in request]
    assert pods[0] == f"POST Pod {names.master_pod(JOB, 0)}"
    assert sorted(requests.until_last("POST Pod")) == [
        f"PATCH ElasticJob/status {JOB}",
        f"POST Secret {names.master_service(JOB)}",
        f"POST Service {names.master_service(JOB)}",
        f"POST ServiceAccount {names.master_service(JOB)}",
    ]
    assert len(requests.sent) == 5 + 4 + 5 + 1, requests.sent  # pods, before, beside, counts


async def test_before_the_pods_of_a_plan_are_its_owner_its_start_and_the_new_names() -> None:
    cluster, requests = await started(1)
    await cluster.apply(SCALE_PLANS, "more", replicaResourceSpecs={"worker": {"replicas": 5}})
    await cluster.run_operator()
    assert requests.until_last("POST Pod") == [
        "PATCH ScalePlan more",
        "PATCH ScalePlan/status more",
        f"PATCH ElasticJob/status {JOB}",
    ]


async def test_before_the_pods_of_a_request_are_its_plan_and_what_makes_it_run_once() -> None:
    cluster, requests = await started(1)
    await cluster.apply(SCALE_OUTS, "more", count=4)
    await cluster.run_operator()
    (plan,) = (item["metadata"]["name"] for item in cluster.kube.all(SCALE_PLANS))
    assert requests.until_last("POST Pod") == [
        "PATCH ScaleOut more",
        f"POST ScalePlan {plan}",
        "PATCH ScaleOut/status more",
        f"PATCH ScalePlan/status {plan}",
        f"PATCH ElasticJob/status {JOB}",
    ]


@pytest.mark.parametrize("lost", [1, 30])
async def test_lost_pods_cost_one_look_and_one_create_each_and_one_status_together(
    lost: int,
) -> None:
    cluster, requests = await started(40)
    for index in range(lost):
        cluster.kube.remove(PODS, f"job-worker-{index}")
    await cluster.run_operator()
    cluster.now += 60
    await cluster.run_operator()
    sent = requests.sent
    assert [sum(each.startswith(kind) for each in sent) for kind in ("GET", "POST")] == [lost, lost]
    assert len(sent) <= 2 * lost + 3, sent


@pytest.mark.parametrize("workers", [10, 300])
async def test_a_worker_costs_one_write(workers: int) -> None:
    cluster = Cluster(replicas=workers, most=None)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    requests = Requests(cluster)
    await cluster.settle()
    assert len(requests.sent) - workers <= 20, requests.sent[-30:]
