"""The operator's HTTP server: /healthz and /readyz for Kubernetes' probes, /metrics for Prometheus.

Every replica serves it from the start of its process, also while it waits for leadership.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from elasticjob_kube.session import Kube
from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.store import JobKey, Store
from elasticjob_operator.work_queue import WorkQueue


@dataclass(eq=False)
class OperatorState(Collector):
    """The state of this process that probes and metrics report.

    Attributes:
        kube: its session.
        ready: whether the API server serves all kinds, so that this process leads or can lead.
        leading: whether it is the leader.
        store: its cache; empty until it leads.
        queue: the jobs to reconcile; None until it leads.
        costs: what its decisions have cost.
    """

    kube: Kube
    ready: bool = False
    leading: bool = False
    store: Store = field(default_factory=Store)
    queue: WorkQueue[JobKey] | None = None
    costs: DecisionCosts = field(default_factory=DecisionCosts)

    def forget(self) -> None:
        """Discard what this process has observed as the leader, which it no longer is."""
        self.leading = False
        self.store = Store()
        self.costs = DecisionCosts()
        self.queue = None

    def describe(self) -> Iterable[Metric]:
        """Return nothing: `collect` names the metrics."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        yield GaugeMetricFamily(
            "elasticjob_operator_leading", "1 for the replica that leads.", value=self.leading
        )
        jobs = GaugeMetricFamily("elasticjob_operator_jobs", "Jobs by phase.", labels=["phase"])
        for phase, number in self.store.count_by_phase().items():
            jobs.add_metric([phase], number)
        yield jobs
        rules = len(self.store.restart_rules)
        yield GaugeMetricFamily(
            "elasticjob_operator_restart_rules", "The cluster's restart rules.", value=rules
        )
        refused = self.store.rules_refused
        text = "1 while the ConfigMap of the restart rules is refused."
        yield GaugeMetricFamily("elasticjob_operator_restart_rules_refused", text, value=refused)
        text = "Jobs on which an operator with another Lease works, too."
        shared = len(self.store.shared_jobs)
        yield GaugeMetricFamily("elasticjob_operator_shared_jobs", text, value=shared)
        busy = 0
        results: Mapping[str, int] = {}
        if self.queue is not None:
            busy = self.queue.busy
            results = self.queue.results
        yield GaugeMetricFamily(
            "elasticjob_operator_busy_jobs", "Jobs that are being reconciled.", value=busy
        )
        rounds = CounterMetricFamily(
            "elasticjob_operator_rounds", "Reconciliations of a job.", labels=["result"]
        )
        for result, number in results.items():
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
        answers = CounterMetricFamily(
            "elasticjob_operator_api_requests",
            "Requests to the API server.",
            labels=["method", "status"],
        )
        for (method, status), number in self.kube.answers.items():
            answers.add_metric([method, str(status)], number)
        yield answers


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

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        if not state.ready:
            text = "the API server does not serve all definitions yet; see the log\n"
            return web.Response(status=503, text=text)
        if not state.leading:
            return web.Response(text="waiting to lead\n")
        return web.Response(text="leading\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=exposition.generate_latest(registry),
            headers={"Content-Type": exposition.CONTENT_TYPE_LATEST},
        )

    application = web.Application(client_max_size=1024)
    application.router.add_get("/healthz", healthy)
    application.router.add_get("/readyz", ready)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, logger=_quiet_logger()
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            raise SystemExit(
                f"elasticjob-operator: --http-port {port}: {error.strerror}"
            ) from error
        yield
    finally:
        await runner.cleanup()


def _quiet_logger() -> logging.Logger:
    """Return a logger that drops aiohttp's errors: invalid requests must not fill the log."""
    logger = logging.getLogger(f"{__name__}.requests")
    logger.setLevel(logging.CRITICAL)
    return logger
