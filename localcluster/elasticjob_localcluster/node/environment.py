"""Computes a container's environment and command line from its spec and the objects it refers to.

Pure. The rules are the kubelet's: `envFrom` first, then `env` in order, each value seeing those
before it and the Services' variables; `$(NAME)` is replaced, `$$(NAME)` is not, an unknown name is
left as written.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.pod_model import Pod

TERMINATION_LOG = "TERMINATION_LOG"
"""The variable that names the file for a container's termination message."""
MARKER = names.ENV_CONTAINER
"""The variable that marks the processes of a container, which are killed when it ends."""
INHERITED = ("LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables of the node's environment that containers inherit, besides PATH."""

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
SourceKind = Literal["Secret", "ConfigMap"]
Source = tuple[SourceKind, str]


class ConfigError(Exception):
    """The environment cannot be computed now: an object that the spec refers to does not exist."""


@dataclass(frozen=True)
class EnvironmentInputs:
    """The inputs of a container's environment, besides its spec."""

    pod: Pod
    pod_ip: str
    node_name: str
    allocatable: Mapping[str, str]
    sources: Mapping[Source, Json | None] = field(default_factory=dict)
    """The Secrets and ConfigMaps of `referenced_sources`; None for one that does not exist."""
    services: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, str] = field(default_factory=dict)
    """Overridden by all other variables, for example PATH."""


def referenced_sources(container: Json) -> set[Source]:
    """Return the Secrets and ConfigMaps that the container's environment names."""
    found: set[Source] = set()
    for entry in container.get("envFrom") or ():
        if "secretRef" in entry:
            found.add(("Secret", entry["secretRef"]["name"]))
        if "configMapRef" in entry:
            found.add(("ConfigMap", entry["configMapRef"]["name"]))
    for entry in container.get("env") or ():
        value_from = entry.get("valueFrom") or {}
        if "secretKeyRef" in value_from:
            found.add(("Secret", value_from["secretKeyRef"]["name"]))
        if "configMapKeyRef" in value_from:
            found.add(("ConfigMap", value_from["configMapKeyRef"]["name"]))
    return found


def environment(container: Json, inputs: EnvironmentInputs) -> dict[str, str]:
    """Return the variables of one container.

    Raises ConfigError with the name of a Secret, ConfigMap, key or field that is missing.
    """
    own: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        own |= _env_from(entry, inputs)
    for entry in container.get("env") or ():
        value = _value(entry, container, inputs)
        if value is not None:
            own[entry["name"]] = expand(
                value, lambda name: own.get(name, inputs.services.get(name))
            )
    return {**inputs.base, **inputs.services, **own}


def command_line(container: Json, variables: Mapping[str, str]) -> list[str]:
    """Return command and arguments with their references replaced."""
    arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(argument, variables.get) for argument in arguments]


def expand(text: str, value_of: Callable[[str], str | None]) -> str:
    """Replace each `$(NAME)` that has a value; `$$` stands for one dollar sign."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        value = value_of(match[2])
        return match[0] if value is None else value

    return _REFERENCE.sub(replace, text)


def service_variables(services: list[Json], address_of: Callable[[str], str]) -> dict[str, str]:
    """Return `<SERVICE>_SERVICE_HOST`, `_PORT` and `_PORT_<NAME>` for the Services of a namespace.

    A headless Service has none, as with the kubelet. Nothing translates ports here, so the port is
    the target port if that is a number.
    """
    variables: dict[str, str] = {}
    for service in services:
        spec = service.get("spec") or {}
        if not spec.get("selector") or spec.get("clusterIP", "None") in ("", "None"):
            continue
        prefix = service["metadata"]["name"].upper().replace("-", "_")
        variables[f"{prefix}_SERVICE_HOST"] = address_of(service["metadata"]["name"])
        for position, port in enumerate(spec.get("ports") or ()):
            target = port.get("targetPort")
            number = str(target if isinstance(target, int) else port["port"])
            if position == 0:
                variables[f"{prefix}_SERVICE_PORT"] = number
            if port.get("name"):
                variables[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = (
                    number
                )
    return variables


def _env_from(entry: Json, inputs: EnvironmentInputs) -> dict[str, str]:
    kind: SourceKind = "Secret" if "secretRef" in entry else "ConfigMap"
    reference = entry["secretRef" if kind == "Secret" else "configMapRef"]
    source = _source(kind, reference, inputs)
    if source is None:
        return {}
    prefix = entry.get("prefix", "")
    return {
        prefix + key: text
        for key in source.get("data") or {}
        if (text := _text(kind, source, key)) is not None
    }


def _value(entry: Json, container: Json, inputs: EnvironmentInputs) -> str | None:
    value_from = entry.get("valueFrom")
    if not value_from:
        return str(entry.get("value", ""))
    if "fieldRef" in value_from:
        return _field(value_from["fieldRef"]["fieldPath"], inputs)
    if "resourceFieldRef" in value_from:
        return _resource(value_from["resourceFieldRef"], container, inputs)
    for kind, name in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
        if name in value_from:
            return _key_of(kind, value_from[name], inputs)  # type: ignore[arg-type]
    raise ConfigError(
        f"env {entry['name']}: valueFrom.{next(iter(value_from))} is not known to the process node"
    )


def _key_of(kind: SourceKind, reference: Json, inputs: EnvironmentInputs) -> str | None:
    source = _source(kind, reference, inputs)
    text = None if source is None else _text(kind, source, reference["key"])
    if text is None and not reference.get("optional"):
        where = f"{kind} {inputs.pod.metadata.namespace}/{reference['name']}"
        raise ConfigError(f"couldn't find key {reference['key']} in {where}")
    return text


def _source(kind: SourceKind, reference: Json, inputs: EnvironmentInputs) -> Json | None:
    source = inputs.sources.get((kind, reference["name"]))
    if source is None and not reference.get("optional"):
        raise ConfigError(f'{kind.lower()} "{reference["name"]}" not found')
    return source


def _text(kind: SourceKind, source: Json, key: str) -> str | None:
    value = (source.get("data") or {}).get(key)
    if value is None:
        return None
    if kind == "ConfigMap":
        return str(value)
    return base64.b64decode(value).decode(errors="surrogateescape")


def _field(path: str, inputs: EnvironmentInputs) -> str:
    pod = inputs.pod
    simple: dict[str, str] = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": inputs.node_name,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", ""),
        "status.podIP": inputs.pod_ip,
        "status.podIPs": inputs.pod_ip,
        "status.hostIP": HOST_IP,
        "status.hostIPs": HOST_IP,
    }
    if path in simple:
        return simple[path]
    if match := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.labels if match[1] == "labels" else pod.metadata.annotations
        return values.get(match[2], "")
    raise ConfigError(
        f"fieldPath {path!r} is not known to the process node; it knows {', '.join(simple)}"
    )


def _resource(reference: Json, container: Json, inputs: EnvironmentInputs) -> str:
    kind, _, name = reference["resource"].partition(".")
    if reference.get("containerName", container["name"]) != container["name"]:
        everyone = [*inputs.pod.init_containers, *inputs.pod.containers]
        container = next(
            (other for other in everyone if other["name"] == reference["containerName"]), container
        )
    amount = ((container.get("resources") or {}).get(kind) or {}).get(name)
    if amount is None:
        amount = inputs.allocatable.get(name, "0") if kind == "limits" else "0"
    divisor = parse_quantity(reference.get("divisor") or "1") or Decimal(1)
    return str((parse_quantity(amount) / divisor).to_integral_value(ROUND_CEILING))
