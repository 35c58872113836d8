"""Judges new and edited objects by the rules by which the operator would refuse them later.

The admission webhook gives its users the same text at `kubectl apply` that they would find in a
status. Nothing relies on it: an object that it has let pass is refused by the operator as before.
So it lets pass whatever it cannot judge for certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import why_not_scaled
from elasticjob_api.job_status import ENDED
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_operator.core.invalid_status import decision_on_invalid_status
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.effective_spec import with_roles_of_status, with_sizes
from elasticjob_operator.core.members.failure_policy import restart_rules_error
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused
from elasticjob_operator.core.scaling import plan_manifests
from elasticjob_operator.core.scaling.request_status import no_job
from elasticjob_operator.core.scaling.resolve import resolve

Request = ScalePlan | ScaleIn | ScaleOut


@dataclass(frozen=True)
class Verdict:
    """What is said about an object.

    Attributes:
        refusal: why it is refused; empty if it is not.
        by_size: whether the refusal depends on the job's size, which plans that come first change.
        warnings: what is legal and probably wrong.
    """

    refusal: str = ""
    by_size: bool = False
    warnings: tuple[str, ...] = ()


def judge_job(job: ElasticJob, before: ElasticJob | None) -> Verdict:
    """Judge a job that is created, or whose spec is edited (`before`).

    An edit is refused only for an error that it brings: one that corrects a part is let pass. So is
    each edit of a job that has ended or is being deleted.
    """
    if not _is_ours(job):
        return Verdict()
    if before is not None:
        has_ended = job.status.phase in ENDED or job.metadata.deletion_timestamp is not None
        if has_ended or job.spec == before.spec:
            return Verdict()
    error = validation_error(job) or restart_rules_error(job)
    if not error:
        return Verdict(warnings=_warnings_of(job))
    if before is not None and (validation_error(before) or restart_rules_error(before)):
        return Verdict(warnings=(error,))
    return Verdict(error)


def judge_request(observed: Observed | None, request: Request) -> Verdict:
    """Judge a plan or request that is created, for its job as it is now, or None without a job.

    Plans that are not of source Manual are those of the operator and of masters.
    """
    if isinstance(request, ScalePlan) and request.spec.source != "Manual":
        return Verdict()
    if observed is None:
        return Verdict(no_job(request.spec.job_name, request.metadata.namespace))
    job = observed.job
    if not _is_ours(job) or job.status.phase is None:
        return Verdict()
    if why := why_not_scaled(job):
        return Verdict(f"spec.jobName: ElasticJob {job.metadata.name!r} {why}")
    observed = with_roles_of_status(with_sizes(observed))
    if decision_on_invalid_status(observed, 0.0):
        return Verdict()
    try:
        plan = request if isinstance(request, ScalePlan) else _plan_for(observed, request)
        change = resolve(observed.job, observed.pods, plan)
    except PlanRefused as refusal:
        return Verdict(str(refusal), by_size=True)
    has_resources = change.resources or change.resources_by_index or change.migrations
    if change.targets == change.before and not has_resources and not plan.spec.script:
        sizes = ", ".join(f"{role} {len(indices)}" for role, indices in change.before.items())
        return Verdict(warnings=(f"spec: changes nothing, as the job has {sizes} already",))
    return Verdict()


def is_being_scaled(job: ElasticJob) -> bool:
    """Return whether the size of a job is about to change, so that it says little."""
    status = job.status
    is_seen = status.observed_generation == job.metadata.generation
    return bool(status.current_plan or not is_seen or plan_manifests.edited_replicas(job, status))


def _is_ours(job: ElasticJob) -> bool:
    return job.spec.run_policy.managed_by in (None, names.MANAGED_BY)


def _plan_for(observed: Observed, request: ScaleIn | ScaleOut) -> ScalePlan:
    return msgspec.convert(plan_manifests.plan_for_request(observed, request), ScalePlan)


def _warnings_of(job: ElasticJob) -> tuple[str, ...]:
    warnings = []
    roles = job.spec.replica_specs
    if names.ROLE_WORKER not in roles:
        warnings.append(
            f"spec.replicaSpecs: the job has no role {names.ROLE_WORKER}, so that kubectl scale "
            "and HPAs cannot change it, and a PodDisruptionBudget with maxUnavailable or a "
            "percentage allows no eviction; docs/placement.md"
        )
    role = job.spec.autoscaling.role
    is_fixed = role in roles and roles[role].min_replicas == roles[role].max_replicas
    if job.spec.autoscaling.enabled and is_fixed:
        warnings.append(
            f"spec.autoscaling.enabled: the number of members of role {role} stays as it is, "
            f"because minReplicas and maxReplicas are both {roles[role].min_replicas}"
        )
    return tuple(warnings)
