"""The short texts in which users write parts of a pod, such as pvc:data:/data for a volume. Pure.

The command line, the Python client and the defaults of a namespace use the same texts. Each
function returns what a text stands for, and raises `WrongArgument` with the field and its forms.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from elasticjob_api.meta import Json
from elasticjob_api.names import ROLE_WORKER
from elasticjob_api.quantity import parse_quantity

from elasticjob_client.errors import WrongArgument

_VOLUMES = "pvc:CLAIM:PATH, nfs:SERVER:/EXPORT:PATH, host:/FOLDER:PATH or empty:SIZE:PATH"
_OBJECTIVES = "efficiency, throughput, deadline=2026-01-31T18:00:00Z or cost=2.5 (of a worker)"
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOLERATION = re.compile(
    r"([-./\w]{1,317})(?:=([-.\w]{0,63}))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?"
)
_OTHER_FILES = re.compile(r"-[rce]|--(requirement|constraint|editable)\b")
MAX_REQUIREMENTS_BYTES = 64 * 1024
"""They are an argument of a program, of which Linux allows 128 KiB."""


@dataclass(frozen=True)
class Volume:
    """A volume: where containers mount it, and its source in the pod."""

    path: str
    source: Json
    read_only: bool


def volume(text: str) -> Volume:
    """Return the volume of a text such as nfs:server:/export:/data:ro."""
    parts = text.split(":")
    read_only = parts[-1] == "ro"
    path = parts[-2] if read_only and len(parts) > 2 else parts[-1]
    match parts[:-2] if read_only else parts[:-1]:
        case ["pvc", claim] if _NAME.fullmatch(claim):
            source: Json = {"persistentVolumeClaim": {"claimName": claim}}
        case ["nfs", server, export] if server and export.startswith("/"):
            source = {"nfs": {"server": server, "path": export}}
        case ["host", folder] if folder.startswith("/"):
            source = {"hostPath": {"path": folder}}
        case ["empty", size] if quantity("volumes", size, "10Gi") > 0:
            source = {"emptyDir": {"sizeLimit": size}}
        case _:
            remedy = f"give {_VOLUMES}, with :ro at the end for a read-only one"
            raise WrongArgument(f"volumes: {text!r:.120} is not a volume; {remedy}")
    if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        raise WrongArgument(
            f"volumes: {text:.120}: {path!r:.80} is not a path; give an absolute one, such as /data"
        )
    if path == "/" or path.startswith("/elasticjob"):
        raise WrongArgument(
            f"volumes: {text:.120}: nothing can be mounted at {path:.80}; give another path, such "
            "as /data"
        )
    return Volume(path, source, read_only)


def toleration(text: str) -> Json:
    """Return the toleration of a taint that is written as kubectl's; without a value: of any."""
    match = _TOLERATION.fullmatch(text)
    if match is None:
        raise WrongArgument(
            f"tolerations: {text!r:.80} is not a taint; give KEY, KEY=VALUE, KEY:EFFECT or "
            "KEY=VALUE:EFFECT, where EFFECT is NoSchedule, PreferNoSchedule or NoExecute"
        )
    key, value, effect = match.groups()
    found = {"key": key, "operator": "Exists" if value is None else "Equal"}
    found |= {} if value is None else {"value": value}
    return found | ({"effect": effect} if effect else {})


def secret_variable(text: str) -> tuple[str | None, Json]:
    """Return the variable's name and its entry in `env`; of a whole Secret None and `envFrom`'s."""
    name, sign, source = text.partition("=")
    secret, slash, key = (source if sign else name).partition("/")
    if not sign and not slash and _NAME.fullmatch(secret):
        return None, {"secretRef": {"name": secret}}
    if sign and _VARIABLE.fullmatch(name) and _NAME.fullmatch(secret) and key:
        reference = {"name": secret, "key": key}
        return name, {"name": name, "valueFrom": {"secretKeyRef": reference}}
    raise WrongArgument(
        f"env_secrets: {text!r:.80} names no Secret; give NAME=SECRET/KEY, or SECRET for all of "
        "its keys"
    )


def objective(text: str) -> Json:
    """Return the objective of the auto-scaler."""
    match text.split("=", 1):
        case ["efficiency" | "throughput" as kind]:
            return {"type": kind.capitalize()}
        case ["deadline", time] if time:
            return {"type": "Deadline", "finishTime": time}
        case ["cost", price] if math.isfinite(amount := _number(price)) and amount > 0:
            return {"type": "Cost", "prices": {ROLE_WORKER: amount}}
    raise WrongArgument(f"autoscale: {text!r:.80} is no objective; give {_OBJECTIVES}")


def quantity(name: str, amount: object, example: str) -> Decimal:
    """Return the number of a quantity; `name`: the field's name."""
    try:
        if isinstance(amount, str):
            return parse_quantity(amount)
    except ValueError:
        pass
    raise WrongArgument(f"{name}: {amount!r:.40} is not a quantity; give a text such as {example}")


def check_name(field: str, name: str) -> None:
    """Refuse what cannot be the name of an object."""
    if not _NAME.fullmatch(name):
        raise WrongArgument(
            f"{field}: {name!r:.80} is not a name; give at most 253 lower-case letters, digits, "
            "dashes and dots"
        )


def check_requirements(texts: Sequence[str]) -> None:
    """Refuse requirements of pip that name files which no container has, or are too large."""
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if _OTHER_FILES.match(line):
            raise WrongArgument(
                f"pip: {line!r:.80}: containers do not have this file; give its lines themselves"
            )
    size = len("\n".join(texts).encode())
    if size > MAX_REQUIREMENTS_BYTES:
        raise WrongArgument(
            f"pip: {size} bytes; requirements have at most {MAX_REQUIREMENTS_BYTES}; install the "
            "packages in the image"
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
