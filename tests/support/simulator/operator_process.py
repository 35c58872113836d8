"""The operator's process in a random history.

Its informer, work queue and reconciler over a session with faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_operator.cluster_watches import watch_nodes
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.custom_watches import custom_informer
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.rules_watch import RulesWatch
from elasticjob_operator.store import TYPES, Store
from elasticjob_operator.work_queue import Retry, WorkQueue

from tests.support.simulator.cluster import DEFAULTS, NAMESPACE, free_of_cost
from tests.support.simulator.faulty_session import FaultySession, Network


class _RecordingStore(Store):
    """Keeps the input of the last decision, so that the order of plans can be checked.

    Its pods change with each watch event, so the UIDs of those that ran are kept, too.
    """

    last: Observed | None = None
    running: frozenset[str] = frozenset()

    def observed(self, job: ElasticJob) -> Observed:
        self.last = super().observed(job)
        running = (pod for pod in self.last.pods if pod.status.phase == "Running")
        self.running = frozenset(pod.metadata.uid for pod in running)
        return self.last


class OperatorProcess:
    """One process of the operator, composed like the real one in leader.py."""

    def __init__(self, network: Network, number: int) -> None:
        self.number = number
        self.dead = False
        self.superseded = False
        self.on_write: Callable[[], None] = lambda: None
        self._network = network
        self._session = FaultySession(network, self)
        kube: Any = self._session
        self.store = _RecordingStore()
        self.pods: Informer[Pod] = Informer(
            kube, PODS, Pod, label_selector=names.LABEL_JOB_UID, on_change=self._on_pod
        )
        self._events = Events(kube, f"operator-{number}")
        conditions = OwnConditions(kube, self._events)
        self._customs = [
            custom_informer(kube, Scope(), resource, self.store, conditions, self._on_job)
            for resource in TYPES
        ]
        executor = Executor(
            kube,
            self.store,
            PodExecutor(kube, self.pods, self.store.pods, self._events, "default/lease"),
            self._events,
        )
        self._reconciler = Reconciler(kube, self.store, executor, DEFAULTS, free_of_cost())
        self._rules = RulesWatch(kube, self.store, self._events, NAMESPACE)
        self._queue: WorkQueue[JobKey] = WorkQueue(self._work)
        self._all_listed = False
        self._nodes_answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        informers = (self.pods, *self._customs)
        kube: Any = self._session
        works = (
            *(each.run() for each in informers),
            watch_nodes(kube, self.store, self._on_job, self._nodes_answered),
        )
        self._tasks = [
            *(asyncio.create_task(work) for work in works),
            asyncio.create_task(self._run()),
        ]

    def kill(self) -> None:
        """End the process as SIGKILL does: it sends no more requests and gets no more answers."""
        self.dead = True
        for task in self._tasks:
            task.cancel()
        self._tasks.append(asyncio.create_task(self._queue.abort()))

    async def _run(self) -> None:
        for informer in (self.pods, *self._customs):
            await informer.synced.wait()
        await self._nodes_answered.wait()
        await self._rules.first()
        self._all_listed = True
        self._tasks.append(asyncio.create_task(self._rules.run()))
        for key in self.store.job_keys():
            self._queue.add(key)

    def _on_job(self, key: JobKey) -> None:
        if self._all_listed:
            self._queue.add(key)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if key := self.store.update_pod(before, after):
            self._on_job(key)

    async def _work(self, key: JobKey) -> float | None:
        """Reconcile; an unexpected error, which the queue would only log, ends the history."""
        try:
            return await self._reconciler.reconcile(key)
        except Retry:
            raise
        except Exception as error:
            asyncio.get_running_loop().fail(error)  # type: ignore[attr-defined]
            raise
