"""Watches the Workloads of jobs that Kueue queues, and its ResourceFlavors.

Only where the operator is told to.
Where the cluster does not serve them, jobs that have no pods yet wait, and the others run on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from elasticjob_api import names
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import KUEUE_FLAVORS, KUEUE_WORKLOADS
from elasticjob_kube.session import Kube

from elasticjob_operator.cluster_watches import run_if_allowed
from elasticjob_operator.core.model.workload import Flavor, Workload
from elasticjob_operator.quota_store import QuotaStore
from elasticjob_operator.store import JobKey, Store

log = logging.getLogger(__name__)


class QuotaWatch:
    """Keeps the store's quotas up to date, and reports the jobs with news."""

    def __init__(
        self, kube: Kube, store: Store, namespace: str | None, on_job: Callable[[JobKey], None]
    ) -> None:
        quotas = store.quotas = QuotaStore()

        def on_workload(before: Workload | None, after: Workload | None) -> None:
            for key in quotas.update_workload(before, after):
                on_job(JobKey(*key))

        def on_flavor(before: Flavor | None, after: Flavor | None) -> None:
            quotas.update_flavor(before, after)
            for job in store.jobs():
                if (quota := quotas.of(job)) is not None and quota.current is not None:
                    on_job(JobKey(job.metadata.namespace, job.metadata.name))

        self.workloads: Informer[Workload] = Informer(
            kube,
            KUEUE_WORKLOADS,
            Workload,
            namespace=namespace,
            label_selector=names.LABEL_JOB_UID,
            on_change=on_workload,
        )
        self._flavors: Informer[Flavor] = Informer(kube, KUEUE_FLAVORS, Flavor, on_change=on_flavor)

    async def first(self) -> None:
        """List once, so that no job is taken to have no Workload only because its Workloads are not read yet."""
        for informer in (self._flavors, self.workloads):
            try:
                await informer.refresh()
            except (NotFound, Refused):
                continue  # the watch says so
            except KubeError as error:
                log.warning(
                    "Kueue: %s; jobs with a queue wait for it, and those that run go on", error
                )

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the watches; they never return."""
        missing = "jobs with a queue of Kueue neither start nor grow"
        return [
            run_if_allowed(self.workloads, missing=missing, grant="workloads.kueue.x-k8s.io"),
            run_if_allowed(self._flavors, missing=missing, grant="resourceflavors.kueue.x-k8s.io"),
        ]
