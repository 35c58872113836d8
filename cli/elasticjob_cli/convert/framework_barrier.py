"""Removes FrameworkBarrier: an init container that waits for the addresses of all tasks. Pure.

A script of the barrier sets the addresses as variables. Here agents wait for each other, and know
the addresses of each world.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from elasticjob_api.meta import Json
from elasticjob_api.names import hosts_env

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.jobs import CONTAINER, Draft

_IMAGE = re.compile(r"(?:^|/)frameworkbarrier(?:[:@]|$)")
_CALL = re.compile(
    r"(?P<ports>(?:(?<![A-Za-z0-9_])[A-Za-z0-9_]{1,64}=[0-9]{1,5}\s+){0,16}+)(?:\.|source)\s+\S*/injector\.sh"
)
_PORT = re.compile(r"(?:(?P<new>FB_[A-Z0-9]+)_PORT|(?P<old>[a-z0-9]+)_port)=(?P<port>[0-9]+)")
_ACCOUNT = "frameworkbarrier"


def rewrite(draft: Draft, task_roles: Mapping[str, str]) -> bool:
    """Remove the barrier from a job; return whether the job has one.

    Args:
        draft: the job; its roles are changed.
        task_roles: the name of the task role, by role.
    """
    with_barrier = [role for role, spec in draft.roles.items() if _has_barrier(spec)]
    if not with_barrier:
        return False
    for role, spec in draft.roles.items():
        if not draft.container(role).get("command"):
            message = "other roles do not get its addresses, as without a command it has no agent"
            draft.lost(role, f"{message}; its host names are {role}-<index>.<job>", "agent")
            continue
        del spec["agent"]
        if spec.pop("restartOnSuccess", False):
            message = "maxRetryCount -2: with an agent, a succeeded task does not run again"
            draft.lost(role, message, "restartLimit")
        draft.fix_size(role)
    for role in with_barrier:
        _remove(role, draft, task_roles)
    return True


def _has_barrier(spec: Json) -> bool:
    return any(map(_is_barrier, spec["template"]["spec"].get("initContainers") or ()))


def _is_barrier(container: Json) -> bool:
    return bool(_IMAGE.search(str(container.get("image", ""))))


def _remove(role: str, draft: Draft, task_roles: Mapping[str, str]) -> None:
    pod = draft.roles[role]["template"]["spec"]
    inits = pod.pop("initContainers")
    others = [each for each in inits if not _is_barrier(each)]
    if others:
        pod["initContainers"] = others
    if pod.get("serviceAccountName") == _ACCOUNT:
        del pod["serviceAccountName"]
    message = (
        "without FrameworkBarrier: agents wait for all members, and get the addresses of each world"
    )
    draft.differs(role, message, "template", "spec")
    container = pod["containers"][0]
    if "command" not in container:
        return
    templates.change_words(
        container, lambda word: _CALL.sub(lambda call: _addresses(draft, task_roles, call), word)
    )
    command = templates.command_text(container)
    if "injector.sh" in command or "framework.json" in command:
        message = "the command reads files of FrameworkBarrier; use ELASTICJOB_<ROLE>_HOSTS instead"
        draft.lost(role, message, *CONTAINER)
        return
    if not others:
        mounts = [mount for each in inits for mount in _maps(each.get("volumeMounts"))]
        _remove_volumes(pod, [mount.get("name") for mount in mounts])


def _remove_volumes(pod: Json, mounted: list[object]) -> None:
    """Remove the empty folders in which a barrier left its script."""
    unused = [
        volume.get("name")
        for volume in _maps(pod.get("volumes"))
        if "emptyDir" in volume and volume.get("name") in mounted
    ]
    holders: list[tuple[Json, str]] = [(pod, "volumes")]
    holders += [(container, "volumeMounts") for container in pod["containers"]]
    for holder, key in holders:
        if holder.get(key):
            holder[key] = [each for each in _maps(holder[key]) if each.get("name") not in unused]
            if not holder[key]:
                del holder[key]


def _maps(value: object) -> list[Json]:
    """Return the maps of a value that should be a list of maps."""
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict)]


def _addresses(draft: Draft, task_roles: Mapping[str, str], call: re.Match[str]) -> str:
    """Return shell commands that set the same variables as the script: the addresses by role."""
    commands = [f"export {assignment}" for assignment in call["ports"].split()]
    for found in _PORT.finditer(call["ports"]):
        wanted = (found["new"] or found["old"]).removeprefix("FB_").lower()
        role = next((role for role, name in task_roles.items() if name.lower() == wanted), None)
        if role is None or draft.roles[role].get("agent") == "None":
            continue
        hosts = f'"${hosts_env(role)}"'
        ips = f"{found['old']}_ips"
        addresses = f"{found['old']}_addresses"
        if found["new"]:
            ips = f"{found['new']}_IPS"
            addresses = f"{found['new']}_ADDRESSES"
        with_port = f"s/,/:{found['port']},/g; s/$/:{found['port']}/"
        commands.append(f"export {ips}={hosts}")
        commands.append(f"""export {addresses}="$(echo {hosts} | sed '{with_port}')\"""")
    return " && ".join(commands) or "true"
