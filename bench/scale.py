"""Figures about one operator with very many pods and jobs (docs/scale.md)."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec
import psutil
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, PODS
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.partitioning import Partition
from elasticjob_operator.main import OBJECTS_BETWEEN_COLLECTIONS
from elasticjob_operator.store import Store

from bench import jobs
from bench.bench_cluster import BenchCluster
from bench.figure import Result
from bench.pod_creation import raw_seconds, seconds_of_jobs, seconds_of_same_requests

_JOBS = 10_000
_PODS_EACH = 100
_JOBS_PER_NAMESPACE = 10
_EVENTS = 20_000
_MEMBERS = 10_000
_SMALL_JOBS = 30
_PAUSE_SECONDS = 0.3
"""Between two small jobs, so that the large job's pods are created during all of them."""


async def jobs_1000x2(bench: BenchCluster) -> Result:
    """1,000 jobs with two workers each, until all workers have been created.

    The limit is bare creates of as many workers, without jobs and masters. The same requests are
    all that the operator sends until these workers exist.
    """
    ours = await seconds_of_jobs(bench, 1000, 2)
    limit = await raw_seconds(bench, 2000)
    same = await seconds_of_same_requests(bench, 1000, 2, role=names.ROLE_WORKER)
    return Result([ours], [limit], "s", same_requests=[same])


async def beside_10000(bench: BenchCluster) -> Result:
    """Jobs of one worker beside a job of 10,000, until the worker of each has been created.

    The figure is the longest time. The limit is the same without the large job.
    """
    alone = await _small_jobs(bench, 0)
    beside = await _small_jobs(bench, _MEMBERS)
    sys.stderr.write(
        f"beside_10000: median {median(beside):.3f} s; alone: median {median(alone):.3f} s\n"
    )
    return Result([max(beside)], [max(alone)], "s", n=len(beside))


async def _small_jobs(bench: BenchCluster, members: int) -> list[float]:
    """Return the seconds from each small job's creation to that of its worker."""
    async with (
        bench.namespace() as large,
        bench.namespace() as small,
        bench.operator(large, small),
        bench.kubelet(large),
        bench.pods(large) as large_pods,
        bench.pods(small) as pods,
    ):
        if members:
            await bench.kube.create(ELASTIC_JOBS, large, jobs.job("large", members))
            await large_pods.wait_for(1)
        seconds = []
        for number in range(_SMALL_JOBS):
            began = time.perf_counter()
            await bench.kube.create(ELASTIC_JOBS, small, jobs.job(f"job-{number}", 1))
            seconds.append(await pods.wait_for(number + 1) - began)
            await asyncio.sleep(_PAUSE_SECONDS)
        created = len(large_pods.created.get("worker", ()))
        sys.stderr.write(f"{created} of {members} pods of the large job exist at the end\n")
        return seconds


async def pod_kib() -> Result:
    """Measure the memory of a cached pod, with 1,000,000 pods in 10,000 jobs.

    The limit is the size of a pod in JSON.
    """
    before = _rss()
    observed = _Observed()
    size = observed.fill(_JOBS)
    gc.collect()
    pods = _JOBS * _PODS_EACH
    return Result([(_rss() - before) / pods / 1024], [size / 1024], "KiB", n=pods)


async def pod_event_us() -> Result:
    """Measure the CPU time of a changed pod: decoding, cache and store. The limit is decoding."""
    observed = _Observed()
    observed.fill(_JOBS // 10)
    raws = list(observed.changed(_EVENTS))
    decoder = msgspec.json.Decoder(Pod)
    limit = _us_each(lambda raw: decoder.decode(raw), raws)
    ours = _us_each(lambda raw: observed.apply(raw), raws)
    return Result([ours], [limit], "us of CPU", n=_EVENTS)


async def left_out_event_us() -> Result:
    """Measure the CPU time of a changed pod of another partition. The limit is that of a hash."""
    observed = _Observed(Partition(0, 1_000_000))
    raws = list(observed.changed(_EVENTS))
    ours = _us_each(lambda raw: observed.apply(raw), raws)
    partition = Partition(0, 2)
    limit = _us_each(lambda _: partition.has("team-1"), raws)
    return Result([ours], [limit], "us of CPU", n=_EVENTS)


class _Observed:
    """The store and the informer of pods of a leader, without a cluster."""

    def __init__(self, partition: Partition | None = None) -> None:
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        self.store = Store()
        nowhere: Any = None
        self._pods: Informer[Pod] = Informer(
            nowhere, PODS, Pod, only=partition.has if partition else None, on_change=self._on_change
        )
        self._version = 0

    def fill(self, number: int) -> int:
        """Cache this number of jobs with their pods; return the size of a pod in JSON."""
        size = 0
        for index in range(number):
            job = _job(index)
            self.store.update(ELASTIC_JOBS, job)
            for raw in self._bodies(job):
                size = len(raw)
                self.apply(raw)
        return size

    def changed(self, number: int) -> Iterator[msgspec.Raw]:
        """Yield this number of events about pods, job after job."""
        for index in range(number // _PODS_EACH):
            yield from self._bodies(_job(index))

    def apply(self, raw: msgspec.Raw) -> None:
        """Handle an event of the watch."""
        self._pods._apply("MODIFIED", raw)

    def _on_change(self, before: Pod | None, after: Pod | None) -> None:
        self.store.update_pod(before, after)

    def _bodies(self, body: Json) -> Iterator[msgspec.Raw]:
        job = msgspec.convert(body, ElasticJob)
        template = member_pod(job, "worker", 0, 0, resources={}, restarts=0, defaults=jobs.DEFAULTS)
        text = json.dumps(template | {"status": _status()})
        for index in range(_PODS_EACH):
            self._version += 1
            pod = json.loads(text)
            name = f"{job.metadata.name}-worker-{index}"
            pod["metadata"] |= {
                "name": name,
                "namespace": job.metadata.namespace,
                "uid": f"uid-{name}",
                "resourceVersion": str(self._version),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            pod["metadata"]["labels"][names.LABEL_INDEX] = str(index)
            yield msgspec.Raw(msgspec.json.encode(pod))


def _job(index: int) -> Json:
    body = jobs.job(f"job-{index}", _PODS_EACH)
    namespace = f"team-{index // _JOBS_PER_NAMESPACE}"
    body["metadata"] |= {
        "namespace": namespace,
        "uid": f"uid-job-{index}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return body


def _status() -> Json:
    running = {"name": "train", "state": {"running": {}}, "ready": True, "restartCount": 0}
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [running],
    }


def _us_each(work: Any, raws: list[msgspec.Raw]) -> float:
    began = time.process_time()
    for raw in raws:
        work(raw)
    return 1e6 * (time.process_time() - began) / len(raws)


def _rss() -> int:
    return int(psutil.Process().memory_info().rss)
