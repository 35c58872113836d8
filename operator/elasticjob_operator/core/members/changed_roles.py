"""Roles that are added to a job, and removed from it, while it runs.

An added role begins without members; a removed one is to have none any more. So both are edits of a
size, and each gets a ScalePlan like any other edit. The spec of a removed role does not exist any
more. Its pods drain when they are deleted, for as long as their own grace period. Its entry in the
status stays until the last pod has ended. If a role of the same name is added meanwhile, it begins
after that, and no pod of it gets a name that was used before.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, FormerRoles, ReplicaStatus
from elasticjob_api.job_status import ENDED
from elasticjob_api.limits import MAX_ROLE_STATUSES
from elasticjob_api.pod_identity import member_of_name
from msgspec.structs import replace

from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.effective_spec import is_in_progress, with_present_roles
from elasticjob_operator.core.members.failure_policy import restart_rules_error
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import PatchJobStatus
from elasticjob_operator.core.model.observed import Observed


def store_changed_roles(observed: Observed) -> list[PatchJobStatus]:
    """Return the write of the roles into the status of a job that has begun and not ended.

    Empty if the status has them already. Everything else is decided by the stored roles.
    """
    job = observed.job
    if job.status.phase in (None, *ENDED):
        return []
    return patches.job_status(job, _status_with_roles(observed))


def added_roles_error(job: ElasticJob, added: Iterable[str]) -> str | None:
    """Return why roles without members can get none, naming the field and the remedy.

    A new job that could never run fails. A running job must not fail because of a role that is
    added to it: this role gets no members instead.
    """
    job = with_present_roles(job)
    if error := validation_error(job) or restart_rules_error(job):
        return error
    on_node_network = [
        role
        for role, spec in job.spec.replica_specs.items()
        if spec.template["spec"].get("hostNetwork")
    ]
    are_all_new = set(on_node_network) <= set(added)
    if on_node_network and are_all_new and len(job.spec.replica_specs) > len(on_node_network):
        return (
            f"spec.replicaSpecs.{on_node_network[0]}.template.spec.hostNetwork: a job that was "
            "created without it may have a NetworkPolicy, which would refuse its members; leave it "
            "out, or create a new job"
        )
    return None


def _status_with_roles(observed: Observed) -> ElasticJobStatus:
    """Return the job's status with the roles of its spec, and those that are removed from it.

    A status that has lost roles with pods stays as it is: it is invalid (core/invalid_status.py).
    """
    job = observed.job
    status = job.status
    if not status.replica_statuses:
        return status
    roles = dict(status.replica_statuses)
    former = status.former_roles or FormerRoles()
    for role, replica in status.replica_statuses.items():
        if role not in job.spec.replica_specs and role != names.ROLE_MASTER and not replica.removed:
            replica = roles[role] = replace(replica, removed=True)
        if replica.removed and _has_ended(observed, role, replica):
            del roles[role]
            former = FormerRoles(
                highest_index=max(former.highest_index, replica.highest_index),
                incarnations=max(former.incarnations, replica.incarnations),
            )
    with_pods = observed.pods.roles.keys() - {names.ROLE_MASTER}
    added = [role for role in job.spec.replica_specs if role not in roles]
    late = sorted(with_pods - roles.keys() - job.spec.replica_specs.keys())
    for role in [*added, *late]:
        has_pods = role in with_pods
        is_lost = has_pods and status.former_roles is None and role in added
        if is_lost or len(roles) >= MAX_ROLE_STATUSES:
            continue
        pods = observed.pods_of(role)
        roles[role] = ReplicaStatus(
            highest_index=max(former.highest_index, pods.highest_index),
            incarnations=max(former.incarnations, pods.incarnations),
            removed=has_pods,
        )
    if roles == status.replica_statuses:
        return status
    former_roles = None if former == FormerRoles() else former
    return replace(status, replica_statuses=roles, former_roles=former_roles)


def _has_ended(observed: Observed, role: str, replica: ReplicaStatus) -> bool:
    """Return whether a removed role has no member, no pod and no plan in progress that names it."""
    return not (
        replica.indices
        or role in observed.pods.roles
        or role in _roles_of_names(observed, {*observed.kept, *observed.unconfirmed})
        or any(role in plan.status.targets for plan in observed.plans if is_in_progress(plan))
    )


def _roles_of_names(observed: Observed, pods: Iterable[str]) -> set[str]:
    members = (member_of_name(observed.job.metadata.name, pod) for pod in pods)
    return {member.role for member in members if member is not None}
