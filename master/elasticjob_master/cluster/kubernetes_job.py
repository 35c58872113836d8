"""The master's side of Kubernetes: reads its ElasticJob and the ScalePlans, writes progress and plans of its own.

Whatever the API server does, training goes on: nothing here is waited for by an agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_kube.session import Kube, connect

from elasticjob_master.cluster import job_spec, scaling_spec
from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import ScalingDecision

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_FINAL_PROGRESS_SECONDS = 3.0
_AGAIN_SECONDS = 5.0


@asynccontextmanager
async def open_job(config: Config, controller: Controller) -> AsyncIterator[KubernetesJob]:
    """Connect to the API server as the pod may."""
    async with connect(user_agent=f"{names.MASTER}/{config.job_name}", connections=8) as kube:
        yield KubernetesJob(kube, config, controller)


class KubernetesJob:
    """The ElasticJob of this master, and its plans."""

    def __init__(self, kube: Kube, config: Config, controller: Controller) -> None:
        self.kube = kube
        self._config = config
        self._controller = controller
        self._job: ElasticJob | None = None
        self._told: dict[str, Any] = {}
        self._written_at = 0.0
        self._asked: asyncio.Queue[tuple[str, ScalingDecision]] = asyncio.Queue()
        self._jobs = Informer(
            kube,
            ELASTIC_JOBS,
            ElasticJob,
            namespace=config.namespace,
            field_selector=f"metadata.name={config.job_name}",
            on_change=self._job_changed,
        )
        self._plans = Informer(kube, SCALE_PLANS, ScalePlan, namespace=config.namespace, on_change=self._plan_changed)
        self._mine: dict[str, ScalePlan] = {}
        controller.autoscaler.ask = self._ask

    def work(self) -> list[Awaitable[object]]:
        """Return what has to run as long as the master does."""
        return [
            self._jobs.run(),
            self._plans.run(),
            self._write_progress(),
            self._make_plans(),
        ]

    async def write_final_progress(self) -> None:
        """Write the progress as it is at the end."""
        try:
            async with asyncio.timeout(_FINAL_PROGRESS_SECONDS):
                await self._tell_progress()
        except TimeoutError:
            log.warning("the last progress is not written: the API server does not answer")

    # --- reading -----------------------------------------------------------------------------------------------------

    def _job_changed(self, _before: ElasticJob | None, after: ElasticJob | None) -> None:
        if after is None or after.metadata.uid != self._config.job_uid:
            return  # the operator ends this pod; agents need nothing from here any more
        self._job = after
        sizes = job_spec.sizes(after)
        self._controller.resize(
            sizes,
            all_ready=after.spec.run_policy.start_policy == "AllReady",
            stop_seconds=job_spec.drain_seconds(after, names.ROLE_WORKER),
        )
        self._controller.set_health(after.spec.health)
        self._update()

    def _plan_changed(self, before: ScalePlan | None, after: ScalePlan | None) -> None:
        plan = after or before
        if plan is None or plan.spec.job_name != self._config.job_name:
            return
        if after is None:
            self._mine.pop(plan.metadata.uid, None)
        else:
            self._mine[plan.metadata.uid] = after
        if after is not None:
            self._note(after)
        self._controller.plans = job_spec.plans(self._mine.values())
        self._update()

    def _note(self, plan: ScalePlan) -> None:
        """Note once that a plan was made, and once that it has ended, whenever this master gets to see it."""
        name, spec, status, history = plan.metadata.name, plan.spec, plan.status, self._controller.history
        made = f"{name} ({spec.source}): {spec.reason}" if spec.reason else f"{name} ({spec.source})"
        if status.phase not in FINISHED:
            if not history.has_event("PlanMade", made):
                self._controller.record_event("PlanMade", made)
        elif history.has_event("PlanMade", made):
            ended = f"{name}: {status.phase}; {status.message}" if status.message else f"{name}: {status.phase}"
            if not history.has_event("PlanEnded", ended):
                self._controller.record_event("PlanEnded", ended)

    def _update(self) -> None:
        """Tell the controller who shall leave, and how the job may be scaled."""
        job = self._job
        if job is None or not self._plans.synced.is_set():
            return  # without all plans a member that stands by would be taken for one that joins
        unfinished = [plan for plan in self._mine.values() if plan.status.phase not in FINISHED]
        self._controller.stand_by(job_spec.standing_by(unfinished))
        self._controller.drain(job_spec.draining(job, unfinished))
        self._controller.autoscaler.scaling = scaling_spec.scaling(job, plan_unfinished=bool(unfinished))
        self._learn(adopts=not self._controller.autoscaler.asking)

    def _learn(self, *, adopts: bool) -> None:
        """Tell the auto-scaler of plans it does not remember, unless it is making one, and how its latest ended."""
        job, scaler = self._job, self._controller.autoscaler
        if job is None:
            return
        numbered = [
            (number, plan) for plan in self._mine.values() if (number := scaling_spec.auto_number(plan, self._config))
        ]
        for number, plan in sorted(numbered, key=lambda item: item[0]):
            if number > scaler.plans_emitted and adopts:
                scaler.adopt(number, scaling_spec.wanted_size(job, plan))
            if plan.status.phase in FINISHED:
                scaler.ended(scaling_spec.ended(job, plan, number))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _write_progress(self) -> None:
        controller, told = self._controller, None
        while True:
            findings = (controller.stall.since, controller.stragglers, controller.unfit_pods())
            if findings != told or controller.now() - self._written_at >= PROGRESS_SECONDS:
                told = findings
                await self._tell_progress()
            await asyncio.sleep(_LOOK_SECONDS)

    def _progress(self) -> dict[str, Any]:
        controller = self._controller
        return job_spec.progress(
            controller.progress,
            controller.now(),
            stalled_since=controller.stall.since,
            stragglers=controller.stragglers,
            unfit=controller.unfit_pods(),
        )

    async def _tell_progress(self) -> None:
        """Write the progress if it has changed."""
        progress = self._progress()
        if progress == self._told:
            return
        self._written_at = self._controller.now()
        body = {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            # With the UID nothing is written to another job that has got this job's name.
            "metadata": {"name": self._config.job_name, "uid": self._config.job_uid},
            # A finding that is gone before the first step leaves nothing, and the API server takes no empty object.
            "status": {"progress": progress or {"step": 0}},
        }
        try:
            await self.kube.patch(
                ELASTIC_JOBS,
                self._config.namespace,
                self._config.job_name,
                body,
                kind="apply-patch",
                subresource="status",
                field_manager=names.MASTER,
                force=True,
            )
        except NotFound:
            log.info("the ElasticJob is gone")
        except KubeError as error:
            log.warning("progress is not written, trying again: %s", error)
            return
        self._told = progress

    def _ask(self, role: str, decision: ScalingDecision) -> None:
        self._asked.put_nowait((role, decision))

    async def _make_plans(self) -> None:
        await self._plans.synced.wait()
        self._update()
        while True:
            role, decision = await self._asked.get()
            scaler = self._controller.autoscaler
            number = scaler.plans_emitted + 1
            try:
                made = await self.kube.create(
                    SCALE_PLANS, self._config.namespace, scaling_spec.plan(self._config, number, role, decision)
                )
            except AlreadyExists:
                # An earlier master made it and had no time to remember, or it is an earlier job's of this name.
                await self._refresh()
                self._learn(adopts=True)
                scaler.plans_emitted = max(number, scaler.plans_emitted)
                scaler.answered(None)
            except KubeError as error:
                log.warning("no ScalePlan for now: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
                self._learn(adopts=True)  # it may have been made, and only the answer got lost
                scaler.answered(None)
            else:
                log.info("ScalePlan %s-auto-%d made", self._config.job_name, number)
                scaler.plans_emitted = max(number, scaler.plans_emitted)
                scaler.answered(decision)
                self._plans.observe(msgspec.convert(made, ScalePlan))

    async def _refresh(self) -> None:
        try:
            await self._plans.refresh()
        except KubeError as error:
            log.warning("the ScalePlans cannot be listed: %s", error)
