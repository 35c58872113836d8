"""Reconciles one job: observe, decide, execute."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube

from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.scaling.request_status import end_without_job
from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.errors import StaleState
from elasticjob_operator.executor import Executor
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import Retry, retry_after

log = logging.getLogger(__name__)
_MAX_CYCLES = 20
"""Consecutive decisions about one job. Then other jobs get their turn, even if this one never
settles.
"""


@dataclass(frozen=True)
class Reconciler:
    """Reconciles jobs with their specs."""

    kube: Kube
    store: Store
    executor: Executor
    defaults: Defaults
    costs: DecisionCosts

    async def reconcile(self, key: JobKey) -> float | None:
        """Decide and execute until there is nothing to do.

        Return the seconds after which to reconcile again, or None.

        Raises:
            Retry: an action failed; reconcile again after a pause.
        """
        for _ in range(_MAX_CYCLES):
            job = self.store.job(key)
            if job is None:
                self.costs.forget(key)
                return await self._end_requests_without_job(key)
            with self.costs.measured(key):
                decision = decide(self.store.observed(job), self.kube.clock.now(), self.defaults)
            if not decision.actions:
                return decision.requeue_after
            try:
                await self.executor.execute(job, decision.actions)
            except StaleState:
                log.debug("%s has changed; deciding again", key)
            except Retry as retry:
                if retry.due is None:
                    # Such as the timeout of a plan whose pods a quota refuses.
                    retry.due = decision.requeue_after
                raise
            if self.costs.pause(key):
                return 0.0  # the queue makes the pause
        return 1.0

    async def _end_requests_without_job(self, key: JobKey) -> float | None:
        """End the plans and requests of a job that does not exist, and later delete them.

        Before that, the API server must confirm that the job does not exist.
        """
        requests = list(self.store.requests(key))
        now = self.kube.clock.now()
        actions, due = end_without_job(key.name, key.namespace, requests, now)
        if not actions:
            return due
        try:
            found = await self.kube.get(ELASTIC_JOBS, key.namespace, key.name)
            self.store.update(ELASTIC_JOBS, found)
            if self.store.job(key) is None:
                raise Retry("the job exists but cannot be read; its plans and requests wait")
            return 0.0
        except NotFound:
            log.info(
                "%s: no such job; ending or deleting %d plans and requests",
                key,
                len(actions),
                extra={"job": str(key)},
            )
        except KubeError as error:
            raise retry_after(error) from error
        for action in actions:
            try:
                await self.executor.execute_on_request(key.namespace, action)
            except StaleState:
                return 0.0
            except KubeError as error:
                raise retry_after(error) from error
        return 0.0  # requests that have ended are deleted later
