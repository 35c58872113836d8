"""The folder of a launcher in which its agent keeps the hosts as files, for scripts and programs that read those."""

from __future__ import annotations

import posixpath
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.manifests import remote_shell

Json = dict[str, Any]


def has_folder(job: ElasticJob, role: str) -> bool:
    """Return whether a role's members get the folder.

    Launchers, unless their template has something else there.
    """
    if not remote_shell.is_launcher_role(job, role):
        return False
    pod = job.spec.replica_specs[role].template["spec"]
    mounts = pod["containers"][0].get("volumeMounts") or ()
    paths = {posixpath.normpath(str(mount.get("mountPath"))) for mount in mounts}
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    return names.HOST_FILES_DIRECTORY not in paths and names.HOST_FILES not in volumes


def add_folder(pod_spec: Json) -> None:
    """Mount the folder into the first container of a pod, as a volume that ends with the pod."""
    container = pod_spec["containers"][0]
    mount = {"name": names.HOST_FILES, "mountPath": names.HOST_FILES_DIRECTORY}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    volume: Json = {"name": names.HOST_FILES, "emptyDir": {}}
    pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]
