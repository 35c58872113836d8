"""Watches objects of the cluster that jobs depend on: nodes, LimitRanges, and the quota of Kueue.

An operator may lack the right to watch them, and the cluster may not serve them. The operator then
works without them, and logs which function is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import (
    ELASTIC_POOLS,
    KUEUE_FLAVORS,
    KUEUE_WORKLOADS,
    LIMIT_RANGES,
    NODES,
    PRIORITY_CLASSES,
)
from elasticjob_kube.session import Kube

from elasticjob_operator.cluster_store import QuotaStore
from elasticjob_operator.core.model.limit_ranges import LimitRange
from elasticjob_operator.core.model.nodes import Node
from elasticjob_operator.core.model.workload import Flavor, Workload
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.pool_store import PriorityClass
from elasticjob_operator.store import Store

log = logging.getLogger(__name__)
_REFUSED_RETRY_SECONDS = 600.0
_RETRY_SECONDS = 1.0


async def watch_nodes(
    kube: Kube,
    store: Store,
    on_job: Callable[[JobKey], None],
    answered: asyncio.Event,
    on_resources: Callable[[], None] = lambda: None,
) -> None:
    """Keep the store's nodes up to date, and report the jobs that a change concerns; never returns.

    `answered` is set when all nodes are listed, or listing them is refused. The operator decides
    nothing before, because a replacement pod must avoid nodes with a problem. Without the right,
    which an operator for one namespace may lack, the operator learns only from the pods'
    DisruptionTarget condition, and later, that they must leave.
    """

    def on_change(before: Node | None, after: Node | None) -> None:
        for key in store.update_node(before, after, on_resources):
            on_job(key)

    nodes = Informer(kube, NODES, Node, on_change=on_change)
    await run_if_allowed(
        nodes, missing="no notice of leaving nodes", grant="nodes", answered=answered
    )


async def watch_pools(
    kube: Kube,
    namespace: str | None,
    on_change: Callable[[ElasticPool | None, ElasticPool | None], None],
    answered: asyncio.Event,
) -> None:
    """Report each ElasticPool that is added, changed or deleted (None afterwards); never returns.

    Those of other partitions are reported, too: only one pool of the cluster counts the nodes.
    `answered` is set when all are listed, or cannot be: no job of a pool may start before. A
    cluster with older definitions has no pools.
    """
    pools = Informer(kube, ELASTIC_POOLS, ElasticPool, namespace=namespace, on_change=on_change)
    grant = "elasticpools.elasticjob.dev"
    await run_if_allowed(
        pools, missing="ElasticPools have no effect", grant=grant, answered=answered
    )


async def watch_priorities(kube: Kube, store: Store, answered: asyncio.Event) -> None:
    """Keep the store's priority classes up to date; never returns.

    `answered` is set when all are listed, or listing them is refused.
    """
    classes = Informer(kube, PRIORITY_CLASSES, PriorityClass, on_change=store.pools.update_priority)
    missing = "all jobs of an ElasticPool have one priority"
    await run_if_allowed(classes, missing=missing, grant="priorityclasses", answered=answered)


async def watch_limit_ranges(kube: Kube, store: Store, scope: Scope) -> None:
    """Keep the store's default limits up to date; never returns.

    No decision waits for them: a pod that is refused because it lacks a limit is created again.
    """
    ranges = Informer(
        kube,
        LIMIT_RANGES,
        LimitRange,
        namespace=scope.namespace,
        only=scope.only,
        on_change=store.update_limit_range,
    )
    await run_if_allowed(
        ranges, missing="default limits of namespaces are not known", grant="limitranges"
    )


class QuotaWatch:
    """Keeps the store's quotas up to date, and reports the jobs that a change concerns.

    While the cluster does not serve Kueue's kinds, jobs without pods wait and others continue.
    """

    def __init__(
        self, kube: Kube, store: Store, scope: Scope, on_job: Callable[[JobKey], None]
    ) -> None:
        quotas = store.quotas = QuotaStore()

        def on_workload(before: Workload | None, after: Workload | None) -> None:
            for key in quotas.update_workload(before, after):
                on_job(JobKey(*key))

        def on_flavor(before: Flavor | None, after: Flavor | None) -> None:
            quotas.update_flavor(before, after)
            for job in store.jobs():
                quota = quotas.of(job)
                if quota is not None and quota.current is not None:
                    on_job(JobKey(job.metadata.namespace, job.metadata.name))

        self.workloads: Informer[Workload] = Informer(
            kube,
            KUEUE_WORKLOADS,
            Workload,
            namespace=scope.namespace,
            only=scope.only,
            label_selector=names.LABEL_JOB_UID,
            on_change=on_workload,
        )
        self._flavors: Informer[Flavor] = Informer(kube, KUEUE_FLAVORS, Flavor, on_change=on_flavor)

    async def first(self) -> None:
        """List once: a job must not seem to have no Workload because none was listed yet."""
        for informer in (self._flavors, self.workloads):
            try:
                await informer.refresh()
            except (NotFound, Refused):
                continue  # the watch logs it
            except KubeError as error:
                log.warning("Kueue: %s; queued jobs wait for it, and running ones continue", error)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the watches, which never return."""
        missing = "jobs with a queue of Kueue neither start nor grow"
        return [
            run_if_allowed(self.workloads, missing=missing, grant="workloads.kueue.x-k8s.io"),
            run_if_allowed(self._flavors, missing=missing, grant="resourceflavors.kueue.x-k8s.io"),
        ]


async def run_if_allowed(
    informer: Informer[Any], *, missing: str, grant: str, answered: asyncio.Event | None = None
) -> None:
    """Run an informer, which needs a right that the operator may lack; never returns.

    If listing is refused, or the cluster does not serve the kind, log this once and try again.

    Args:
        informer: is run when its objects can be listed.
        missing: the function that is missing until then, for the log.
        grant: the resource that must be listed and watched.
        answered: is set when the objects are listed, or cannot be.
    """
    logged = False
    answered = answered or asyncio.Event()
    while True:
        try:
            await informer.refresh()
            break
        except Refused as error:
            if not logged:
                log.warning("%s: %s; grant list and watch of %s", missing, error.message, grant)
                logged = True
            answered.set()
            await asyncio.sleep(_REFUSED_RETRY_SECONDS)
        except NotFound:
            if not logged:
                log.warning("%s: the cluster does not serve %s; trying again", missing, grant)
                logged = True
            answered.set()
            await asyncio.sleep(_RETRY_SECONDS)
        except KubeError:
            await asyncio.sleep(_RETRY_SECONDS)
    if logged:
        log.info("%s can be listed now", grant)
    answered.set()
    await informer.run()
