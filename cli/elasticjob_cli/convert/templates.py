"""Checks and changes pod templates of other operators. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable

from elasticjob_api.meta import Json
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.pod_fields import CONTAINER_FIELDS, POD_FIELDS

NO_COMMAND = "command-of-the-image"
"""The placeholder of a command that the user has to write."""


def pod_template(fields: Fields, name: str, at: Place) -> Json:
    """Read a pod template with at least one container.

    The types of all fields that the converter reads are checked; the others stay as written.
    """
    if not fields.has(name):
        fields.invalid(name, None, "a pod template; give it")
        fields.raw(name)
        return _empty()
    read = fields.map(name)
    metadata = labels_and_annotations(read.map("metadata"))
    read.map("metadata").raw("creationTimestamp")
    template: Json = {"metadata": metadata} if metadata else {}
    spec = read.map("spec")
    containers = _containers(spec, "containers")
    if not containers:
        spec.invalid("containers", spec.raw("containers"), "a list of at least one container")
        return _empty()
    written = _known(spec, POD_FIELDS)
    written["containers"] = containers
    if inits := _containers(spec, "initContainers"):
        written["initContainers"] = inits
    written.pop("volumes", None)
    if volumes := spec.items("volumes"):
        written["volumes"] = copy.deepcopy(volumes)
    template["spec"] = written
    _drop_restart_policy(spec, written, at)
    _drop_names(spec, written, at)
    return _empty() if read.report.failed else template


def _empty() -> Json:
    return {"spec": {"containers": [{"name": "main"}]}}


def labels_and_annotations(metadata: Fields) -> Json:
    """Read labels and annotations, without those that are empty."""
    found = {name: metadata.text_map(name) for name in ("labels", "annotations")}
    return {name: texts for name, texts in found.items() if texts}


def _containers(spec: Fields, name: str) -> list[Json]:
    """Return copies of the containers, and check the fields that the converter reads."""
    found = []
    for container in spec.list_of_maps(name):
        container.texts("command")
        container.texts("args")
        for variable in container.list_of_maps("env"):
            variable.text("name", required=True)
            variable.any_text("value")
        container.list_of_maps("volumeMounts")
        resources = container.map("resources")
        for part in (resources.map("limits"), resources.map("requests")):
            for resource in part.names():
                part.quantity(resource)
        found.append(_known(container, CONTAINER_FIELDS))
    return found


def _known(read: Fields, known: frozenset[str]) -> Json:
    """Return a copy of the fields that pods have: the API server refuses a misspelled one."""
    values = {name: read.raw(name) for name in read.names()}
    for name in values:
        if name not in known:
            read.lost(name, "is no field of Kubernetes; it is left out")
    return {name: copy.deepcopy(value) for name, value in values.items() if name in known}


def _drop_restart_policy(spec: Fields, written: Json, at: Place) -> None:
    policy = spec.text("restartPolicy", choices=("Always", "OnFailure", "Never"))
    if policy in ("", "Never"):
        return
    del written["restartPolicy"]
    message = f"{policy}: not the container but the pod is replaced, at most restartLimit times"
    if policy == "Always":
        message += "; after a success with restartOnSuccess only"
    spec.differs("restartPolicy", message, (*at, "spec"))


def _drop_names(spec: Fields, written: Json, at: Place) -> None:
    for name in ("hostname", "subdomain"):
        if written.pop(name, None) is not None:
            message = f"a member's host name is <role>-<index>.<job>; {name} is left out"
            spec.differs(name, message, (*at, "spec"))


def first_container(template: Json) -> Json:
    """Return the container that trains."""
    container: Json = template["spec"]["containers"][0]
    return container


def train_in(template: Json, name: str, fields: Fields, at: Place) -> None:
    """Move the container of a name, which trains at the other operator, to the front."""
    containers: list[Json] = template["spec"]["containers"]
    named = [container for container in containers if container.get("name") == name]
    if named and containers[0] is not named[0]:
        containers.remove(named[0])
        containers.insert(0, named[0])
        message = f"container {name} is the first, as the first is the one that trains"
        fields.differs("template", message, (*at, "spec", "containers"))


def all_containers(template: Json) -> list[Json]:
    """Return all containers, init containers included."""
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
    """Insert variables before those of a container, unless it has a variable of the same name."""
    own = container.get("env") or []
    names = {variable.get("name") for variable in own}
    new = [variable for variable in variables if variable["name"] not in names]
    if new:
        container["env"] = [*new, *own]


def remove_variables(container: Json, names: Collection[str]) -> list[str]:
    """Remove variables from a container; return the names of those that it had."""
    own: list[Json] = container.get("env") or []
    kept = [variable for variable in own if variable.get("name") not in names]
    if kept:
        container["env"] = kept
    elif own:
        del container["env"]
    return [variable["name"] for variable in own if variable.get("name") in names]


def mentions(text: str, name: str) -> bool:
    """Return whether a text contains a name as a whole word."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None
