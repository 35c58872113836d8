"""Finds PodDisruptionBudgets and HorizontalPodAutoscalers that misread the scale of a job. Pure.

Kubernetes knows one size of a custom object, that of its scale: for a job, of role `worker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json

BUDGET_REMEDY = (
    "select one role of the job, and give minAvailable as a number (docs/placement.md#budgets)"
)
SCALER_REMEDY = (
    "let one of them size the job, within one pair of bounds (docs/placement.md#budgets)"
)


def budget_problems(budgets: Sequence[Json]) -> Iterator[str]:
    """Yield what is wrong with each budget of jobs' pods."""
    for budget in budgets:
        if why := _budget_problem(budget.get("spec") or {}, budget.get("status") or {}):
            yield f"PodDisruptionBudget {budget['metadata']['name']} {why}"


def _budget_problem(spec: Json, status: Json) -> str:
    if isinstance(spec.get("minAvailable"), int):
        return ""  # Kubernetes counts the pods themselves.
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "SyncFailed" and "replicaSpecs" in condition["message"]:
            return (
                f"allows no eviction, as the job has no role {names.ROLE_WORKER}, or no replicas "
                "of it, by which Kubernetes counts"
            )
    counted = status.get("expectedPods", 0)
    ready = status.get("currentHealthy", 0)
    if _selects_jobs(spec.get("selector") or {}) and ready > counted:
        return (
            f"allows {status.get('disruptionsAllowed', 0)} evictions at once: it selects {ready} "
            f"pods, and Kubernetes counts {counted}, the replicas of role {names.ROLE_WORKER}"
        )
    return ""


def _selects_jobs(selector: Json) -> bool:
    expressions = selector.get("matchExpressions") or ()
    keys = [*(selector.get("matchLabels") or {}), *(each["key"] for each in expressions)]
    return any(key.startswith(f"{names.GROUP}/") for key in keys)


def scaler_problems(scalers: Sequence[Json], jobs: Sequence[ElasticJob]) -> Iterator[str]:
    """Yield what is wrong with each autoscaler of a job."""
    by_name = {job.metadata.name: job for job in jobs}
    for scaler in scalers:
        spec = scaler["spec"]
        target = spec["scaleTargetRef"]
        job = by_name.get(target["name"]) if target["kind"] == "ElasticJob" else None
        if job and (why := _scaler_problem(job, spec.get("minReplicas", 1), spec["maxReplicas"])):
            name = scaler["metadata"]["name"]
            yield f"HorizontalPodAutoscaler {name} of job {target['name']} {why}"


def _scaler_problem(job: ElasticJob, least: int, most: int) -> str:
    worker = job.spec.replica_specs.get(names.ROLE_WORKER)
    if worker is None:
        return f"changes nothing: the job has no role {names.ROLE_WORKER}"
    if job.spec.autoscaling.enabled and job.spec.autoscaling.role == names.ROLE_WORKER:
        return "works against spec.autoscaling of the job, which sizes the same role"
    size = worker.replicas
    if size is not None and not least <= size <= most:
        return f"takes it from {size} members into {least} to {most} before it measures anything"
    allowed = (worker.min_replicas, worker.max_replicas or most)
    if least < allowed[0] or allowed[1] < most:
        return f"asks for {least} to {most} members; the job allows {allowed[0]} to {allowed[1]}"
    return ""
