"""The size to which a job goes back when the plan that it was executing is deleted.

That is the size of its spec. Where this is refused, whoever the deleted plan has added beside the
members leaves all the same: pods that replace a member on a node with a problem may wait for ever
for another node.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.scaleplan import ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused, current_indices
from elasticjob_operator.core.scaling import plan_manifests
from elasticjob_operator.core.scaling.resolve import resolve


def sizes_to_return_to(observed: Observed) -> dict[str, int]:
    """Return the size of each role whose number of members changes.

    Empty where none can or has to.
    """
    roles = observed.job.spec.replica_specs
    job = observed.job
    present = {
        role: len(indices) for role, indices in current_indices(job.status).items() if role in roles
    }
    of_spec = {role: roles[role].size for role in present if roles[role].size != present[role]}
    if _is_possible(observed, of_spec):
        return of_spec
    sizes = {}
    for role in present:
        # The status has still the size without those whom the deleted plan has added to replace
        # others.
        for size in (roles[role].size, job.status.replica_statuses[role].desired):
            if size < present[role] and _is_possible(observed, {role: size}):
                sizes[role] = size
                break
    return sizes


def with_sizes_of(status: ElasticJobStatus, former: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status with the sizes that another one says.

    The next operator, too, needs them for the way back.
    """
    replicas = {
        role: replace(replica, desired=former.replica_statuses[role].desired)
        for role, replica in status.replica_statuses.items()
    }
    return replace(status, replica_statuses=replicas)


def _is_possible(observed: Observed, sizes: Mapping[str, int]) -> bool:
    job = observed.job
    plan = ScalePlan(metadata=job.metadata, spec=plan_manifests.spec_for_sizes(job, sizes, ""))
    try:
        resolve(job, observed.pods, plan)
    except PlanRefused:
        return False
    return True
