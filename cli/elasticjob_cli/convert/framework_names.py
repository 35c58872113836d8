"""What a task of FrameworkController expects of its pod, for our pods. Pure.

These are variables, labels and placeholders, and the addresses of all tasks. For the addresses an
init container, FrameworkBarrier, waits there, and its script sets them as variables. Here agents
wait for each other, and know the addresses of each world.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.names import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RETRY,
    LABEL_INDEX,
    LABEL_JOB_UID,
    hosts_env,
)

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.jobs import CONTAINER, Draft

_PLACEHOLDER = re.compile(r"\{\{(FC_[A-Z_]+)\}\}")
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])FC_[A-Z_]+(?![A-Za-z0-9_])")
_VALID_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_WITH_REFERENCES = ("command", "args", "env")
"""Fields in which Kubernetes replaces references to variables."""
_BARRIER_IMAGE = re.compile(r"(?:^|/)frameworkbarrier(?:[:@]|$)")
_BARRIER_CALL = re.compile(
    r"(?P<ports>(?>(?:(?<![A-Za-z0-9_])[A-Za-z0-9_]{1,64}=[0-9]{1,5}\s+){0,16}))"
    r"(?:\.|source)\s+\S*/injector\.sh"
)
_PORT = re.compile(r"(?:(?P<new>FB_[A-Z0-9]+)_PORT|(?P<old>[a-z0-9]+)_port)=(?P<port>[0-9]+)")
_BARRIER_ACCOUNT = "frameworkbarrier"
_FIXED = ("FC_FRAMEWORK_NAME", "FC_TASKROLE_NAME")
INDEX = "FC_TASK_INDEX"
"""The only label of a task that members do not have besides their own."""
UNKNOWN = "unknown here, or not in this place"
_OF_THE_POD = {
    "FC_FRAMEWORK_NAMESPACE": "metadata.namespace",
    INDEX: f"metadata.labels['{LABEL_INDEX}']",
    "FC_POD_NAME": "metadata.name",
    "FC_POD_UID": "metadata.uid",
    "FC_FRAMEWORK_UID": f"metadata.labels['{LABEL_JOB_UID}']",
    "FC_FRAMEWORK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_RETRY}']",
    "FC_TASK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_ATTEMPT}']",
}
_COMPOSED = {
    "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "$(FC_FRAMEWORK_ATTEMPT_ID)_$(FC_FRAMEWORK_UID)",
    "FC_TASK_ATTEMPT_INSTANCE_UID": "$(FC_TASK_ATTEMPT_ID)_$(FC_POD_UID)",
}
"""As unique as FrameworkController's values, whose parts do not exist here."""


def rewrite(draft: Draft, job: str, task_roles: Mapping[str, str]) -> None:
    """Give the pods of each role the variables and labels of tasks, and replace placeholders.

    Args:
        draft: the job; its roles are changed.
        job: the Framework's name.
        task_roles: the name of the task role, by role.
    """
    for role, spec in draft.roles.items():
        fixed = dict(zip(_FIXED, (job, task_roles[role]), strict=True))
        variables = _variables(fixed)
        names = frozenset(variable["name"] for variable in variables)
        template = spec["template"]
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for name, value in fixed.items():
            if _VALID_LABEL.fullmatch(value):
                labels.setdefault(name, value)
        template["metadata"] = _replaced(template["metadata"], fixed, frozenset())
        unknown: set[str] = set()
        for container in templates.all_containers(template):
            unknown |= _mentioned(container) - names
        template["spec"] = _replaced(template["spec"], fixed, names)
        for container in templates.all_containers(template):
            templates.add_variables(container, variables)
        unknown |= set(_PLACEHOLDER.findall(str(template)))
        if unknown:
            message = f"{', '.join(sorted(unknown))}: {UNKNOWN}"
            draft.lost(role, message, "template")


def path_of(name: str) -> str | None:
    """Return the path of a pod's field that has the value of a label or annotation of a task."""
    if name in _FIXED:
        return f"metadata.labels['{name}']"
    return _OF_THE_POD.get(name)


def _variables(fixed: Mapping[str, str]) -> list[Json]:
    """Return the variables; each may refer to earlier ones."""
    of_the_pod = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _OF_THE_POD.items()
    ]
    return [
        *({"name": name, "value": value} for name, value in fixed.items()),
        *of_the_pod,
        *({"name": name, "value": value} for name, value in _COMPOSED.items()),
    ]


def _mentioned(container: Json) -> set[str]:
    words = [templates.command_text(container)]
    for variable in container.get("env") or ():
        if isinstance(variable.get("value"), str):
            words.append(variable["value"])
    return set(_VARIABLE.findall(" ".join(words)))


def _replaced(
    value: Any, fixed: Mapping[str, str], variables: frozenset[str], *, references: bool = False
) -> Any:
    """Replace placeholders everywhere; with `references` also by references to variables."""
    if isinstance(value, dict):
        return {
            key: _replaced(
                inner, fixed, variables, references=references or key in _WITH_REFERENCES
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, fixed, variables, references=references) for inner in value]
    if not isinstance(value, str):
        return value

    def text_of(found: re.Match[str]) -> str:
        name = found[1]
        if fixed.get(name):
            return fixed[name]
        if references and name in variables:
            return f"$({name})"
        return found[0]

    return _PLACEHOLDER.sub(text_of, value)


def remove_barrier(draft: Draft, task_roles: Mapping[str, str]) -> bool:
    """Remove the barrier from a job; return whether the job has one."""
    with_barrier = [
        role
        for role, spec in draft.roles.items()
        if any(map(_is_barrier, spec["template"]["spec"].get("initContainers") or ()))
    ]
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
        _remove_from(role, draft, task_roles)
    return True


def _is_barrier(container: Json) -> bool:
    return bool(_BARRIER_IMAGE.search(str(container.get("image", ""))))


def _remove_from(role: str, draft: Draft, task_roles: Mapping[str, str]) -> None:
    pod = draft.roles[role]["template"]["spec"]
    inits = pod.pop("initContainers")
    others = [each for each in inits if not _is_barrier(each)]
    if others:
        pod["initContainers"] = others
    if pod.get("serviceAccountName") == _BARRIER_ACCOUNT:
        del pod["serviceAccountName"]
    message = (
        "without FrameworkBarrier: agents wait for all members, and get the addresses of each world"
    )
    draft.differs(role, message, "template", "spec")
    container = pod["containers"][0]
    if "command" not in container:
        return
    templates.change_words(
        container,
        lambda word: _BARRIER_CALL.sub(lambda call: _addresses(draft, task_roles, call), word),
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
