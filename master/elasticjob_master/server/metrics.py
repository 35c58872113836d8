"""Prometheus metrics, computed from the job's state at each scrape.

docs/metrics.md lists them; a test compares the list with the served metrics.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from elasticjob_api.v1 import job_pb2 as pb
from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import Member, MemberState
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server import answers, protobuf

_GAUGES = {
    "elasticjob_connected_agents": "Agents with an open stream.",
    "elasticjob_round": "The present world's round.",
    "elasticjob_world_size": "Members of the present world.",
    "elasticjob_autoscaling_enabled": "1 when the auto-scaler may change the job.",
    "elasticjob_autoscaling_settled": "1 when its search has settled.",
    "elasticjob_autoscaling_measured_sizes": "Sizes of which the throughput is known.",
    "elasticjob_rescale_cost_seconds": "Training that a rescale costs; 0: unknown.",
    "elasticjob_straggler_replacements": "Stragglers replaced over all masters.",
    "elasticjob_step": "The last finished step.",
    "elasticjob_total_steps": "All steps; 0 when not known.",
    "elasticjob_samples_per_second": "Throughput of all members.",
    "elasticjob_steps_per_second": "How fast the step grows.",
    "elasticjob_last_report_timestamp_seconds": "When a step was last reported; 0: never.",
    "elasticjob_stalled": "1 when the training is stalled.",
    "elasticjob_stragglers": "Members much slower than the others.",
    "elasticjob_master_starts": "Starts of this job's master.",
    "elasticjob_state_bytes": "Size of the stored state.",
    "elasticjob_state_left_out": "Parts that were left out of the stored state.",
    "elasticjob_state_unstored_seconds": "Age of the oldest change that is not stored.",
}
_COUNTERS = {
    "elasticjob_plans_emitted": "ScalePlans made by this job.",
    "elasticjob_samples": "Samples trained.",
    "elasticjob_heartbeats": "Heartbeats received.",
    "elasticjob_state_writes": "Times the state was stored.",
}
MAX_MEMBERS = 200
"""The number of members with series of their own: those with the lowest indices of each role."""
_OF_MEMBERS = {
    "elasticjob_member_step_seconds": "Recent seconds for a step.",
    "elasticjob_member_cpu_cores": "CPU cores in use.",
    "elasticjob_member_memory_bytes": "Memory in use.",
    "elasticjob_member_gpu_utilization_ratio": "Mean use of its GPUs, from 0 to 1.",
    "elasticjob_member_gpu_memory_bytes": "Memory of its GPUs in use.",
    "elasticjob_member_loss": "The metric `loss` that it reported last.",
}
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
        autoscaling = answers.autoscaling(self._controller)
        values = self._values(autoscaling)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(name, text, value=values[name])
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=values[name])
        yield from self._labelled(autoscaling)
        yield from self._plans_and_shards()
        yield from _member_metrics(self._controller)

    def _values(self, autoscaling: pb.Autoscaling) -> Mapping[str, float]:
        """Return the values of the metrics without labels."""
        controller = self._controller
        progress = controller.progress
        state = self._state_writer
        now = controller.now()
        measured = sum(size.samples_per_second > 0 for size in autoscaling.sizes)
        return {
            "elasticjob_connected_agents": len(controller.streams),
            "elasticjob_round": controller.rendezvous.round,
            "elasticjob_world_size": len(controller.rendezvous.world),
            "elasticjob_autoscaling_enabled": autoscaling.enabled,
            "elasticjob_autoscaling_settled": autoscaling.settled_size > 0,
            "elasticjob_autoscaling_measured_sizes": measured,
            "elasticjob_rescale_cost_seconds": autoscaling.rescale_seconds,
            "elasticjob_straggler_replacements": len(controller.scaling.replacer.memory.replaced),
            "elasticjob_step": progress.step,
            "elasticjob_total_steps": progress.total_steps,
            "elasticjob_samples_per_second": progress.samples_per_second(now),
            "elasticjob_steps_per_second": progress.steps_per_second(now),
            "elasticjob_last_report_timestamp_seconds": progress.reported_at or 0,
            "elasticjob_stalled": controller.health_monitor.stalled_since is not None,
            "elasticjob_stragglers": len(controller.health_monitor.stragglers),
            "elasticjob_master_starts": controller.master_starts,
            "elasticjob_state_bytes": state.stored_bytes,
            "elasticjob_state_left_out": len(state.left_out),
            "elasticjob_state_unstored_seconds": state.unstored_seconds(),
            "elasticjob_plans_emitted": controller.scaling.last_number,
            "elasticjob_samples": progress.samples,
            "elasticjob_heartbeats": controller.heartbeats,
            "elasticjob_state_writes": state.writes,
        }

    def _labelled(self, autoscaling: pb.Autoscaling) -> Iterator[Metric]:
        """Yield the metrics with one label."""
        controller = self._controller
        account = controller.accounting
        gauge = GaugeMetricFamily
        counter = CounterMetricFamily
        found = Counter(member.state for member in controller.members)
        states = {state: found[state] for state in get_args(MemberState)}
        yield _family(gauge, "elasticjob_members", "Members by state.", "state", states)
        best = {"lowest": autoscaling.best_from, "highest": autoscaling.best_to}
        text = "The best size; 0: not known."
        yield _family(gauge, "elasticjob_autoscaling_best_size", text, "bound", best)
        events = controller.history.event_totals
        text = "Events since this master's start."
        yield _family(counter, "elasticjob_events", text, "reason", events)
        reported = controller.progress.metrics
        text = "Metrics that the training reports."
        yield _family(gauge, "elasticjob_reported_metric", text, "metric", reported)
        # Not a counter: time of training is counted as stalled when the stall is found.
        spent = {part.name: account.seconds(part.name) for part in pb.TimeSpent.DESCRIPTOR.fields}
        text = "Time of the job by activity."
        yield _family(gauge, "elasticjob_activity_seconds", text, "activity", spent)
        text = "The share of the job's time that was training."
        goodput = GaugeMetricFamily("elasticjob_goodput_ratio", text)
        if account.goodput is not None:
            goodput.add_metric([], account.goodput)
        yield goodput
        accepted = self._calls.accepted
        yield _family(counter, "elasticjob_grpc_calls", "Calls by method.", "method", accepted)
        refused = self._calls.refused
        yield _family(counter, "elasticjob_grpc_refused_calls", "Refused calls.", "why", refused)

    def _plans_and_shards(self) -> Iterator[Metric]:
        plans = GaugeMetricFamily(
            "elasticjob_plans", "The job's ScalePlans.", labels=["source", "phase"]
        )
        latest = map(protobuf.plan, self._controller.scaling.latest_plans)
        for labels, number in Counter((plan.source, plan.phase) for plan in latest).items():
            plans.add_metric(labels, number)
        yield plans
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


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    """Return a metric with a value for each value of its label."""
    family = kind(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _member_metrics(controller: Controller) -> Iterator[Metric]:
    """Yield the metrics of the first members, and how many members have none.

    The labels are role and index, so that a member's series continue when its pod is replaced.
    """
    members = heapq.nsmallest(
        MAX_MEMBERS,
        controller.members,
        key=lambda member: (member.identity.index, member.identity.role),
    )
    families = {
        name: GaugeMetricFamily(name, text, labels=["role", "index"])
        for name, text in _OF_MEMBERS.items()
    }
    now = controller.now()
    for member in members:
        labels = [member.identity.role, str(member.identity.index)]
        loss = controller.progress.loss(member.uid)
        for name, value in _member_values(member, loss, now).items():
            if value is not None:
                families[name].add_metric(labels, value)
    yield from families.values()
    yield GaugeMetricFamily(
        "elasticjob_members_without_metrics",
        "Members without series of their own.",
        value=len(controller.members) - len(members),
    )


def _member_values(member: Member, loss: float | None, now: float) -> dict[str, float | None]:
    """Return a member's values; None where there is none."""
    usage = member.usage
    times = member.step_times
    # A GPU in use holds memory; without one, a series of zeros would look like an idle GPU.
    has_gpu = usage.gpu_memory_bytes > 0
    return {
        "elasticjob_member_step_seconds": times.step_seconds if times.is_known(now) else None,
        "elasticjob_member_cpu_cores": usage.cpu_cores,
        "elasticjob_member_memory_bytes": usage.memory_bytes,
        "elasticjob_member_gpu_utilization_ratio": usage.gpu_percent / 100 if has_gpu else None,
        "elasticjob_member_gpu_memory_bytes": usage.gpu_memory_bytes if has_gpu else None,
        "elasticjob_member_loss": loss,
    }
