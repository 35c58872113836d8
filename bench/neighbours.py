"""Whether what one tenant writes delays the operator's work for another tenant."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
)

from bench import jobs
from bench.bench_cluster import BenchCluster, until, until_running
from bench.figure import Result
from bench.pod_counter import PodCounter

_LOST = 10
"""How many workers the neighbour loses, one after the other, while a hostile tenant writes; and
again after that.
"""
_SPEC_BYTES = 480 * 1024
"""Nearly the largest spec that the operator accepts."""
_PODS = 3
"""The quota of the hostile namespace, so that its jobs wait and are decided again and again."""


async def replaced(bench: BenchCluster) -> Result:
    """Measure the longest time from a worker's loss to its successor, beside each hostile tenant.

    The limit is the longest time without one.
    """
    alone = await _longest(bench, _nothing)
    hostile = {}
    for tenant in (_large_pods, _many_limits, _many_requests, _suspended):
        hostile[tenant.__name__] = await _longest(bench, tenant)
    for name, seconds in hostile.items():
        sys.stderr.write(f"neighbour_replaced_s beside {name[1:]}: {seconds:.2f}\n")
    return Result([max(hostile.values())], [alone], "s", n=2 * _LOST)


async def _longest(
    bench: BenchCluster, write: Callable[[BenchCluster, str], Coroutine[Any, Any, None]]
) -> float:
    async with (
        bench.namespace() as hostile,
        bench.namespace() as namespace,
        bench.operator(hostile, namespace),
        bench.kubelet(namespace),
        bench.kubelet(hostile),
        bench.pods(namespace) as pods,
    ):
        await bench.start_job(namespace, pods, 2 * _LOST)
        await _limit_pods(bench, hostile)
        writing = asyncio.create_task(write(bench, hostile))
        seconds = [await _replace(bench, namespace, pods, index) for index in range(_LOST)]
        await writing
        for index in range(_LOST, 2 * _LOST):
            seconds.append(await _replace(bench, namespace, pods, index))
        return max(seconds)


async def _replace(bench: BenchCluster, namespace: str, pods: PodCounter, index: int) -> float:
    """Delete a worker, and return the time until it exists again."""
    before = len(pods.created["worker"])
    began = time.perf_counter()
    path = PODS.path(namespace, f"job-worker-{index}")
    await bench.kube.request("DELETE", path, params={"gracePeriodSeconds": "0"})
    seconds = await pods.wait_for(before + 1) - began
    await until_running(bench.kube, namespace)
    return seconds


async def _limit_pods(bench: BenchCluster, namespace: str) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(_PODS)}}}
    await bench.kube.create(RESOURCE_QUOTAS, namespace, quota)

    async def is_counted() -> bool:
        return bool(
            (await bench.kube.get(RESOURCE_QUOTAS, namespace, "few")).get("status", {}).get("used")
        )

    await until("the quota is in force", is_counted)


async def _nothing(bench: BenchCluster, namespace: str) -> None:
    """Write nothing."""


async def _large_pods(bench: BenchCluster, namespace: str) -> None:
    """5,000 workers, each of whose 4,000 variables refers to its rank."""
    body = jobs.job("large", 5000)
    value = "$(ELASTICJOB_RANK)" * (_SPEC_BYTES // 4000 // len("$(ELASTICJOB_RANK)") - 1)
    _container(body)["env"] = [{"name": f"V{n}", "value": value} for n in range(4000)]
    await bench.kube.create(ELASTIC_JOBS, namespace, body)


async def _many_limits(bench: BenchCluster, namespace: str) -> None:
    """A plan for 10,000 workers of 1,000 containers in a job with eight resource limits."""
    resources = ["cpu", "memory", *(f"example.com/r{n}" for n in range(6))]
    limits = dict.fromkeys(resources, "100000000")
    body = jobs.job("limits", 5000, autoscaling={"resourceLimits": limits})
    first = _container(body)
    containers = [{"name": f"c{n}", "image": "i"} for n in range(999)]
    body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"] = [first, *containers]
    await bench.kube.create(ELASTIC_JOBS, namespace, body)
    await bench.kube.create(SCALE_PLANS, namespace, jobs.plan("plan", "limits", 10_000))


async def _many_requests(bench: BenchCluster, namespace: str) -> None:
    """1,000 ScaleOuts and 1,000 ScaleIns of one job."""
    await bench.kube.create(ELASTIC_JOBS, namespace, jobs.job("requests", 2))
    for number in range(1000):
        for resource in (SCALE_OUTS, SCALE_INS):
            spec = {"jobName": "requests", "count": 1}
            body = jobs.manifest(resource, f"request-{number}", spec)
            await bench.kube.create(resource, namespace, body)


async def _suspended(bench: BenchCluster, namespace: str) -> None:
    """Ten suspended jobs with large specs."""
    for number in range(10):
        body = jobs.job(f"suspended-{number}", 2, runPolicy={"suspend": True})
        _container(body)["env"] = [
            {"name": f"LARGE{n}", "value": "x" * (_SPEC_BYTES // 2)} for n in range(2)
        ]
        await bench.kube.create(ELASTIC_JOBS, namespace, body)


def _container(job: Json) -> Json:
    container: Json = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    return container
