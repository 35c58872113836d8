"""Figures about pods that are created: for new jobs, by plans, and in place of lost ones."""

from __future__ import annotations

import asyncio
import time

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from elasticjob_operator.certificates import new_job_secrets
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests import infrastructure
from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.model.actions import CreatePod, PatchJobStatus
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.ensure_infrastructure import part_of

from bench import jobs
from bench.bench_cluster import BenchCluster, until_running
from bench.figure import Result, in_turn, ratio_of
from bench.raw_requests import Request, create_all, send_all

_ROUNDS = 3


async def create_ratio(bench: BenchCluster) -> Result:
    """Compare the creation of a job's 1,000 workers with bare creates of the same pods."""
    workers = 1000
    raw, ours = await in_turn(
        _ROUNDS, lambda: raw_seconds(bench, workers), lambda: seconds_of_jobs(bench, 1, workers)
    )
    pods_per_second = [workers / seconds for seconds in ours]
    bare = [workers / seconds for seconds in raw]
    return ratio_of(pods_per_second, bare, "operator's pods/s over bare creates/s")


async def masters_200(bench: BenchCluster) -> Result:
    """200 jobs with one worker each, until every one has its master."""
    return await _many(bench, 200, 1, role=names.ROLE_MASTER)


async def jobs_100x4(bench: BenchCluster) -> Result:
    """100 jobs with 4 workers each, until all workers have been created."""
    return await _many(bench, 100, 4, role=names.ROLE_WORKER)


async def _many(bench: BenchCluster, number: int, workers: int, *, role: str) -> Result:
    """Measure jobs that are created at the same time.

    The limit is bare creates of jobs and pods. The same requests are all that the operator sends
    until these pods exist.
    """
    pods_each = 1 if role == names.ROLE_MASTER else workers
    limits, ours, same = await in_turn(
        _ROUNDS,
        lambda: _bare_seconds(bench, number, pods_each, role=role),
        lambda: seconds_of_jobs(bench, number, workers, role=role),
        lambda: seconds_of_same_requests(bench, number, workers, role=role),
    )
    return Result(ours, limits, "s", same_requests=same)


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
    raw, deletions, ours = await in_turn(
        _ROUNDS,
        lambda: raw_seconds(bench, lost),
        lambda: _raw_deletion_seconds(bench, lost),
        lambda: _relaunch_seconds(bench, lost),
    )
    same = [sum(each) for each in zip(raw, deletions, strict=True)]
    return Result(ours, raw, "s", same_requests=same)


async def _relaunch_seconds(bench: BenchCluster, lost: int) -> float:
    async with bench.running_job(2 * lost) as (namespace, pods):
        await asyncio.sleep(2)  # until the last counts are written
        began = time.perf_counter()
        await _delete(bench, namespace, [f"job-worker-{index}" for index in range(lost)])
        return await pods.wait_for(3 * lost) - began


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
                await until_running(bench.kube, namespace)
                await asyncio.sleep(2)  # until that is written, and observed
            # Without the kubelet from here: the bare creates have none beside them either.
            began = time.perf_counter()
            await bench.kube.create(SCALE_PLANS, namespace, jobs.plan("more", "job", workers))
            ours.append(await pods.wait_for(workers) - began)
            job = await bench.kube.get(ELASTIC_JOBS, namespace, "job")
            plan = await bench.kube.get(SCALE_PLANS, namespace, "more")
        same.append(await _seconds_of_plan_requests(bench, job["status"], plan["status"], workers))
    return Result(ours, raw, "s", same_requests=same)


