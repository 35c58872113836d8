"""Prometheus metrics, read from the state when somebody scrapes; nothing is counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elasticjob_master.controller import Controller


class Metrics(Collector):
    """The metrics of one master, in a registry of their own."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance: the names are in `collect`."""
        return ()

    def render(self) -> tuple[bytes, str]:
        """Return the exposition and its content type."""
        return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Read the state."""
        controller = self._controller
        progress, now = controller.progress, controller.now()
        members = GaugeMetricFamily("elasticjob_members", "Members by state.", labels=["state"])
        for state, count in Counter(member.state for member in controller.members).items():
            members.add_metric([state], count)
        yield members
        for name, text, value in (
            ("elasticjob_round", "The present world's round.", controller.rendezvous.round),
            ("elasticjob_world_size", "Members of the present world.", len(controller.rendezvous.world)),
            ("elasticjob_step", "The last finished step.", progress.step),
            ("elasticjob_total_steps", "All steps; 0 when not known.", progress.total_steps),
            ("elasticjob_samples_per_second", "Throughput of all members.", progress.samples_per_second(now)),
            ("elasticjob_master_starts", "Starts of this job's master.", controller.starts),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily("elasticjob_samples", "Samples trained.", value=progress.samples)
        shards = GaugeMetricFamily("elasticjob_shards", "Shards by data set and state.", labels=["dataset", "state"])
        for ledger in controller.ledgers:
            account = ledger.account()
            for place, count in (("done", account.done), ("leased", account.leased), ("waiting", account.waiting)):
                shards.add_metric([ledger.dataset.name, place], count)
        yield shards
