"""FrameworkBarrier.

An init container that waits for the addresses of all tasks, and a script that sets them. Pure.
Here agents wait for each other, and know the addresses of each world.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from elasticjob_api.meta import Json
from elasticjob_api.names import hosts_env

from elasticjob_cli.convert import jobs, templates
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

_IMAGE = re.compile(r"(?:^|/)frameworkbarrier(?:[:@]|$)")
_CALL = re.compile(
    r"(?P<ports>(?:(?<![A-Za-z0-9_])[A-Za-z0-9_]{1,64}=[0-9]{1,5}\s+){0,16}+)(?:\.|source)\s+\S*/injector\.sh"
)
_PORT = re.compile(r"(?:(?P<new>FB_[A-Z0-9]+)_PORT|(?P<old>[a-z0-9]+)_port)=(?P<port>[0-9]+)")
_ACCOUNT = "frameworkbarrier"


def rewrite(draft: Draft, given: Mapping[str, str], report: Report) -> bool:
    """Take the barrier out; returns whether there is one.

    Args:
        draft: whose roles are changed.
        given: the task role's name, by role.
        report: what is told about it.
    """
    with_barrier = [role for role, spec in draft.roles.items() if _has_barrier(spec)]
    if not with_barrier:
        return False
    for role, spec in draft.roles.items():
        where = draft.sources[role]
        at = place(role)
        if not templates.first_container(spec["template"]).get("command"):
            message = "the others do not get its addresses, as without a command it has no agent; its host names are "
            report.lost(where, f"{message}{role}-<index>.<job>", (*at, "agent"))
            continue
        del spec["agent"]
        if spec.pop("restartOnSuccess", False):
            message = (
                "maxRetryCount -2: with an agent, a task that has succeeded does not run again"
            )
            report.lost(where, message, (*at, "restartLimit"))
        jobs.fixed_size(spec, report, draft.sources[role], at)
    for role in with_barrier:
        _take_out(role, draft, given, report)
    return True


def _has_barrier(spec: Json) -> bool:
    inits = spec["template"]["spec"].get("initContainers") or ()
    return any(_IMAGE.search(str(container.get("image", ""))) for container in inits)


def _take_out(role: str, draft: Draft, given: Mapping[str, str], report: Report) -> None:
    pod = draft.roles[role]["template"]["spec"]
    at = place(role, "template", "spec")
    where = draft.sources[role]
    barriers = [each for each in pod["initContainers"] if _IMAGE.search(str(each.get("image", "")))]
    inits = [each for each in pod["initContainers"] if each not in barriers]
    pod["initContainers"] = inits
    if not inits:
        del pod["initContainers"]
    if pod.get("serviceAccountName") == _ACCOUNT:
        del pod["serviceAccountName"]
    message = "without FrameworkBarrier: agents wait for all members, and are told the addresses of each world"
    report.differs(where, message, at)
    container = pod["containers"][0]
    if "command" not in container:
        return
    templates.change_words(
        container, lambda word: _CALL.sub(lambda call: _addresses(draft, given, call), word)
    )
    if "injector.sh" in templates.command_text(
        container
    ) or "framework.json" in templates.command_text(container):
        message = (
            "the command reads what FrameworkBarrier writes; use ELASTICJOB_<ROLE>_HOSTS instead"
        )
        report.lost(where, message, (*at, "containers", 0))
        return
    if not inits:
        _take_out_volumes(
            pod, [mount for each in barriers for mount in _maps(each.get("volumeMounts"))]
        )


def _take_out_volumes(pod: Json, mounts: list[Json]) -> None:
    """Take out the empty folders in which a barrier left its script."""
    names = [mount.get("name") for mount in mounts]
    empty = [each.get("name") for each in _maps(pod.get("volumes")) if "emptyDir" in each]
    unused = [name for name in empty if name in names]
    holders: list[tuple[Json, str]] = [
        (pod, "volumes"),
        *((each, "volumeMounts") for each in pod["containers"]),
    ]
    for holder, key in holders:
        if holder.get(key):
            holder[key] = [each for each in _maps(holder[key]) if each.get("name") not in unused]
            if not holder[key]:
                del holder[key]


def _maps(value: object) -> list[Json]:
    """Return the maps of what should be a list of them, also where the document has something else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _addresses(draft: Draft, given: Mapping[str, str], call: re.Match[str]) -> str:
    """Return shell commands that set what the script sets.

    For each role its addresses, with the given ports.
    """
    commands = [f"export {assignment}" for assignment in call["ports"].split()]
    for found in _PORT.finditer(call["ports"]):
        wanted = (found["new"] or found["old"]).removeprefix("FB_").lower()
        role = next((role for role, name in given.items() if name.lower() == wanted), None)
        if role is None or draft.roles[role].get("agent") == "None":
            continue
        hosts = f'"${hosts_env(role)}"'
        start, ips, addresses = (
            (found["new"], "_IPS", "_ADDRESSES")
            if found["new"]
            else (found["old"], "_ips", "_addresses")
        )
        with_port = f"s/,/:{found['port']},/g; s/$/:{found['port']}/"
        commands.append(f"export {start}{ips}={hosts}")
        commands.append(f"""export {start}{addresses}="$(echo {hosts} | sed '{with_port}')\"""")
    return " && ".join(commands) or "true"
