"""The variables that the operator or the agent sets in training processes, so users may not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elasticjob_api import names
from elasticjob_api.agent_environment import job_variables, member_variables
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import Peer, framework_of

PROCESS_VARIABLES = (
    names.ENV_SOCKET,
    names.ENV_ROUND,
    names.ENV_RANK,
    names.ENV_WORLD_SIZE,
    names.ENV_LOCAL_RANK,
    names.ENV_LOCAL_SIZE,
    names.ENV_COORDINATOR_HOST,
)
"""Those of every framework that the agent sets; there is one more for each role."""
_POD_VARIABLES = (
    names.ENV_POD_NAME,
    names.ENV_POD_UID,
    names.ENV_POD_IP,
    names.ENV_NODE_NAME,
    names.ENV_TOKEN,
    names.ENV_CA,
)


def process_variables(job: ElasticJob) -> frozenset[str]:
    """Return the names of the variables that the agents of a job set in its processes."""
    roles = [role for role, spec in job.spec.replica_specs.items() if spec.managed]
    framework = framework_of(job.spec.framework, job.spec.replica_specs)
    world = [Peer(role, role, 0, address="") for role in framework.roles or (names.ROLE_WORKER,)]
    environment = framework.environment(world)
    return frozenset(
        {
            *PROCESS_VARIABLES,
            *map(names.hosts_env, roles),
            *(variable for rank in range(len(world)) for variable in environment(rank)),
        }
    )


def member_variable_names(framework: str) -> frozenset[str]:
    """Return the names of the variables that the operator sets in each member of any job."""
    of_member = member_variables("", "", 0, 0, framework=framework, drain_seconds=0, standby="Auto")
    return frozenset({*job_variables("", "", ""), *of_member, *_POD_VARIABLES})


def reserved_variable_error(
    job: ElasticJob, variables: Sequence[str], of_member: Collection[str]
) -> str | None:
    """Return the variable of a container that the operator or the agent sets.

    Args:
        job: the job.
        variables: the names in the container's `env`.
        of_member: the names of the variables that the operator sets in this member.
    """
    of_world = process_variables(job)
    for position, name in enumerate(variables):
        if name in of_member:
            return (
                f"env[{position}].name: {name!r} is set by the operator, and says what member this "
                "is; remove it"
            )
        if name in of_world:
            return (
                f"env[{position}].name: {name!r} is set by the agent, for each process of each "
                "world (slotsPerReplica is their number, processRestartLimit how often a failed "
                "one restarts); remove it"
            )
    return None
