"""Figures about what the operator writes, counted by the API server itself.

The API server counts every request by kind and verb, from every client. Only what other parts of
the bench and of the cluster write is left out: the status of pods (the fake kubelet) and endpoints
(their controllers). The operator's Lease is left out too: it is renewed every few seconds for as
long as the operator runs. Anything else that is written counts, so the figures can come out too
high, never too low.
"""

from __future__ import annotations

import asyncio
import re
import sys

from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube

from bench.bench_cluster import BenchCluster
from bench.figure import Result

_WORKERS = 500
_REST_SECONDS = 30
_VERBS = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_OTHERS = {("pods", "status"), ("endpoints", ""), ("endpointslices", ""), ("leases", "")}
_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
Counts = dict[tuple[str, str, str], int]


async def writes_per_worker(bench: BenchCluster) -> Result:
    """Count all writes from the creation of a job with 500 workers until all are ready.

    The count ends when the operator writes nothing any more.
    """
    async with (
        bench.namespace() as namespace,
        bench.operator(namespace),
        bench.kubelet(namespace),
        bench.pods(namespace) as pods,
    ):
        before = await _counts(bench.kube)
        await bench.start_job(namespace, pods, _WORKERS)
        await _wait_until_quiet(bench.kube)
        writes = _since(before, await _counts(bench.kube))
        await _check_all_ready(bench.kube, namespace)
    mine = writes.get(("elasticjobs", "", "POST"), 0)  # the job itself
    return Result([(sum(writes.values()) - mine) / _WORKERS], [1], "writes per worker")


async def writes_at_rest(bench: BenchCluster) -> Result:
    """All writes in half a minute in which a job runs and nothing happens."""
    async with bench.running_job(50):
        await _wait_until_quiet(bench.kube)
        before = await _counts(bench.kube)
        await asyncio.sleep(_REST_SECONDS)
        writes = _since(before, await _counts(bench.kube))
    for (resource, subresource, verb), number in writes.items():
        sys.stderr.write(f"written at rest: {number} x {verb} {resource} {subresource}\n")
    value = sum(writes.values())
    return Result([value], [0], f"writes in {_REST_SECONDS} s", ratio=0 if value else 1)


async def _wait_until_quiet(kube: Kube) -> None:
    """Wait until nothing has been written for five seconds."""
    before = await _counts(kube)
    unchanged = 0
    while unchanged < 5:
        await asyncio.sleep(1)
        now = await _counts(kube)
        unchanged = 0 if now != before else unchanged + 1
        before = now


async def _check_all_ready(kube: Kube, namespace: str) -> None:
    status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
    if status["workers"] != f"{_WORKERS}/{_WORKERS}":
        raise RuntimeError(f"the job rests with {status['workers']} workers: {status}")


async def _counts(kube: Kube) -> Counts:
    """Return how many write requests of each kind the API server has answered since its start."""
    counts: Counts = {}
    for line in _LINE.finditer((await kube.request("GET", "/metrics")).decode()):
        label = dict(_LABEL.findall(line["labels"]))
        kind = label["resource"], label["subresource"]
        if label["verb"] in _VERBS and kind not in _OTHERS:
            key = (*kind, label["verb"])
            counts[key] = counts.get(key, 0) + int(float(line["count"]))
    return counts


def _since(before: Counts, after: Counts) -> Counts:
    return {
        key: number - before.get(key, 0)
        for key, number in after.items()
        if number > before.get(key, 0)
    }
