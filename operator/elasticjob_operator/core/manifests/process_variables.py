"""Lists the variables that the agent sets in training processes, for each world."""

from __future__ import annotations

from typing import Any

from elasticjob_api import names, references
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import Peer, framework_of

Json = dict[str, Any]

PROCESS_VARIABLES = (
    names.ENV_SOCKET,
    names.ENV_ROUND,
    names.ENV_RANK,
    names.ENV_WORLD_SIZE,
    names.ENV_LOCAL_RANK,
    names.ENV_LOCAL_SIZE,
    names.ENV_COORDINATOR_HOST,
)
"""Those of every framework; there is one more for each role."""


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


def hidden_from_kubelet(job: ElasticJob, container: Json) -> Json:
    """Return command, args and env in which the kubelet does not replace these variables."""
    variables = process_variables(job)
    words = {
        field: [references.hide(word, variables) for word in container[field]]
        for field in ("command", "args")
        if container.get(field)
    }
    env = [
        {**each, "value": references.hide(each["value"], variables)}
        if isinstance(each.get("value"), str)
        else each
        for each in container.get("env") or ()
    ]
    return {**words, **({"env": env} if env else {})}
