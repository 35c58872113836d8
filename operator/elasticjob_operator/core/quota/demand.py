"""Computes the quota that a job needs: the pods of each role and of the master, as pod sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.job_sizes import start_size
from elasticjob_api.meta import Json
from elasticjob_api.pod_requests import template_requests
from elasticjob_api.quantity import parse_quantity

from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.effective_spec import present_roles, with_present_roles
from elasticjob_operator.core.members.terminations import permanently_failed
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.model.plan import (
    Indices,
    Quantities,
    ResolvedPlan,
    current_indices,
    with_plan_resources,
)
from elasticjob_operator.core.model.workload import Workload

MAX_POD_SETS = 8
"""Pod sets of a Workload, by Kueue's definition."""
_POD_FIELDS = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "tolerations",
)
_CONTAINER_FIELDS = ("name", "image", "resources", "restartPolicy")
_NO_INDEX = -1


@dataclass(frozen=True)
class PodsNeeded:
    """The pods of one set.

    Attributes:
        count: the number of pods.
        least: the number with which the job can start.
        template: their requests, and the fields that decide on which nodes they can run.
    """

    count: int
    least: int
    template: Json


Demand = Mapping[str, PodsNeeded]
"""The pods needed by the name of the pod set, which is the role."""


def demand_of(
    observed: Observed,
    status: ElasticJobStatus,
    defaults: Defaults,
    *,
    plan: ResolvedPlan | None = None,
    overrides: Mapping[str, Quantities] | None = None,
) -> Demand:
    """Return the demand of the job by its status; with `plan` its demand after that plan.

    Args:
        observed: the job and its pods.
        status: the job's status as decided so far.
        defaults: what the job may leave out.
        plan: a plan that has not begun.
        overrides: resources per role that a running plan is setting.
    """
    job = observed.job
    members = plan.targets if plan else current_indices(status)
    empty = [role for role in present_roles(job) if not members[role]]
    invalid = bool(empty) and validation_error(with_present_roles(job)) is not None
    found = {
        names.ROLE_MASTER: PodsNeeded(
            1, 1, _template(master_pod(job, 0, restarts=0, defaults=defaults))
        )
    }
    for role, spec in job.spec.replica_specs.items():
        replica = status.replica_statuses[role]
        if replica.removed or (invalid and role in empty):
            # If no pod can be made of a role that was added to a running job, it gets no members.
            continue
        ended = parse_indices(replica.succeeded_indices) | permanently_failed(spec, replica)
        resources = _largest(
            _resources(status, role, members, plan, (overrides or {}).get(role, {}))
        )
        body = member_pod(job, role, 0, 0, resources=resources, restarts=0, defaults=defaults)
        count = len(members[role] - ended)
        least = start_size(job, status, role) - len(members[role] & ended)
        found[role] = PodsNeeded(count, min(max(least, 1), count), _template(body))
    return found


def satisfies(workload: Workload, demand: Demand) -> bool:
    """Return whether a Workload covers the demand: its pods, and each resource of each pod."""
    counts = workload.counts()
    templates = _templates(workload)
    return all(
        needed.count <= counts.get(name, 0)
        and _at_most(template_requests(needed.template), template_requests(templates[name]))
        for name, needed in demand.items()
        if needed.count
    )


def is_for(workload: Workload, demand: Demand) -> bool:
    """Return whether a Workload covers the demand with exactly the same requests for each pod."""
    templates = _templates(workload)
    return satisfies(workload, demand) and all(
        template_requests(needed.template) == template_requests(templates[name])
        for name, needed in demand.items()
        if needed.count
    )


def exceeds(planned: Demand, present: Demand) -> bool:
    """Return whether the plan needs more pods of a set, or more of a resource for each."""
    return any(
        name not in present
        or each.count > present[name].count
        or not _at_most(template_requests(each.template), template_requests(present[name].template))
        for name, each in planned.items()
        if each.count
    )


def at_least(demand: Demand, counts: Mapping[str, int]) -> Demand:
    """Return the demand with no pod set smaller than before.

    Kueue miscounts a replacement that shrinks a set. The surplus is given back when the replacement
    is admitted.
    """
    return {
        name: replace(each, count=max(each.count, counts.get(name, 0)))
        for name, each in demand.items()
    }


def same_counts(workload: Workload, demand: Demand) -> bool:
    """Return whether the Workload has the same number of pods of each set; 0 is like no set."""
    needed = {name: each.count for name, each in demand.items() if each.count}
    return {name: count for name, count in workload.counts().items() if count} == needed


def least_counts(demand: Demand, role: str) -> dict[str, int]:
    """Return with how many pods of the role's set the job can start; empty if it needs all."""
    needed = demand.get(role)
    return {} if needed is None or needed.least == needed.count else {role: needed.least}


def pod_sets(demand: Demand, least: Mapping[str, int]) -> list[Json]:
    """Return the pod sets of a new Workload, which may be admitted with the least of these sets."""
    return [
        {
            "name": name,
            "count": each.count,
            **({"minCount": least[name]} if name in least else {}),
            "template": each.template,
        }
        for name, each in demand.items()
    ]


def error_of(job: ElasticJob) -> str:
    """Return why the job cannot have a Workload, naming the field and the remedy.

    Empty if it can.
    """
    roles = len(present_roles(job))
    if roles < MAX_POD_SETS:
        return ""
    return (
        f"spec.replicaSpecs: {roles} roles and the master are above the {MAX_POD_SETS} pod sets "
        "that a Workload of Kueue may have; have fewer roles, or remove the job's queue label"
    )


def _templates(workload: Workload) -> Mapping[str, Json]:
    return {each.name: each.template for each in workload.spec.pod_sets}


def _at_most(wanted: Mapping[str, Decimal], given: Mapping[str, Decimal]) -> bool:
    return all(amount <= given.get(name, Decimal(0)) for name, amount in wanted.items())


def _resources(
    status: ElasticJobStatus,
    role: str,
    members: Indices,
    plan: ResolvedPlan | None,
    override: Quantities,
) -> Iterable[Quantities]:
    """Yield the resources of the role, and of each member that has resources of its own."""
    if plan is not None:
        override = {**override, **plan.resources.get(role, {})}
    yield with_plan_resources(status, role, _NO_INDEX, override)
    for own in status.replica_statuses[role].resources_by_index:
        if int(own) in members[role]:
            yield with_plan_resources(status, role, int(own), override)
    if plan is None:
        return
    for index, wanted in plan.resources_by_index.get(role, {}).items():
        yield {**with_plan_resources(status, role, index, override), **wanted}


def _largest(found: Iterable[Quantities]) -> Quantities:
    """Return the most of each resource, because Kueue counts all pods of a set alike."""
    most: Quantities = {}
    for quantities in found:
        for name, amount in quantities.items():
            most[name] = max(most.get(name, amount), amount, key=parse_quantity)
    return most


def _template(pod: Mapping[str, Any]) -> Json:
    spec: Json = {key: pod["spec"][key] for key in _POD_FIELDS if pod["spec"].get(key)}
    for kind in ("containers", "initContainers"):
        if containers := pod["spec"].get(kind):
            spec[kind] = [
                {key: each[key] for key in _CONTAINER_FIELDS if each.get(key)}
                for each in containers
            ]
    return {"spec": {**spec, "restartPolicy": "Never"}}