async def _seconds_of_plan_requests(
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


async def seconds_of_jobs(
    bench: BenchCluster, number: int, workers: int, *, role: str = names.ROLE_WORKER
) -> float:
    """Return the seconds from the first job's creation until the role's last pod is created."""
    async with (
        bench.namespace() as namespace,
        bench.operator(namespace),
        bench.pods(namespace) as pods,
    ):
        bodies = [jobs.job(f"job-{index}", workers) for index in range(number)]
        began = time.perf_counter()
        await create_all(bench.cluster, ELASTIC_JOBS.path(namespace), bodies)
        total = number * (1 if role == names.ROLE_MASTER else workers)
        return await pods.wait_for(total, role=role) - began


async def _bare_seconds(bench: BenchCluster, number: int, pods_each: int, *, role: str) -> float:
    async with bench.namespace() as namespace, bench.pods(namespace):
        bodies = [jobs.unmanaged(f"raw-{index}", pods_each) for index in range(number)]
        seconds = await create_all(bench.cluster, ELASTIC_JOBS.path(namespace), bodies)
        listed = (await bench.kube.list(ELASTIC_JOBS, namespace))["items"]
        pods = [body for item in listed for body in bare_pods(item, pods_each, role=role)]
        return seconds + await create_all(bench.cluster, PODS.path(namespace), pods)


async def seconds_of_same_requests(
    bench: BenchCluster, number: int, workers: int, *, role: str
) -> float:
    """Return what the operator's requests for new jobs take if a bare client sends them.

    These are all jobs; accounts, Secrets and Services; the first statuses; then the pods.
    """
    async with bench.namespace() as namespace, bench.pods(namespace):
        bodies = [jobs.unmanaged(f"raw-{index}", workers) for index in range(number)]
        seconds = await create_all(bench.cluster, ELASTIC_JOBS.path(namespace), bodies)
        first: list[Request] = []
        statuses: list[Request] = []
        pods: list[Request] = []
        for item in (await bench.kube.list(ELASTIC_JOBS, namespace))["items"]:
            item["spec"]["runPolicy"] = {}
            job = msgspec.convert(item, ElasticJob)
            first += _infrastructure_requests(job, role)
            for action in decide(Observed(job), time.time(), jobs.DEFAULTS).actions:
                if isinstance(action, PatchJobStatus):
                    path = ELASTIC_JOBS.path(namespace, job.metadata.name, "status")
                    statuses.append(Request("PATCH", path, {"status": action.patch}))
                elif isinstance(action, CreatePod):
                    pods.append(Request("POST", PODS.path(namespace), action.body))
                    if role == names.ROLE_MASTER:
                        break  # its pod is the first
        for requests in (first, statuses, pods):
            seconds += await send_all(bench.cluster, requests)
        return seconds


def _infrastructure_requests(job: ElasticJob, role: str) -> list[Request]:
    """Return the creates of what the pods of a role need."""
    parts = ("First",) if role == names.ROLE_MASTER else ("First", "Members")
    namespace = job.metadata.namespace
    content = new_job_secrets(job.metadata.name, namespace)
    found = [infrastructure.secret(job, content), *infrastructure.infrastructure_manifests(job)]
    paths = {each.kind: each.path(namespace) for each in (SECRETS, SERVICE_ACCOUNTS, SERVICES)}
    return [Request("POST", paths[each["kind"]], each) for each in found if part_of(each) in parts]


async def raw_seconds(bench: BenchCluster, workers: int) -> float:
    """Return the time that bare creates of the pods of a job with this number of workers take."""
    async with bench.namespace() as namespace, bench.pods(namespace):
        job = await bench.kube.create(ELASTIC_JOBS, namespace, jobs.unmanaged("raw", workers))
        return await create_all(bench.cluster, PODS.path(namespace), bare_pods(job, workers))


def bare_pods(created: Json, number: int, *, role: str = names.ROLE_WORKER) -> list[Json]:
    """Return the pods that the operator would create for this job."""
    job = msgspec.convert(created, ElasticJob)
    if role == names.ROLE_MASTER:
        master = master_pod(job, 0, restarts=0, defaults=jobs.DEFAULTS)
        # The API server requires an existing service account; the master's own does not exist.
        return [{**master, "spec": {**master["spec"], "serviceAccountName": "default"}}]
    return [
        member_pod(job, role, index, 0, resources={}, restarts=0, defaults=jobs.DEFAULTS)
        for index in range(number)
    ]
