"""Pod templates of other operators: what is checked, taken out and put in.

All else stays as written. Pure.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

from elasticjob_api.meta import Json

from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.report import Place, Report

NO_COMMAND = "command-of-the-image"
"""What stands where a command has to be written in."""
_OWN_METADATA = ("labels", "annotations")


def pod_template(fields: Fields, name: str, at: Place) -> Json:
    """Read a pod template.

    Its first container exists, and all that is read below has the right type.

    Args:
        fields: what has the template.
        name: its field there.
        at: where it is written.
    """
    if not fields.has(name):
        fields.report.invalid(fields.where(name), None, "a pod template; give it")
        fields.raw(name)
        return _empty()
    read = fields.map(name)
    metadata = _metadata(read.map("metadata"))
    template: Json = {"metadata": metadata} if metadata else {}
    spec = read.map("spec")
    containers = _containers(spec, "containers")
    if not containers:
        fields.report.invalid(
            spec.where("containers"), spec.raw("containers"), "a list of at least one container"
        )
        return _empty()
    written = {key: copy.deepcopy(spec.raw(key)) for key in spec.names()} | {
        "containers": containers
    }
    if inits := _containers(spec, "initContainers"):
        written["initContainers"] = inits
    written["volumes"] = [copy.deepcopy(each) for each in spec.items("volumes")]
    template["spec"] = {key: value for key, value in written.items() if value or key != "volumes"}
    _replace_policy(spec, template["spec"], at)
    _drop_names(spec, template["spec"], at)
    read.done()
    return _empty() if read.report.failed else template


def _empty() -> Json:
    return {"spec": {"containers": [{"name": "main"}]}}


def _metadata(metadata: Fields) -> Json:
    found = {name: texts for name in _OWN_METADATA if (texts := metadata.text_map(name))}
    metadata.raw("creationTimestamp")
    metadata.done()
    return found


def _containers(spec: Fields, name: str) -> list[Json]:
    """Return copies of the containers; the fields that are read here are checked."""
    found = []
    for container in spec.list_of_maps(name):
        container.texts("command"), container.texts("args")
        for variable in container.list_of_maps("env"):
            variable.text("name", required=True)
            value = variable.raw("value")
            if value is not None and not isinstance(value, str):
                container.report.invalid(
                    variable.where("value"), value, "a text; write it in quotes"
                )
        container.list_of_maps("volumeMounts")
        resources = container.map("resources")
        for part in (resources.map("limits"), resources.map("requests")):
            for resource in part.names():
                part.quantity(resource)
        found.append({key: copy.deepcopy(container.raw(key)) for key in container.names()})
    return found


def _replace_policy(spec: Fields, written: Json, at: Place) -> None:
    policy = spec.text("restartPolicy", choices=("Always", "OnFailure", "Never"))
    if policy in ("Always", "OnFailure"):
        del written["restartPolicy"]
        again = "; after a success with restartOnSuccess only" if policy == "Always" else ""
        spec.report.differs(
            spec.where("restartPolicy"),
            f"{policy}: not the container but the pod is replaced, at most restartLimit times{again}",
            (*at, "spec"),
        )


def _drop_names(spec: Fields, written: Json, at: Place) -> None:
    for name in ("hostname", "subdomain"):
        if written.pop(name, None) is not None:
            message = f"a member's host name is <role>-<index>.<job>; {name} is left out"
            spec.report.differs(spec.where(name), message, (*at, "spec"))


def first_container(template: Json) -> Json:
    """Return the container that trains."""
    container: Json = template["spec"]["containers"][0]
    return container


def all_containers(template: Json) -> list[Json]:
    """Return all containers, those that run before the others included."""
    return [*template["spec"]["containers"], *template["spec"].get("initContainers", ())]


def command_text(container: Json) -> str:
    """Return command and arguments as one text, to search in."""
    return " ".join([*(container.get("command") or ()), *(container.get("args") or ())])


def change_words(container: Json, change: Callable[[str], str]) -> None:
    """Change each word of command and arguments, and each value of a variable."""
    for field in ("command", "args"):
        if container.get(field):
            container[field] = [change(word) for word in container[field]]
    for variable in container.get("env") or ():
        if isinstance(variable.get("value"), str):
            variable["value"] = change(variable["value"])


def add_variables(container: Json, variables: Iterable[Json]) -> None:
    """Put variables before those of a container, except for names that it has."""
    own = container.get("env") or []
    names = {variable.get("name") for variable in own}
    if new := [variable for variable in variables if variable["name"] not in names]:
        container["env"] = [*new, *own]


def remove_variables(
    container: Json, names: frozenset[str], report: Report, where: str, at: Place
) -> None:
    """Take out variables that the agent sets."""
    own: list[Any] = container.get("env") or []
    kept = [variable for variable in own if variable.get("name") not in names]
    for variable in own:
        if (name := variable.get("name")) in names:
            report.differs(
                f"{where}.env", f"{name} is set by the agent, for each world; it is left out", at
            )
    if len(kept) != len(own):
        container["env"] = kept
        if not kept:
            del container["env"]


def mentions(text: str, name: str) -> bool:
    """Return whether a text has a name as a whole word."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None
