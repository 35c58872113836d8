"""Rejects pods that this node cannot run. Pure.

A pod that requires something that plain processes cannot provide fails with the field's name. The
package's docstring lists the settings that are ignored instead.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.meta import Json

from elasticjob_localcluster.node.pod_model import Pod

REASON = "ProcessNodeUnsupported"
TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the name that the admission plugin gives, not a password
_TYPES = {
    "",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
    "CharDevice",
    "BlockDevice",
}
_OWN = frozenset({names.AGENT, names.HOST_FILES, names.STATE})
"""Volumes of the operator that need no mount: this machine has the agent, and a variable names the
folder in memory.
"""
_POD_FIELDS = {
    "dnsConfig": "there is no DNS; use addresses",
    "hostAliases": "there is no /etc/hosts of its own; use addresses",
    "resourceClaims": "remove it",
    "resources": "set the resources of each container",
    "runtimeClassName": "remove it",
    "setHostnameAsFQDN": "remove it",
}
_CONTAINER_FIELDS = {
    "lifecycle": "handle SIGTERM in the command itself",
    "restartPolicyRules": "use the pod's restartPolicy",
    "stdin": "the standard input is empty; remove it",
    "tty": "remove it",
    "volumeDevices": "remove it",
}


@dataclass(frozen=True)
class ProcessUser:
    """The user that the node's processes run as."""

    uid: int
    gid: int
    groups: frozenset[int]


def rejection(pod: Pod, node_user: ProcessUser) -> str | None:
    """Return why the pod cannot run here, with fields and remedies; None if it can."""
    found = [*_problems_of_pod(pod.spec, node_user), *_problems_of_volumes(pod)]
    for kind, containers in (
        ("initContainers", pod.init_containers),
        ("containers", pod.containers),
    ):
        for index, container in enumerate(containers):
            where = f"spec.{kind}[{index}]"
            found += (
                f"{where}.{problem}"
                for problem in _problems_of_container(container, pod, node_user)
            )
    return "; ".join(found) or None


def has_token(pod: Pod) -> bool:
    """Return whether the pod has the volume of its service account's token."""
    return any(_is_token_volume(volume) for volume in pod.spec.get("volumes") or ())


def is_in_folder(mount: Json, volume: Json) -> bool:
    """Return whether a folder of the pod takes the place of a mount path.

    For a larger /dev/shm, the machine's own is used.
    """
    in_memory = (volume.get("emptyDir") or {}).get("medium") == "Memory"
    if volume.get("name") in _OWN or (in_memory and mount["mountPath"] == "/dev/shm"):  # noqa: S108
        return False
    return bool(volume.keys() & {"configMap", "emptyDir"})


def of_path(path: str) -> re.Pattern[str]:
    """Return a pattern that finds a path, also as the beginning of a longer one, in an argument."""
    return re.compile(rf"(?<![\w./-]){re.escape(os.path.normpath(path))}(?![\w.-])")


def _problems_of_pod(spec: Json, node_user: ProcessUser) -> Iterator[str]:
    for name, remedy in _POD_FIELDS.items():
        if spec.get(name):
            yield f"spec.{name}: a process node cannot do this; {remedy}"
    if spec.get("hostUsers") is False:
        yield "spec.hostUsers: false: there are no user namespaces here; remove it"
    if (spec.get("os") or {}).get("name", "linux") != "linux":
        yield f"spec.os.name: {spec['os']['name']}: this node runs linux"
    security = spec.get("securityContext") or {}
    yield from (
        f"spec.securityContext.{problem}" for problem in _problems_of_security(security, node_user)
    )
    if security.get("sysctls"):
        yield "spec.securityContext.sysctls: there is no kernel of its own; remove it"
    groups = set(security.get("supplementalGroups") or ()) - node_user.groups
    if groups:
        yield (
            "spec.securityContext.supplementalGroups: "
            f"processes are not in {sorted(groups)}; remove them"
        )


def _problems_of_container(container: Json, pod: Pod, node_user: ProcessUser) -> Iterator[str]:
    if not container.get("command"):
        yield (
            "command: must be set, "
            "because images are not used and so their entry point is not known"
        )
    if container.get("restartPolicy"):
        yield (
            f"restartPolicy: {container['restartPolicy']}: "
            "only the pod's own restartPolicy is known; remove it"
        )
    for name, remedy in _CONTAINER_FIELDS.items():
        if container.get(name):
            yield f"{name}: a process node cannot do this; {remedy}"
    security = container.get("securityContext") or {}
    yield from (
        f"securityContext.{problem}" for problem in _problems_of_security(security, node_user)
    )
    if security.get("privileged"):
        yield "securityContext.privileged: processes have the node's own rights; remove it"
    if added := (security.get("capabilities") or {}).get("add"):
        yield f"securityContext.capabilities.add: {added} cannot be given; remove it"
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes") or ()}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if problem := _problem_of_mount(mount, volumes.get(mount["name"], {}), container):
            yield f"volumeMounts[{index}].{problem}"


def _problems_of_security(security: Json, node_user: ProcessUser) -> Iterator[str]:
    user = security.get("runAsUser", node_user.uid)
    group = security.get("runAsGroup", node_user.gid)
    if user != node_user.uid:
        yield f"runAsUser: {user}: processes run as user {node_user.uid}; remove it"
    if group != node_user.gid:
        yield f"runAsGroup: {group}: processes run as group {node_user.gid}; remove it"
    for name in ("seLinuxOptions", "windowsOptions"):
        if security.get(name):
            yield f"{name}: cannot be given; remove it"


def _problems_of_volumes(pod: Pod) -> Iterator[str]:
    for index, volume in enumerate(pod.spec.get("volumes") or ()):
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if "hostPath" in volume:
            if (volume["hostPath"].get("type") or "") not in _TYPES:
                kind = volume["hostPath"]["type"]
                yield f"spec.volumes[{index}].hostPath.type: {kind} is not known"
        elif (
            not volume.keys() & {"configMap", "emptyDir"}
            and not _is_token_volume(volume)
            and volume["name"] not in _OWN
        ):
            yield (
                f"spec.volumes[{index}].{kind}: nothing can be mounted for a process; "
                "use a hostPath that is mounted at its own path, or an emptyDir"
            )


def _problem_of_mount(mount: Json, volume: Json, container: Json) -> str | None:
    path = mount["mountPath"]
    in_folder = is_in_folder(mount, volume)
    if not in_folder and "hostPath" not in volume:
        return None
    if mount.get("subPath") or mount.get("subPathExpr"):
        return "subPath: nothing can be mounted for a process; use a hostPath of the path itself"
    if in_folder:
        texts = [*(container.get("command") or ()), *(container.get("args") or ())]
        texts += [variable.get("value") or "" for variable in container.get("env") or ()]
        if any(of_path(path).search(text) for text in texts):
            return None
        return (
            f"mountPath: {path}: nothing can be mounted for a process; "
            "name it in command, args or env, where the volume's folder is put in its place"
        )
    if os.path.normpath(path) != os.path.normpath(volume["hostPath"]["path"]):
        source = volume["hostPath"]["path"]
        return (
            f"mountPath: {path}: nothing can be mounted for a process; "
            f"it must equal hostPath.path, {source}"
        )
    return None


def _is_token_volume(volume: Json) -> bool:
    return "projected" in volume and volume["name"].startswith(TOKEN_VOLUME)
