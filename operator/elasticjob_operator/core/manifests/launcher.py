"""Jobs whose launcher starts the training in its workers.

Which roles use the agents' remote shell, and the folder of a launcher in which its agent keeps the
hosts as files, for scripts and programs that read those.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import launcher_of
from elasticjob_api.meta import Json

_TRAINS_ALONE = re.compile(r"(.*/)?(python[0-9.]*|horovodrun)")


def runs_launcher_commands(job: ElasticJob, role: str) -> bool:
    """Return whether members of a role have no command and run the launcher's commands."""
    launcher = launcher_of(job)
    return launcher is not None and role != launcher and not _container(job, role).get("command")


def uses_remote_shell(job: ElasticJob, role: str) -> bool:
    """Return whether members of a role use the agents' remote shell to reach others."""
    return role == launcher_of(job) and any(
        runs_launcher_commands(job, other) for other in job.spec.replica_specs
    )


def command_error(job: ElasticJob, role: str) -> str | None:
    """Return why members of a role could not take part in the launcher's training.

    None if they can.
    """
    launcher = launcher_of(job)
    if launcher is None:
        return None
    return _launcher_error(job, role) if role == launcher else _worker_error(job, role, launcher)


def has_host_files(job: ElasticJob, role: str) -> bool:
    """Return whether members get the folder: launchers without another volume at its path."""
    if role != launcher_of(job):
        return False
    pod = job.spec.replica_specs[role].template["spec"]
    mounts = pod["containers"][0].get("volumeMounts") or ()
    paths = {posixpath.normpath(str(mount.get("mountPath"))) for mount in mounts}
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    return names.HOST_FILES_DIRECTORY not in paths and names.HOST_FILES not in volumes


def add_host_files(pod_spec: Json) -> None:
    """Mount the folder into the first container of a pod, as a volume that ends with the pod."""
    container = pod_spec["containers"][0]
    mount = {"name": names.HOST_FILES, "mountPath": names.HOST_FILES_DIRECTORY}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    volume: Json = {"name": names.HOST_FILES, "emptyDir": {}}
    pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]


def _launcher_error(job: ElasticJob, role: str) -> str | None:
    field = f"spec.replicaSpecs.{role}"
    replicas = job.spec.replica_specs[role].size
    if replicas > 1:
        return (
            f"{field}.replicas: is {replicas}, but must be 1: each launcher would start a training "
            "of its own in the same members"
        )
    for position, variable in enumerate(_container(job, role).get("env") or ()):
        if variable.get("name") == "HOROVOD_HOSTNAME":
            return (
                f"{field}.template.spec.containers[0].env[{position}].name: 'HOROVOD_HOSTNAME' of "
                "the launcher would be that of every process, and the training could not be "
                "scaled; remove it"
            )
    return None


def _worker_error(job: ElasticJob, role: str, launcher: str) -> str | None:
    field = f"spec.replicaSpecs.{role}"
    container = _container(job, role)
    command = container.get("command") or ()
    limit = job.spec.replica_specs[role].process_restart_limit
    if command and _TRAINS_ALONE.fullmatch(str(command[0])):
        return (
            f"{field}.template.spec.containers[0].command: {command[0]!r} would train alone in "
            "each member, as the launcher starts the training; remove command and args, so that "
            f"members wait for the launcher, or remove the role {launcher}, so that the master "
            "does its part"
        )
    if not command and limit:
        return (
            f"{field}.processRestartLimit: is {limit}, but must be 0, as Horovod never uses a host "
            "again on which a process has failed: another pod replaces it"
        )
    if not command and container.get("args"):
        return (
            f"{field}.template.spec.containers[0].args: nothing takes them without a command, as "
            "the launcher starts the training; remove them"
        )
    return None


def _container(job: ElasticJob, role: str) -> dict[str, Any]:
    """Return the first container of a role's template; a stand-in if the template is invalid."""
    spec = job.spec.replica_specs[role]
    containers = (spec.template.get("spec") or {}).get("containers") if spec.managed else None
    first = containers[0] if isinstance(containers, list) and containers else None
    return first if isinstance(first, dict) else {"command": ["unknown"]}
