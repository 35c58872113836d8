"""What a role must be to get members in a job that runs already.

What one of a new job must be, and a little more. A new job that cannot run fails. One that runs
must not fail because of what is added to it: it gets no members instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.manifests.startup_order import startup_order_error
from elasticjob_operator.core.manifests.validation import validation_error
from elasticjob_operator.core.members.changed_roles import with_roles_of_spec
from elasticjob_operator.core.members.failure_policy import restart_rules_error


def added_roles_error(job: ElasticJob, added: Iterable[str]) -> str | None:
    """Return why these roles, which have no members yet, can get none, naming the field and the remedy."""
    job = with_roles_of_spec(job)
    if error := validation_error(job) or restart_rules_error(job) or startup_order_error(job):
        return error
    on_node_network = [
        role
        for role, spec in job.spec.replica_specs.items()
        if spec.template["spec"].get("hostNetwork")
    ]
    if (
        on_node_network
        and set(on_node_network) <= set(added)
        and len(job.spec.replica_specs) > len(on_node_network)
    ):
        return (
            f"spec.replicaSpecs.{on_node_network[0]}.template.spec.hostNetwork: a job that was created without it may "
            "have a NetworkPolicy, which would refuse its members; leave it out, or create a new job"
        )
    return None
