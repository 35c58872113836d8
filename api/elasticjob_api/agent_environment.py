"""The variables that tell an agent which member of which job it is.

The same in a pod and in a process of this machine. Whoever starts the agent adds what only it
knows: the pod's name, UID and address, and the credentials of the master.
"""

from __future__ import annotations

from elasticjob_api import names


def job_variables(name: str, uid: str, namespace: str) -> dict[str, str]:
    """Return what master and members of a job know of it."""
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
) -> dict[str, str]:
    """Return what one member's agent is told.

    Args:
        job: the job's name.
        role: of the member.
        index: of the member in its role.
        incarnation: how many pods have had this index before.
        framework: of the job.
        slots: how many training processes the agent starts.
        devices: `VARIABLE=count` where these divide GPUs; None: they do not.
        process_restart_limit: how often the agent itself starts a process again that has crashed.
        drain_seconds: how long the member may take to leave.
        sigterm_delay_seconds: how long a process that cannot be asked to stop goes on before it gets SIGTERM.
    """
    return {
        names.ENV_ROLE: role,
        names.ENV_INDEX: str(index),
        names.ENV_INCARNATION: str(incarnation),
        names.ENV_SLOTS: str(slots),
        **({names.ENV_DEVICES: devices} if devices else {}),
        names.ENV_FRAMEWORK: framework,
        names.ENV_MASTER_SERVICE: names.master_service(job),
        names.ENV_PROCESS_RESTART_LIMIT: str(process_restart_limit),
        names.ENV_DRAIN_SECONDS: str(drain_seconds),
        names.ENV_SIGTERM_DELAY_SECONDS: str(sigterm_delay_seconds),
    }
