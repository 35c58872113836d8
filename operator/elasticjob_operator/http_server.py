"""The operator's HTTP server: /healthz and /readyz for Kubernetes' probes, /metrics for Prometheus.

Every replica serves it from the start of its process, also while it waits for leadership.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from elasticjob_kube.guarded_server import GuardedServer, healthy
from elasticjob_kube.session import Kube
from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from elasticjob_operator.core.partitioning import Partition
from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.job_metrics import job_metrics
from elasticjob_operator.pool_metrics import pool_metrics
from elasticjob_operator.pool_store import PoolStore
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import WorkQueue


@dataclass
class Led:
    """What this process has observed of a partition that it leads.

    Attributes:
        costs: what the decisions of this process have cost.
        store: the cache.
        queue: the jobs to reconcile; None until the leader has begun.
    """

    costs: DecisionCosts
    store: Store
    queue: WorkQueue[JobKey] | None = None


@dataclass(eq=False)
class OperatorState(Collector):
    """The state of this process that probes and metrics report.

    Attributes:
        kube: its session.
        partitions: the number of partitions of the installation.
        ready: whether the API server serves all kinds, so that this process leads or can lead.
        led: the partitions that it leads.
        costs: what its decisions have cost.
    """

    kube: Kube
    partitions: int = 1
    ready: bool = False
    led: dict[Partition, Led] = field(default_factory=dict)
    costs: DecisionCosts = field(default_factory=DecisionCosts)
    _earlier_rounds: Counter[str] = field(default_factory=Counter)

    def lead(self, partition: Partition) -> Led:
        """Return the state of a partition that this process leads from now on."""
        store = Store(pools=PoolStore(partition.has))
        return self.led.setdefault(partition, Led(self.costs, store))

    def forget(self, partition: Partition) -> None:
        """Discard what this process has observed as the leader of a partition, if it was."""
        led = self.led.pop(partition, None)
        if led is None:
            return
        self.costs.forget_all(partition.has)
        if led.queue is not None:
            # A counter may begin at 0 again, but not lose a part.
            self._earlier_rounds.update(led.queue.results)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: `collect` names the metrics."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        yield GaugeMetricFamily(
            "elasticjob_operator_leading",
            "Partitions that this replica leads; without partitions 1 for the replica that leads.",
            value=len(self.led),
        )
        yield GaugeMetricFamily(
            "elasticjob_operator_partitions",
            "Partitions of the installation.",
            value=self.partitions,
        )
        stores = [led.store for led in self.led.values()]
        queues = [led.queue for led in self.led.values() if led.queue is not None]
        jobs = GaugeMetricFamily("elasticjob_operator_jobs", "Jobs by phase.", labels=["phase"])
        phases = sum((store.count_by_phase() for store in stores), Counter[str]())
        for phase, number in phases.items():
            jobs.add_metric([phase], number)
        yield jobs
        yield from job_metrics(stores)
        yield from pool_metrics(stores)
        rules = max((len(store.restart_rules) for store in stores), default=0)
        yield GaugeMetricFamily(
            "elasticjob_operator_restart_rules", "The cluster's restart rules.", value=rules
        )
        refused = any(store.rules_refused for store in stores)
        text = "1 while the ConfigMap of the restart rules is refused."
        yield GaugeMetricFamily("elasticjob_operator_restart_rules_refused", text, value=refused)
        text = "Jobs on which an operator with another Lease works, too."
        shared = sum(len(store.shared_jobs) for store in stores)
        yield GaugeMetricFamily("elasticjob_operator_shared_jobs", text, value=shared)
        busy = sum(queue.busy for queue in queues)
        yield GaugeMetricFamily(
            "elasticjob_operator_busy_jobs", "Jobs that are being reconciled.", value=busy
        )
        rounds = CounterMetricFamily(
            "elasticjob_operator_rounds", "Reconciliations of a job.", labels=["result"]
        )
        for result, number in self._rounds(queues).items():
            rounds.add_metric([result], number)
        yield rounds
        seconds = SummaryMetricFamily(
            "elasticjob_decision_seconds",
            "CPU seconds of decisions about a job.",
            labels=["job_namespace", "job_name"],
        )
        for key, cost in self.costs.by_job.items():
            seconds.add_metric([key.namespace, key.name], cost.count, cost.seconds)
        others = self.costs.of_others
        seconds.add_metric(["", ""], others.count, others.seconds)
        yield seconds
        clock = self.kube.clock
        yield GaugeMetricFamily(
            "elasticjob_operator_clock_ahead_seconds",
            "Seconds by which the clock of this replica is ahead of the API server's.",
            value=clock.seconds_ahead(),
        )
        yield CounterMetricFamily(
            "elasticjob_operator_clock_corrections",
            "How often that clock was found wrong, so that the API server's time counts.",
            value=clock.corrections,
        )
        answers = CounterMetricFamily(
            "elasticjob_operator_api_requests",
            "Requests to the API server.",
            labels=["method", "status"],
        )
        for (method, status), number in self.kube.answers.items():
            answers.add_metric([method, str(status)], number)
        yield answers

    def _rounds(self, queues: Iterable[WorkQueue[JobKey]]) -> Counter[str]:
        """Return the numbers of rounds by result, also of partitions that are not led any more."""
        rounds = self._earlier_rounds.copy()
        for queue in queues:
            rounds.update(queue.results)
        return rounds


@asynccontextmanager
async def serve_http(state: OperatorState, port: int) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics inside the `async with`; with port 0, serve nothing.

    Raises:
        SystemExit: the port cannot be opened.
    """
    if not port:
        yield
        return
    registry = CollectorRegistry()
    registry.register(state)
    ProcessCollector(registry=registry)

    async def ready(_: web.Request) -> web.Response:
        if not state.ready:
            text = "the API server does not serve all definitions yet; see the log\n"
            return web.Response(status=503, text=text)
        if not state.led:
            return web.Response(text="waiting to lead\n")
        if state.partitions == 1:
            return web.Response(text="leading\n")
        return web.Response(text=f"leading {len(state.led)} of {state.partitions} partitions\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=exposition.generate_latest(registry),
            headers={"Content-Type": exposition.CONTENT_TYPE_LATEST},
        )

    application = web.Application(client_max_size=1024)
    application.router.add_get("/healthz", healthy)
    application.router.add_get("/readyz", ready)
    application.router.add_get("/metrics", metrics)
    async with listening(application, "--http-port", port):
        yield


@asynccontextmanager
async def listening(
    application: web.Application, option: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve at a port, which this option gives, inside the `async with`.

    Raises:
        SystemExit: the port cannot be opened.
    """
    server = GuardedServer(application, context=context)
    try:
        await server.start([None], port)
    except OSError as error:
        raise SystemExit(f"elasticjob-operator: {option} {port}: {error.strerror}") from error
    try:
        yield
    finally:
        await server.stop()
