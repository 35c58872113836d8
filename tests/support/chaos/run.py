"""Runs one chaos run: a stream of jobs, the faults, and the checks after them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticjob_kube.resources import EVENTS, NAMESPACES
from elasticjob_kube.session import Kube, connect

from tests.conftest import wait_for_defaults
from tests.support.chaos import checks
from tests.support.chaos.cluster import NAMESPACE, OPERATORS, ChaosCluster, chaos_cluster
from tests.support.chaos.faults import Faults
from tests.support.chaos.jobs import Job
from tests.support.chaos.latencies import measure
from tests.support.chaos.object_faults import ObjectFaults
from tests.support.chaos.pod_watch import PodWatch
from tests.support.chaos.pool import SharedPool, in_pool
from tests.support.chaos.record import Record
from tests.support.chaos.samples import account_of, read_logs
from tests.support.chaos.schedule import JobDraw, draw_faults, draw_jobs
from tests.support.chaos.single_copies import SingleCopies
from tests.support.chaos.unended import describe, read_last_lines


@dataclass(frozen=True)
class Options:
    """The settings of a run.

    Attributes:
        seed: decides all draws.
        minutes: how long faults and new jobs come.
        faults: the enabled kinds.
        gap: seconds from one fault to the next, on average.
        jobs_at_a_time: the number of parallel jobs.
        settle_seconds: how long a job may take after the last fault; back-off alone is up to 300 s.
        partitions: the operators' partitions. With several of them they watch all namespaces.
        pool: whether most jobs share an ElasticPool that is too small for them.
    """

    seed: int
    minutes: float
    faults: set[str]
    gap: float = 5.0
    jobs_at_a_time: int = 3
    settle_seconds: float = 480.0
    partitions: int = 1
    pool: bool = False


class Run:
    """A run while its cluster is running."""

    def __init__(
        self,
        options: Options,
        cluster: ChaosCluster,
        kube: Kube,
        pods: PodWatch,
        pool: SharedPool | None,
    ) -> None:
        self.options = options
        self.pool = pool
        self.cluster = cluster
        self.kube = kube
        self.pods = pods
        self.record = cluster.record
        self.live: dict[str, Job] = {}
        copies = SingleCopies(kube, pods, self.live)
        self.faults = Faults(cluster, pods, ObjectFaults(cluster, kube, pods, copies, self.live))

    @property
    def _seconds(self) -> float:
        return self.options.minutes * 60

    async def jobs_and_faults(self) -> None:
        """Run jobs and faults until the time is over, and wait until all jobs have ended."""
        self.record.began = time.monotonic()
        self.record.write("began", monotonic=self.record.began)
        draws = draw_jobs(self.options.seed)
        await asyncio.gather(
            self._all_faults(), *(self._stream(draws) for _ in range(self.options.jobs_at_a_time))
        )

    async def _all_faults(self) -> None:
        async with asyncio.TaskGroup() as injecting:
            for fault in draw_faults(self.options.seed, self._seconds, self.options.gap):
                await asyncio.sleep(max(0.0, fault.at - self.record.seconds))
                if fault.kind in self.options.faults:
                    injecting.create_task(self.faults.inject(fault))

    async def _stream(self, draws: Iterator[JobDraw]) -> None:
        """Run job after job; the first free stream takes the next draw."""
        while self.record.seconds < self._seconds:
            draw = next(draws)
            job = Job(self.cluster, self.kube, draw if self.pool is None else in_pool(draw))
            self.live[job.name] = job
            if self.pool is not None and job.draw.priority is not None:
                self.pool.jobs.add(job.name)
            try:
                await self._one(job)
            finally:
                del self.live[job.name]

    async def _one(self, job: Job) -> None:
        began = self.record.seconds
        self.record.jobs = self.record.jobs + 1
        status = await job.run(max(0.0, self._seconds - began) + self.options.settle_seconds)
        if status is None or status.get("phase") != "Succeeded":
            now = status or await job.status()
            self.record.finding(
                f"{job.name}: {now.get('phase')} and not Succeeded: {now.get('message')!r}"[:600]
            )
            pods = await job.pods()
            logs = await read_last_lines(self.kube, NAMESPACE, pods)
            self.record.write("not ended", job=job.name, status=now, pods=pods, logs=logs)
            for line in describe(pods, logs):
                self.record.say(line)
        else:
            account = account_of(job.draw.program, job.folder, job.draw.samples)
            self.record.samples += account.samples
            self.record.twice += account.again
            for text in account.findings:
                self.record.finding(f"{job.name} ({job.draw.program}): {text}")
            for text in await checks.check_requests(job):
                self.record.finding(f"{job.name}: {text}")
            kills = self.record.kills(job.name)
            rescales = await checks.rescales(job)
            measure(
                self.record.latencies, read_logs(job.folder / "log"), kills, rescales, job.suspended
            )
            self.record.say(f"{job.name} succeeded after {self.record.seconds - began:.0f} s")
        if self.pool is not None:
            self.pool.jobs.discard(job.name)  # pods of a deleted job are nobody's any more
        await job.delete()

    async def after(self) -> None:
        """Check that nothing is left."""
        for event in (await self.kube.list(EVENTS, NAMESPACE))["items"]:
            said = {
                key: event.get(key)
                for key in ("reason", "note", "eventTime", "deprecatedLastTimestamp")
            }
            self.record.write("event", **said, name=(event.get("regarding") or {}).get("name"))
        found = await checks.check_nothing_left(self.cluster, self.kube)
        found += await checks.check_processes(self.pods.uids)
        found += await checks.check_operators(self.cluster)
        for name in OPERATORS:
            text = self.cluster.cluster.log_file(name).read_text(errors="replace")
            found += [
                f"{name} has logged an exception: {line}" for line in checks.errors_in_log(text)
            ]
        for text in found:
            self.record.finding(text)


async def run(options: Options, directory: Path) -> Record:
    """Run, and return the record."""
    record = Record(directory / "actions.jsonl")
    record.write(
        "run",
        seed=options.seed,
        minutes=options.minutes,
        gap=options.gap,
        faults=sorted(options.faults),
    )
    async with _started(options, directory, record) as made:
        await made.jobs_and_faults()
        await made.after()
    record.check_hits(options.faults)
    return record


@contextlib.asynccontextmanager
async def _started(options: Options, directory: Path, record: Record) -> AsyncIterator[Run]:
    async with (
        chaos_cluster(directory, record, options.partitions) as cluster,
        connect(user_agent="elasticjob-chaos", kubeconfig=cluster.cluster.kubeconfig) as kube,
    ):
        await kube.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
        await wait_for_defaults(kube, NAMESPACE)
        (cluster.volume / "tmp").mkdir()
        pods = PodWatch(kube, NAMESPACE, record.finding)
        watching = [asyncio.create_task(pods.run())]
        pool = SharedPool(kube, record.finding) if options.pool else None
        if pool is not None:
            await pool.create()
            watching.append(asyncio.create_task(pool.watch()))
        try:
            yield Run(options, cluster, kube, pods, pool)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            if pool is not None:
                record.say(f"pool: {pool.looks} looks, at most {pool.most} pods")
            for name in OPERATORS:
                (directory / f"{name}.log").write_bytes(cluster.cluster.log_file(name).read_bytes())
