"""Reads an ElasticJob and its ScalePlans into the values that the controller observes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import FINISHED, ScalePlan

from elasticjob_master.cluster import auto_plans, job_spec, scaling_spec
from elasticjob_master.config import Config
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts, ObservedPlan, PlanFacts


def job_facts(
    job: ElasticJob, plans: PlanFacts | None, known_sizes: Mapping[str, RoleSize]
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
        profile=job.profile,
        plans=plans,
    )


def plan_facts(config: Config, job: ElasticJob, plans: Iterable[ScalePlan]) -> PlanFacts:
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
