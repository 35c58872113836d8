"""The master's side of Kubernetes.

Watches its ElasticJob and the ScalePlans, creates the auto-scaler's plans.
Whatever the API server does, training goes on: nothing here is waited for by an agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.ownership import may_be_of_job
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_kube.errors import AlreadyExists, KubeError
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_kube.session import Kube, connect

from elasticjob_master.cluster import auto_plans, job_spec, scaling_spec
from elasticjob_master.cluster.profile_keeper import ProfileKeeper
from elasticjob_master.cluster.progress_writer import ProgressWriter
from elasticjob_master.cluster.report_writer import ReportWriter
from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import ScalingDecision

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0


@asynccontextmanager
async def open_job(
    config: Config, controller: Controller, answers: Callable[[], StoredAnswers]
) -> AsyncIterator[KubernetesJob]:
    """Connect to the API server as the pod may.

    `answers` are stored for the time without a master.
    """
    async with connect(user_agent=f"{names.MASTER}/{config.job_name}", connections=8) as kube:
        yield KubernetesJob(kube, config, controller, answers)


class KubernetesJob:
    """The ElasticJob of this master, and its plans."""

    def __init__(
        self,
        kube: Kube,
        config: Config,
        controller: Controller,
        answers: Callable[[], StoredAnswers],
    ) -> None:
        self.kube = kube
        self._config = config
        self._controller = controller
        self._scaling = controller.scaling
        self._job: ElasticJob | None = None
        self._decisions: asyncio.Queue[tuple[str, ScalingDecision]] = asyncio.Queue()
        self._progress = ProgressWriter(kube, config, controller)
        self._profile = ProfileKeeper(kube, config, controller.scaling)
        self._report = ReportWriter(kube, config, controller, answers)
        self._jobs = Informer(
            kube,
            ELASTIC_JOBS,
            ElasticJob,
            namespace=config.namespace,
            field_selector=f"metadata.name={config.job_name}",
            on_change=self._job_changed,
        )
        self._plans = Informer(
            kube, SCALE_PLANS, ScalePlan, namespace=config.namespace, on_change=self._plan_changed
        )
        self._scaling.on_decision = lambda role, decision: self._decisions.put_nowait(
            (role, decision)
        )

    def tasks(self) -> list[Awaitable[object]]:
        """Return what has to run as long as the master does."""
        return [
            self._jobs.run(),
            self._plans.run(),
            self._progress.run(),
            self._profile.run(),
            self._report.run(),
            self._create_plans(),
        ]

    async def write_final(self) -> None:
        """Write the progress and the answers as they are at the end, and what later jobs may learn from this one."""
        await asyncio.gather(
            self._progress.write_final_progress(),
            self._profile.write_final(),
            self._report.write_final(),
        )

    # --- watching
    # ----------------------------------------------------------------------------------------------------

    def _job_changed(self, _before: ElasticJob | None, after: ElasticJob | None) -> None:
        if after is None or after.metadata.uid != self._config.job_uid:
            return  # the operator ends this pod; agents need nothing from here any more
        self._job = after
        self._profile.profile = after.profile
        self._controller.job_status = after.status
        self._controller.suspended = after.spec.run_policy.suspend
        self._controller.gpus = job_spec.gpus(after)
        self._controller.resize(
            job_spec.sizes(after, known=self._controller.rendezvous.sizes or {}),
            domains=job_spec.domains(after),
            all_ready=after.spec.run_policy.start_policy == "AllReady",
            stop_seconds=job_spec.drain_seconds(after, names.ROLE_WORKER),
        )
        self._controller.set_health(after.spec.health)
        self._apply()

    def _plan_changed(self, before: ScalePlan | None, after: ScalePlan | None) -> None:
        if after is not None and self._is_ours(after):
            self._controller.plan_changed(after, auto_plans.number_of(after, self._config))
        elif before is not None and self._is_ours(before):
            self._controller.plans.remove(before.metadata.uid)
        else:
            return
        self._apply()

    def _is_ours(self, plan: ScalePlan) -> bool:
        """Whether a plan of the namespace is for this job, and not for an earlier one of its name."""
        name = self._config.job_name
        uid = self._config.job_uid
        return plan.spec.job_name == name and may_be_of_job(plan.metadata, name, uid)

    def _apply(self) -> None:
        """Have the controller do what the job and its plans ask for."""
        job = self._job
        if job is None or not self._plans.synced.is_set():
            return  # without all plans a member that stands by would be taken for one that joins
        unfinished = self._controller.plans.unfinished()
        self._controller.stand_by(job_spec.standing_by(unfinished))
        self._controller.drain(job_spec.draining(job, unfinished))
        self._controller.scripts.set(job_spec.script_order(unfinished))
        self._scaling.job_scaling = scaling_spec.job_scaling(job, plan_unfinished=bool(unfinished))
        self._learn_from_plans(adopt=not self._controller.plans.requested)

    def _learn_from_plans(self, *, adopt: bool) -> None:
        """Have the auto-scaler learn how its plans have ended.

        `adopt` those it does not remember.
        """
        job = self._job
        plans = self._controller.plans
        if job is None:
            return
        for number, plan in plans.numbered():
            if number > plans.last_number and adopt:
                if pod := auto_plans.replaced_straggler(plan):
                    self._scaling.adopt_replacement(number, pod, self._controller)
                else:
                    self._scaling.adopt_plan(number, auto_plans.requested_size(job, plan))
            if plan.status.phase in FINISHED:
                self._scaling.plan_ended(auto_plans.ended_plan(job, plan, number))

    # --- creating
    # ----------------------------------------------------------------------------------------------------

    async def _create_plans(self) -> None:
        await self._plans.synced.wait()
        self._apply()
        while True:
            role, decision = await self._decisions.get()
            number = self._controller.plans.next_number
            manifest = auto_plans.manifest(self._config, number, role, decision)
            try:
                created = await self.kube.create(SCALE_PLANS, self._config.namespace, manifest)
            except AlreadyExists:
                # An earlier master made it and had no time to remember, or it is an earlier job's
                # of this name.
                await self._refresh()
                self._learn_from_plans(adopt=True)
                self._scaling.plan_not_created(used_number=number)
            except KubeError as error:
                log.warning("no ScalePlan for now: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._learn_from_plans(
                    adopt=True
                )  # it may have been made, and only the answer got lost
                self._scaling.plan_not_created()
            else:
                log.info("ScalePlan %s-auto-%d made", self._config.job_name, number)
                self._scaling.plan_created(number, decision)
                self._plans.observe(msgspec.convert(created, ScalePlan))

    async def _refresh(self) -> None:
        try:
            await self._plans.refresh()
        except KubeError as error:
            log.warning("the ScalePlans cannot be listed: %s", error)
