"""The master's side of Kubernetes.

Watches the ElasticJob and the ScalePlans, and creates the plans that the master wants. The training
continues whatever the API server does: no agent waits for anything here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.ownership import may_be_of_job
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_kube.errors import AlreadyExists, KubeError
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_kube.session import Kube

from elasticjob_master.cluster import auto_plans, job_spec, scaling_spec
from elasticjob_master.cluster.profile_keeper import ProfileKeeper
from elasticjob_master.cluster.progress_writer import ProgressWriter
from elasticjob_master.cluster.report_writer import ReportWriter
from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts, ObservedPlan, PlanFacts
from elasticjob_master.scaling_control import PlanWish

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_FINAL_SECONDS = 3.0


class KubernetesJob:
    """The ElasticJob of this master, and its plans.

    Args:
        answers: returns what is stored for the time after the master's end.
    """

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
        self._own_plans: dict[str, ScalePlan] = {}
        """The plans of this job by UID."""
        self._wish_made = asyncio.Event()
        self._progress = ProgressWriter(kube, config, controller)
        self._profile = ProfileKeeper(kube, config, controller)
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
        controller.subscribe("plan_wanted", self._wish_made.set)

    def tasks(self) -> list[Awaitable[object]]:
        """Return the tasks that run as long as the master does."""
        return [
            self._jobs.run(),
            self._plans.run(),
            self._progress.run(),
            self._profile.run(),
            self._report.run(),
            self._create_plans(),
        ]

    async def write_final(self) -> None:
        """Write the last progress, the last answers and the job's profile."""
        try:
            async with asyncio.timeout(_FINAL_SECONDS):
                await asyncio.gather(
                    self._progress.write(), self._profile.write(), self._report.write()
                )
        except TimeoutError:
            log.warning("the last writes are not complete: the API server does not answer")

    # --- watching

    def _job_changed(self, _before: ElasticJob | None, after: ElasticJob | None) -> None:
        if after is None or after.metadata.uid != self._config.job_uid:
            return  # the operator ends this pod
        self._job = after
        self._observe()

    def _plan_changed(self, before: ScalePlan | None, after: ScalePlan | None) -> None:
        if after is not None and self._is_ours(after):
            self._own_plans[after.metadata.uid] = after
        elif before is not None and self._is_ours(before):
            self._own_plans.pop(before.metadata.uid, None)
        else:
            return
        if self._plans.synced.is_set():
            self._observe()

    def _is_ours(self, plan: ScalePlan) -> bool:
        """Return whether a plan is for this job, and not for an earlier one of its name."""
        name = self._config.job_name
        uid = self._config.job_uid
        return plan.spec.job_name == name and may_be_of_job(plan.metadata, name, uid)

    def _observe(self) -> None:
        """Pass the present job and its plans to the controller."""
        if self._job is None:
            return
        plans = None
        if self._plans.synced.is_set():
            plans = _plan_facts(self._config, self._job, self._own_plans.values())
        known_sizes = self._controller.facts.sizes or {}
        self._controller.observe_job(_job_facts(self._job, plans, known_sizes, self._config.prices))

    # --- creating

    async def _create_plans(self) -> None:
        await self._plans.synced.wait()
        self._observe()
        while True:
            await self._wish_made.wait()
            self._wish_made.clear()
            wish = self._scaling.wish
            if wish is not None:
                await self._create_plan(wish)

    async def _create_plan(self, wish: PlanWish) -> None:
        manifest = auto_plans.manifest(self._config, wish.number, wish.role, wish.decision)
        try:
            created = await self.kube.create(SCALE_PLANS, self._config.namespace, manifest)
        except AlreadyExists:
            # An earlier master created it and had no time to remember it, or it is of an earlier
            # job of this name.
            await self._refresh()
            self._scaling.plan_not_created(self._controller, wish, number_in_use=True)
        except KubeError as error:
            log.warning("no ScalePlan for now: %s", error)
            # It may have been created, and only the answer was lost: the watch reports it then.
            await asyncio.sleep(_RETRY_SECONDS)
            self._scaling.plan_not_created(self._controller, wish)
        else:
            plan = created["metadata"]["name"]
            log.info("ScalePlan %s made", plan, extra={"plan": plan})
            self._scaling.plan_created(wish)
            self._plans.observe(msgspec.convert(created, ScalePlan))

    async def _refresh(self) -> None:
        try:
            await self._plans.refresh()
        except KubeError as error:
            log.warning("the ScalePlans cannot be listed: %s", error)


def _job_facts(
    job: ElasticJob,
    plans: PlanFacts | None,
    known_sizes: Mapping[str, RoleSize],
    prices: Mapping[str, float],
) -> JobFacts:
    """Return what the job asks of the master. `plans` is None until all plans are known."""
    return JobFacts(
        sizes=job_spec.sizes(job, known=known_sizes),
        domains=job_spec.domains(job),
        all_ready=job.spec.run_policy.start_policy == "AllReady",
        stop_seconds=job_spec.drain_seconds(job, names.ROLE_WORKER),
        health=job.spec.health,
        status=job.status,
        suspended=job.spec.run_policy.suspend,
        gpus=job_spec.gpus(job),
        hourly_costs=job_spec.hourly_costs(job, prices) if prices else None,
        memory_for_state=job_spec.memory_for_state(job),
        own_port=job_spec.own_port(job),
        profile=job.profile,
        plans=plans,
    )


def _plan_facts(config: Config, job: ElasticJob, plans: Iterable[ScalePlan]) -> PlanFacts:
    """Return what all plans of the job ask of the master."""
    observed = tuple(_observed(config, job, plan) for plan in plans)
    unfinished = [each.plan for each in observed if each.unfinished]
    return PlanFacts(
        observed,
        successors=job_spec.successors(unfinished),
        draining=job_spec.draining(job, unfinished),
        script=job_spec.script_order(unfinished),
        scaling=scaling_spec.job_scaling(job, plan_unfinished=bool(unfinished)),
    )


def _observed(config: Config, job: ElasticJob, plan: ScalePlan) -> ObservedPlan:
    number = auto_plans.number_of(plan, config)
    if number is None:
        return ObservedPlan(plan)
    ended = None
    if plan.status.phase in FINISHED:
        ended = auto_plans.ended_plan(job, plan, number)
    return ObservedPlan(
        plan,
        number,
        requested_size=auto_plans.requested_size(job, plan),
        replaced_pod=auto_plans.replaced_straggler(plan),
        ended=ended,
    )
