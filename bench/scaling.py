"""Figures about a running job: plans that scale it out, and pods that are lost."""

from __future__ import annotations

import asyncio
import time

from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS

from bench import jobs
from bench.bench_cluster import BenchCluster, wait_for_phase
from bench.figure import Result, compared
from bench.pod_creation import raw_seconds

_ROUNDS = 3


async def scaleplan_200(bench: BenchCluster) -> Result:
    """A ScalePlan from no worker to 200, from its creation to the last pod."""
    return await _scaleplan(bench, 200, rounds=_ROUNDS)


async def scaleplan_4(bench: BenchCluster) -> Result:
    """A ScalePlan from no worker to 4."""
    return await _scaleplan(bench, 4, rounds=2 * _ROUNDS + 1)


async def relaunch_30(bench: BenchCluster) -> Result:
    """30 of 60 workers are deleted, all at once; until there are 30 new ones."""
    lost = 30
    raw = []
    ours = []
    for _ in range(_ROUNDS):
        raw.append(await raw_seconds(bench, lost))
        async with (
            bench.namespace() as namespace,
            bench.operator(namespace),
            bench.kubelet(namespace),
            bench.pods(namespace) as pods,
        ):
            await bench.kube.create(ELASTIC_JOBS, namespace, jobs.job("job", 2 * lost))
            await pods.wait_for(2 * lost)
            await wait_for_phase(bench.kube, namespace, ELASTIC_JOBS, "job", "Running")
            await asyncio.sleep(2)  # until the last counts are written
            began = time.perf_counter()
            paths = [PODS.path(namespace, f"job-worker-{index}") for index in range(lost)]
            await asyncio.gather(
                *(
                    bench.kube.request("DELETE", path, params={"gracePeriodSeconds": "0"})
                    for path in paths
                )
            )
            ours.append(await pods.wait_for(3 * lost) - began)
    return compared(ours, raw, "s")


async def _scaleplan(bench: BenchCluster, workers: int, *, rounds: int) -> Result:
    raw = []
    ours = []
    for _ in range(rounds):
        raw.append(await raw_seconds(bench, workers))
        async with (
            bench.namespace() as namespace,
            bench.operator(namespace),
            bench.pods(namespace) as pods,
        ):
            async with bench.kubelet(namespace):
                await bench.kube.create(ELASTIC_JOBS, namespace, jobs.job("job", 0, min_replicas=0))
                await pods.wait_for(1, role=names.ROLE_MASTER)
                await wait_for_phase(bench.kube, namespace, ELASTIC_JOBS, "job", "Running")
                await asyncio.sleep(2)  # until that is written, and observed
            # Without the kubelet from here: the bare creates have none beside them either.
            began = time.perf_counter()
            await bench.kube.create(SCALE_PLANS, namespace, jobs.plan("more", "job", workers))
            ours.append(await pods.wait_for(workers) - began)
    return compared(ours, raw, "s")
