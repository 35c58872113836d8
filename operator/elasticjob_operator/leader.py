"""The work of the leader of a partition: the watches, the queue of jobs, and the writes."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_kube.errors import TryLater
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube
from elasticjob_kube.trace_export import TraceExport

from elasticjob_operator.cluster_watches import (
    QuotaWatch,
    watch_limit_ranges,
    watch_nodes,
    watch_pools,
    watch_priorities,
)
from elasticjob_operator.config import Config
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.custom_watches import custom_informer
from elasticjob_operator.ended_log import EndedLog
from elasticjob_operator.errors import StorageRestored
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.http_server import Led
from elasticjob_operator.infrastructure_watch import InfrastructureWatch
from elasticjob_operator.job_keys import Custom, JobKey
from elasticjob_operator.other_operators import OtherOperators
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.pool_sharing import PoolSharing
from elasticjob_operator.queue_watches import QueueWatch
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.rules_watch import RulesWatch
from elasticjob_operator.store import TYPES
from elasticjob_operator.traces import Traces
from elasticjob_operator.work_queue import WorkQueue
from elasticjob_operator.workload_executor import WorkloadExecutor

log = logging.getLogger(__name__)
_POOL_REST_SECONDS = 0.3
"""The pause between two decisions about a pool: what changes at once is decided at once."""


class Leader:
    """Watches and reconciles the jobs of a scope while this process holds its Lease.

    The watches start first. When everything is listed, all jobs are put into the queue (`_begin`).
    From then on each change that a watch reports puts its job into the queue. When the leadership
    shall end, work in progress is finished (`_finish`), and `run` returns.
    """

    def __init__(
        self, kube: Kube, config: Config, scope: Scope, led: Led, traces: TraceExport
    ) -> None:
        kube = kube.guarded(self._check_storage)
        self._config = config
        self._scope = scope
        self._store = led.store
        self._all_listed = asyncio.Event()
        self._rewound = asyncio.Event()
        self._nodes_answered = asyncio.Event()
        self._pools_answered = asyncio.Event()
        self._priorities_answered = asyncio.Event()
        self._traces = Traces(traces, self._store, kube.clock.now)
        self._ended_log = EndedLog(sys.stdout if config.ended_log else None, kube.clock.now)
        self._events = Events(kube, config.identity)
        self._conditions = OwnConditions(kube.low_priority(), self._events)
        self._pods = Informer(
            kube,
            PODS,
            Pod,
            namespace=scope.namespace,
            only=scope.only,
            label_selector=names.LABEL_JOB_UID,
            on_change=self._on_pod_change,
            on_rewound=self._rewound.set,
        )
        self._customs = [
            custom_informer(
                kube,
                scope,
                resource,
                self._store,
                self._conditions,
                self._on_job_change,
                self._on_custom_change,
                self._rewound.set,
            )
            for resource in TYPES
        ]
        self._quota: QuotaWatch | None = None
        self._queues: QueueWatch | None = None
        workloads: WorkloadExecutor | None = None
        if config.kueue:
            self._quota = QuotaWatch(kube, self._store, scope, self._on_job_change)
            self._queues = QueueWatch(kube, self._store, scope.namespace, self._on_queues_change)
            workloads = WorkloadExecutor(kube, self._quota.workloads)
        executor = Executor(
            kube,
            self._store,
            PodExecutor(kube, self._pods, self._store.pods, self._events, config.lease),
            self._events,
            config.network_policies,
            workloads,
        )
        defaults = Defaults(
            master_image=config.master_image,
            agent_image=config.agent_image,
            log_format=config.log_format,
            collector=config.collector if traces.is_on else {},
            prices=config.prices,
            currency=config.currency,
        )
        reconciler = Reconciler(kube, self._store, executor, defaults, led.costs)
        self._queue = WorkQueue(
            reconciler.reconcile,
            self._on_reconciled,
            led.costs.pause,
            log_fields=lambda key: {"job": str(key)},
        )
        led.queue = self._queue
        self._rules = RulesWatch(kube, self._store, self._events, config.lease_namespace)
        self._infrastructure = InfrastructureWatch(kube, self._store, self._queue.add)
        self._sharing = PoolSharing(kube, self._store, self._on_job_change)
        self._pools: WorkQueue[JobKey] = WorkQueue(
            self._sharing.reconcile,
            rest=lambda key: max(_POOL_REST_SECONDS, self._sharing.costs.pause(key)),
        )
        self._others = OtherOperators(self._store, self._events, config.lease)
        self._kube = kube

    async def run(self, ending: asyncio.Event) -> None:
        """Watch and reconcile until `ending` is set. Nothing is written after the return.

        Raises:
            CancelledError: the lease is lost; work in progress is cancelled at once.
            StorageRestored: a watch has found that the cluster's storage was restored.
            Exception: the error of a watch, which should never end.
        """
        tasks = [asyncio.create_task(work) for work in self._work(ending)]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await self._pools.abort()
            await self._queue.abort()
            await self._conditions.writes.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _work(self, ending: asyncio.Event) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the watches, which never end, and the wait for the end."""
        yield self._end_if_rewound()
        yield self._finish_when(ending)
        yield self._begin()
        kube = self._kube
        config = self._config
        for informer in (self._pods, *self._customs):
            yield informer.run()
        yield watch_nodes(
            kube, self._store, self._on_job_change, self._nodes_answered, self._on_nodes_change
        )
        yield watch_pools(kube, self._scope.namespace, self._on_pool_change, self._pools_answered)
        yield watch_priorities(kube, self._store, self._priorities_answered)
        yield self._rules.run()
        if self._quota is not None:
            yield from self._quota.tasks()
        if self._queues is not None:
            yield from self._queues.tasks()
        yield watch_limit_ranges(kube, self._store, self._scope)
        yield from self._infrastructure.tasks(self._scope, network_policies=config.network_policies)

    def _check_storage(self) -> None:
        """Raise if the storage may have been restored since the pods were listed.

        Until a failed watch has found that it was not, the cached jobs may be gone: the first watch
        that lists again would let this operator make their deleted objects once more.

        Raises:
            TryLater: the write must wait for the watch of pods.
        """
        if self._rewound.is_set() or not self._pods.is_trusted:
            message = "not written: the watch of pods failed; the storage may have been restored"
            raise TryLater(0, "Unconfirmed", message)

    async def _end_if_rewound(self) -> None:
        await self._rewound.wait()
        raise StorageRestored("the cluster's storage was restored; everything is listed again")

    async def _begin(self) -> None:
        """Put all jobs into the queue when everything is listed; never returns.

        A job whose pods are not listed yet would get duplicates.
        """
        for informer in (self._pods, *self._customs):
            await informer.synced.wait()
        await self._nodes_answered.wait()
        await self._pools_answered.wait()
        await self._priorities_answered.wait()
        await self._rules.first()
        if self._quota is not None:
            await self._quota.first()
        self._others.begin(self._pods)
        self._all_listed.set()
        jobs = self._store.job_keys()
        log.info("everything is listed; reconciling %d jobs", len(jobs))
        for key in jobs:
            self._queue.add(key)
        self._on_nodes_change()
        await asyncio.Event().wait()

    async def _finish_when(self, ending: asyncio.Event) -> None:
        await ending.wait()
        log.info("ending: finishing the work in progress")
        await self._pools.close()
        await self._queue.close()
        await self._conditions.writes.close()
        await self._events.flush()

    def _on_job_change(self, key: JobKey) -> None:
        if self._all_listed.is_set():
            self._queue.add(key)
            self._share_again(key.namespace)

    def _share_again(self, namespace: str) -> None:
        for pool in self._store.pools.keys(namespace):
            self._pools.add(pool)

    def _on_pool_change(self, before: ElasticPool | None, after: ElasticPool | None) -> None:
        """Decide again about pools, and about jobs that may have another one now."""
        pool = after or before
        assert pool is not None
        concerned = self._store.pools.update(before, after)
        if self._queues is not None and pool.spec.cluster_queue:
            self._queues.begin()
        if self._all_listed.is_set():
            for namespace in concerned:
                for key in self._store.job_keys(namespace):
                    self._queue.add(key)
            for namespace in {pool.metadata.namespace, *concerned}:
                self._share_again(namespace)
            self._pools.add(JobKey(pool.metadata.namespace, pool.metadata.name))

    def _on_queues_change(self) -> None:
        if self._all_listed.is_set():
            pools = self._store.pools
            for pool in pools.all_pools():
                if pool.spec.cluster_queue and pools.leads(pool.metadata.namespace):
                    self._pools.add(JobKey(pool.metadata.namespace, pool.metadata.name))

    def _on_nodes_change(self) -> None:
        if self._all_listed.is_set():
            for pool in self._store.pools.all_keys():
                self._pools.add(pool)

    def _on_pod_change(self, before: Pod | None, after: Pod | None) -> None:
        if key := self._store.update_pod(before, after):
            self._on_job_change(key)
        self._ended_log.pod_changed(before, after)
        self._traces.pod_changed(key, before, after)

    def _on_custom_change(self, before: Custom | None, after: Custom | None) -> None:
        self._ended_log.custom_changed(before, after)
        self._traces.custom_changed(before, after)

    def _on_reconciled(self, key: JobKey, error: BaseException | None) -> None:
        self._share_again(key.namespace)  # the watch does not report the operator's own writes
        if (job := self._store.job(key)) is not None:
            self._conditions.reconciled(job, error)
            self._others.inspect(job)
