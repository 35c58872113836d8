"""Prometheus metrics, computed from the job's state at each scrape.

docs/metrics.md lists them; a test compares the list with the served metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from elasticjob_api.v1 import job_pb2 as pb
from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import MemberState
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server import protobuf
from elasticjob_master.server.answers import autoscaling
from elasticjob_master.server.member_metrics import member_metrics

_SHARD_STATES = ("done", "leased", "waiting", "failed")


@dataclass(frozen=True)
class CallCounts:
    """The number of gRPC calls since this master's start, by existing method or by reason."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=lambda: Counter(token=0, right=0, method=0))


class Metrics(Collector):
    """The metrics of one master, in a registry of their own."""

    def __init__(
        self, controller: Controller, state_writer: StateWriter, calls: CallCounts
    ) -> None:
        self._controller = controller
        self._state_writer = state_writer
        self._calls = calls
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry takes the names from `collect`."""
        return ()

    def render(self) -> tuple[bytes, str]:
        """Return the metrics as text, and its content type."""
        return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._job()
        yield from self._autoscaling()
        yield from self._training()
        yield from self._account()
        yield from member_metrics(self._controller)
        yield from self._shards()
        yield from self._master()

    def _job(self) -> Iterator[Metric]:
        controller = self._controller
        states = Counter(member.state for member in controller.members)
        yield _gauges(
            "elasticjob_members",
            "Members by state.",
            "state",
            {state: states[state] for state in get_args(MemberState)},
        )
        yield _gauge(
            "elasticjob_connected_agents", "Agents with an open stream.", len(controller.streams)
        )
        yield _gauge("elasticjob_round", "The present world's round.", controller.rendezvous.round)
        yield _gauge(
            "elasticjob_world_size",
            "Members of the present world.",
            len(controller.rendezvous.world),
        )
        yield _counter(
            "elasticjob_plans_emitted",
            "ScalePlans made by this job.",
            controller.scaling.last_number,
        )
        plans = GaugeMetricFamily(
            "elasticjob_plans", "The job's ScalePlans.", labels=["source", "phase"]
        )
        latest = map(protobuf.plan, controller.scaling.latest_plans)
        for labels, number in Counter((plan.source, plan.phase) for plan in latest).items():
            plans.add_metric(labels, number)
        yield plans
        yield _counters(
            "elasticjob_events",
            "Events since this master's start.",
            "reason",
            controller.history.event_totals,
        )

    def _autoscaling(self) -> Iterator[Metric]:
        controller = self._controller
        known = autoscaling(controller)
        measured = sum(size.samples_per_second > 0 for size in known.sizes)
        yield _gauge(
            "elasticjob_autoscaling_enabled",
            "1 when the auto-scaler may change the job.",
            known.enabled,
        )
        yield _gauge(
            "elasticjob_autoscaling_settled",
            "1 when its search has settled.",
            known.settled_size > 0,
        )
        yield _gauge(
            "elasticjob_autoscaling_measured_sizes",
            "Sizes of which the throughput is known.",
            measured,
        )
        best = {"lowest": known.best_from, "highest": known.best_to}
        yield _gauges(
            "elasticjob_autoscaling_best_size", "The best size; 0: not known.", "bound", best
        )
        yield _gauge(
            "elasticjob_rescale_cost_seconds",
            "Training that a rescale costs; 0: unknown.",
            known.rescale_seconds,
        )
        replaced = len(controller.scaling.replacer.memory.replaced)
        yield _gauge(
            "elasticjob_straggler_replacements", "Stragglers replaced over all masters.", replaced
        )

    def _training(self) -> Iterator[Metric]:
        controller = self._controller
        progress = self._controller.progress
        now = self._controller.now()
        yield _gauge("elasticjob_step", "The last finished step.", progress.step)
        yield _gauge("elasticjob_total_steps", "All steps; 0 when not known.", progress.total_steps)
        rate = progress.samples_per_second(now)
        steps = progress.steps_per_second(now)
        yield _gauge("elasticjob_samples_per_second", "Throughput of all members.", rate)
        yield _gauge("elasticjob_steps_per_second", "How fast the step grows.", steps)
        yield _counter("elasticjob_samples", "Samples trained.", progress.samples)
        reported = progress.reported_at or 0
        yield _gauge(
            "elasticjob_last_report_timestamp_seconds",
            "When a step was last reported; 0: never.",
            reported,
        )
        yield _gauge(
            "elasticjob_stalled",
            "1 when the training is stalled.",
            controller.health_monitor.stalled_since is not None,
        )
        yield _gauge(
            "elasticjob_stragglers",
            "Members much slower than the others.",
            len(controller.health_monitor.stragglers),
        )

        of_training = GaugeMetricFamily(
            "elasticjob_reported_metric", "Metrics that the training reports.", labels=["metric"]
        )
        for name, value in progress.metrics.items():
            of_training.add_metric([name], value)
        yield of_training

    def _account(self) -> Iterator[Metric]:
        account = self._controller.accounting
        # Not a counter: time of training is counted as stalled when the stall is found.
        spent = {
            field.name: account.seconds(field.name) for field in pb.TimeSpent.DESCRIPTOR.fields
        }
        yield _gauges(
            "elasticjob_activity_seconds", "Time of the job by activity.", "activity", spent
        )
        goodput = GaugeMetricFamily(
            "elasticjob_goodput_ratio", "The share of the job's time that was training."
        )
        if account.goodput is not None:
            goodput.add_metric([], account.goodput)
        yield goodput

    def _shards(self) -> Iterator[Metric]:
        shards = GaugeMetricFamily(
            "elasticjob_shards", "Shards by data set and state.", labels=["dataset", "state"]
        )
        returned = CounterMetricFamily(
            "elasticjob_shards_returned", "Leases that ended without a result.", labels=["dataset"]
        )
        for ledger in self._controller.ledgers:
            account = ledger.account()
            for place in _SHARD_STATES:
                shards.add_metric([ledger.dataset.name, place], getattr(account, place))
            returned.add_metric([ledger.dataset.name], account.returned)
        yield shards
        yield returned

    def _master(self) -> Iterator[Metric]:
        controller = self._controller
        state_writer = self._state_writer
        calls = self._calls
        yield _gauge(
            "elasticjob_master_starts", "Starts of this job's master.", controller.master_starts
        )
        yield _counter("elasticjob_heartbeats", "Heartbeats received.", controller.heartbeats)
        yield _counters("elasticjob_grpc_calls", "Calls by method.", "method", calls.accepted)
        yield _counters("elasticjob_grpc_refused_calls", "Refused calls.", "why", calls.refused)
        yield _gauge(
            "elasticjob_state_bytes", "Size of the stored state.", state_writer.stored_bytes
        )
        yield _gauge(
            "elasticjob_state_left_out",
            "Parts that were left out of the stored state.",
            len(state_writer.left_out),
        )
        yield _counter(
            "elasticjob_state_writes", "Times the state was stored.", state_writer.writes
        )
        unstored = state_writer.unstored_seconds()
        yield _gauge(
            "elasticjob_state_unstored_seconds",
            "Age of the oldest change that is not stored.",
            unstored,
        )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counters(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
