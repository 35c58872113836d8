"""Figures about a running job: plans that scale it out, and pods that are lost."""

from __future__ import annotations

import asyncio
import time

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS

from bench import jobs
from bench.bench_cluster import BenchCluster, wait_for_phase
from bench.figure import Result
from bench.pod_creation import bare_pods, raw_seconds
from bench.raw_requests import Request, create_all, send_all

_ROUNDS = 3


async def scaleplan_200(bench: BenchCluster) -> Result:
    """A ScalePlan from no worker to 200, from its creation to the last pod."""
    return await _scaleplan(bench, 200, rounds=_ROUNDS)


async def scaleplan_4(bench: BenchCluster) -> Result:
    """A ScalePlan from no worker to 4."""
    return await _scaleplan(bench, 4, rounds=2 * _ROUNDS + 1)


async def relaunch_30(bench: BenchCluster) -> Result:
    """30 of 60 workers are deleted, all at once; until there are 30 new ones.

    The limit is bare creates; the same requests are the deletions and the creates.
    """
    lost = 30
    raw = []
    ours = []
    same = []
    for _ in range(_ROUNDS):
        creates = await raw_seconds(bench, lost)
        raw.append(creates)
        same.append(creates + await _raw_deletion_seconds(bench, lost))
        async with bench.running_job(2 * lost) as (namespace, pods):
            await asyncio.sleep(2)  # until the last counts are written
            began = time.perf_counter()
            await _delete(bench, namespace, [f"job-worker-{index}" for index in range(lost)])
            ours.append(await pods.wait_for(3 * lost) - began)
    return Result(ours, raw, "s", same_requests=same)


async def _raw_deletion_seconds(bench: BenchCluster, number: int) -> float:
    """Return the time that the deletions take while no operator runs."""
    async with bench.namespace() as namespace, bench.pods(namespace):
        created = await bench.kube.create(ELASTIC_JOBS, namespace, jobs.unmanaged("raw", number))
        pods = bare_pods(created, number)
        await create_all(bench.cluster, PODS.path(namespace), pods)
        began = time.perf_counter()
        await _delete(bench, namespace, [pod["metadata"]["name"] for pod in pods])
        return time.perf_counter() - began


async def _delete(bench: BenchCluster, namespace: str, pods: list[str]) -> None:
    """Delete the pods at the same time, without a grace period."""
    params = {"gracePeriodSeconds": "0"}
    await asyncio.gather(
        *(bench.kube.request("DELETE", PODS.path(namespace, pod), params=params) for pod in pods)
    )


async def _scaleplan(bench: BenchCluster, workers: int, *, rounds: int) -> Result:
    """The limit is bare creates; the same requests are all until the pods exist."""
    raw = []
    ours = []
    same = []
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
            job = await bench.kube.get(ELASTIC_JOBS, namespace, "job")
            plan = await bench.kube.get(SCALE_PLANS, namespace, "more")
        same.append(await _seconds_of_same_requests(bench, job["status"], plan["status"], workers))
    return Result(ours, raw, "s", same_requests=same)


async def _seconds_of_same_requests(
    bench: BenchCluster, job_status: Json, plan_status: Json, workers: int
) -> float:
    """Return what a plan's requests take if a bare client sends them.

    These are the plan, its owner, its status and the job's, one after the other; then the pods.
    """
    async with bench.namespace() as namespace, bench.pods(namespace):
        job = await bench.kube.create(ELASTIC_JOBS, namespace, jobs.unmanaged("raw", workers))
        owner = bare_pods(job, 1)[0]["metadata"]["ownerReferences"]
        plan = SCALE_PLANS.path(namespace, "more")
        requests = [
            Request("POST", SCALE_PLANS.path(namespace), jobs.plan("more", "raw", workers)),
            Request("PATCH", plan, {"metadata": {"ownerReferences": owner}}),
            Request("PATCH", f"{plan}/status", {"status": plan_status}),
            Request("PATCH", ELASTIC_JOBS.path(namespace, "raw", "status"), {"status": job_status}),
        ]
        seconds = [await send_all(bench.cluster, [each], connections=1) for each in requests]
        return sum(seconds) + await create_all(
            bench.cluster, PODS.path(namespace), bare_pods(job, workers)
        )
