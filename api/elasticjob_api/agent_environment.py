"""The environment variables that identify an agent's member and job.

They are the same in a pod and in a local process. The process that starts the agent adds the pod's
name, UID and address, and the credentials of the master.
"""

from __future__ import annotations

from elasticjob_api import names


def job_variables(name: str, uid: str, namespace: str) -> dict[str, str]:
    """Return the variables of a job, for its master and its members."""
    return {names.ENV_JOB_NAME: name, names.ENV_JOB_UID: uid, names.ENV_NAMESPACE: namespace}


def member_variables(
    job: str,
    role: str,
    index: int,
    incarnation: int,
    *,
    framework: str,
    slots: int = 1,
    devices: str | None = None,
    process_restart_limit: int = 0,
    drain_seconds: int,
    sigterm_delay_seconds: int = 0,
    standby: str = "None",
    state_bytes: int = 0,
) -> dict[str, str]:
    """Return the variables of one member's agent.

    Args:
        job: the job's name.
        role: the role of the member.
        index: the index of the member in its role.
        incarnation: the number of earlier pods with this index.
        framework: the job's framework.
        slots: the number of training processes that the agent starts.
        devices: `VARIABLE=count` if the processes divide GPUs, or None.
        process_restart_limit: the number of crashes after which the agent restarts the process.
        drain_seconds: the time in which the member must leave.
        sigterm_delay_seconds: the time from a request to stop to SIGTERM, for a process that does
            not read such requests.
        standby: where the agent keeps processes in standby, as `spec.agent.standby`.
        state_bytes: the size of the folder in memory for checkpoints; 0 without one.
    """
    variables = {
        names.ENV_ROLE: role,
        names.ENV_INDEX: str(index),
        names.ENV_INCARNATION: str(incarnation),
        names.ENV_SLOTS: str(slots),
        names.ENV_FRAMEWORK: framework,
        names.ENV_MASTER_SERVICE: names.master_service(job),
        names.ENV_PROCESS_RESTART_LIMIT: str(process_restart_limit),
        names.ENV_DRAIN_SECONDS: str(drain_seconds),
        names.ENV_SIGTERM_DELAY_SECONDS: str(sigterm_delay_seconds),
    }
    if standby != "None":
        variables[names.ENV_STANDBY] = standby
    if state_bytes:
        variables[names.ENV_STATE_FOLDER] = names.STATE_DIRECTORY
        variables[names.ENV_STATE_BYTES] = str(state_bytes)
    if devices:
        variables[names.ENV_DEVICES] = devices
    return variables
