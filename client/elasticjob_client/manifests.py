"""The manifest of a job that runs one command in each member.

What `submit`, `init` and the Python client create. Pure.
What is not asked for is left out, so that the defaults are those of the API.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.meta import Json

from elasticjob_client.errors import ClientError

SCRIPT_DIRECTORY = "/elasticjob-script"
"""Where the containers of a job have the files that were submitted with it."""
MAX_FILES_BYTES = 768 * 1024
"""Of all files of a job together: in a ConfigMap, which has at most 1 MiB, they may be a third
longer.
"""
MAX_JOB_NAME = 40
MAX_GPUS = 64
"""Of each worker."""
CONTAINER = "train"
_VOLUME = "script"
_WORKERS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_OTHER_THAN_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Workers:
    """How many workers a job has: those it begins with, and within which bounds.

    None: the API's default.
    """

    replicas: int
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Training:
    """What each worker runs, and with what.

    Raises `ClientError` where a value has another type, or is out of bounds.

    Attributes:
        command: and its arguments.
        image: of the container.
        workers: how many there are.
        framework: of `FRAMEWORKS`.
        gpus: of each worker.
        cpu: that each worker requests, as a quantity.
        memory: that each worker requests and is limited to, as a quantity.
        env: variables.
        restart_rules: of the workers.
    """

    command: Sequence[str]
    image: str
    workers: Workers = field(default_factory=lambda: Workers(1))
    framework: str = "custom"
    gpus: int = 0
    cpu: str | None = None
    memory: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    restart_rules: Sequence[Json] = ()

    def __post_init__(self) -> None:
        """Refuse what a program can give and the API server would take, or not name.

        Raises `ClientError`.
        """
        if isinstance(self.command, str | bytes) or not isinstance(self.command, Sequence):
            raise ClientError(
                f"args: {self.command!r:.40} is no sequence; give such as ['--epochs', '10']"
            )
        if not isinstance(self.image, str) or not self.image.strip():
            raise ClientError(
                f"image: {self.image!r:.40} is none; give the image of the containers"
            )
        if not isinstance(self.framework, str):
            raise ClientError(
                f"framework: {self.framework!r:.40} is none; there are {', '.join(FRAMEWORKS)}"
            )
        if type(self.gpus) is not int or not 0 <= self.gpus <= MAX_GPUS:
            raise ClientError(f"gpus: {self.gpus!r:.40} is not a whole number from 0 to {MAX_GPUS}")
        if not isinstance(self.env, Mapping):
            raise ClientError(
                f"env: {self.env!r:.40} is no mapping; give such as {{'NAME': 'value'}}"
            )


def parse_workers(text: str) -> Workers:
    """Return what a text says of the number of workers: 4, or 2:8. Raises `ClientError`."""
    match = _WORKERS.fullmatch(text)
    if match is None:
        raise ClientError(
            f"workers {text[:40]!r}: give a number (4), or the fewest and the most (2:8)"
        )
    return workers(int(match[1]), int(match[2]) if match[2] else None)


def workers(fewest: int, most: int | None = None) -> Workers:
    """Return so many workers; with `most`, the fewest are those that the job begins with.

    Raises `ClientError`.
    """
    for number in (fewest, fewest if most is None else most):
        if not 1 <= number <= MAX_REPLICAS:
            raise ClientError(f"workers: {number} is not from 1 to {MAX_REPLICAS}")
    if most is None:
        return Workers(fewest)
    if fewest > most:
        raise ClientError(f"workers: the fewest, {fewest}, are more than the most, {most}")
    return Workers(fewest, fewest, most)


def parse_env(assignments: Sequence[str]) -> dict[str, str]:
    """Return the variables of `NAME=value` texts; the last one of a name counts.

    Raises `ClientError`.
    """
    found: dict[str, str] = {}
    for assignment in assignments:
        name, sign, value = assignment.partition("=")
        if not (name and sign):
            raise ClientError(f"env {assignment[:40]!r}: give NAME=value")
        found[name] = value
    return found


def job_name(source: str, suffix: str) -> str:
    """Return a name for a job that runs a file or function of this name, with a suffix that makes it its own."""
    base = (
        _OTHER_THAN_NAME.sub("-", PurePath(source).stem.lower()).strip("-").lstrip("0123456789-")
        or "job"
    )
    return f"{base[: MAX_JOB_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"


def script_command(file: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs one of the submitted files; its output is not held back."""
    return ["python", "-u", f"{SCRIPT_DIRECTORY}/{file}", *arguments]


def job_manifest(name: str, training: Training, *, config_map: str | None = None) -> Json:
    """Return the job.

    Args:
        name: of the job.
        training: what it runs.
        config_map: of the files that its containers have at `SCRIPT_DIRECTORY`; None: there are none.

    Raises:
        ClientError: there is no such framework.
    """
    framework = FRAMEWORKS.get(training.framework)
    if framework is None:
        raise ClientError(
            f"framework {training.framework[:40]!r} is none; there are {', '.join(FRAMEWORKS)}"
        )
    others = [group[0] for group in framework.required if names.ROLE_WORKER not in group]
    roles = {names.ROLE_WORKER: _worker(training, config_map)}
    # Parameter servers and the like run the same program; the framework tells each what it is.
    roles |= {
        role: {"replicas": 1, "template": _template(training, config_map, gpus=0)}
        for role in others
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"framework": training.framework, "replicaSpecs": roles},
    }


def config_map_manifest(
    name: str, files: Mapping[str, bytes], *, owner: Json | None = None
) -> Json:
    """Return the ConfigMap of a job's files, which nobody changes.

    Args:
        name: of the ConfigMap.
        files: contents by name.
        owner: reference to the job, with which it is deleted.

    Raises:
        ClientError: they are too large.
    """
    size = sum(map(len, files.values()))
    if size > MAX_FILES_BYTES:
        raise ClientError(
            f"{', '.join(files)}: {size} bytes, and what is submitted has at most {MAX_FILES_BYTES}; put it into the "
            "image or on a volume, and submit a job file that names it (elasticjob init writes one)"
        )
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for file, content in files.items():
        try:
            text[file] = content.decode()
        except UnicodeDecodeError:
            binary[file] = base64.b64encode(content).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **({"ownerReferences": [owner]} if owner else {})},
        "immutable": True,
        **({"data": text} if text else {}),
        **({"binaryData": binary} if binary else {}),
    }


def owner_reference(job: Json) -> Json:
    """Return the reference to a job that is there."""
    metadata = job["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _worker(training: Training, config_map: str | None) -> Json:
    bounds = {"minReplicas": training.workers.least, "maxReplicas": training.workers.most}
    return {
        "replicas": training.workers.replicas,
        **{name: bound for name, bound in bounds.items() if bound is not None},
        **({"restartRules": list(training.restart_rules)} if training.restart_rules else {}),
        "template": _template(training, config_map, gpus=training.gpus),
    }


def _template(training: Training, config_map: str | None, *, gpus: int) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": training.image,
        "command": list(training.command),
    }
    if training.env:
        container["env"] = [{"name": name, "value": value} for name, value in training.env.items()]
    requests = {"cpu": training.cpu, "memory": training.memory}
    limits = {"memory": training.memory, names.RESOURCE_GPU: str(gpus) if gpus else None}
    resources = {
        kind: given
        for kind, amounts in (("requests", requests), ("limits", limits))
        if (given := {name: amount for name, amount in amounts.items() if amount is not None})
    }
    if resources:
        container["resources"] = resources
    spec: Json = {"containers": [container]}
    if config_map is not None:
        container["volumeMounts"] = [
            {"name": _VOLUME, "mountPath": SCRIPT_DIRECTORY, "readOnly": True}
        ]
        spec["volumes"] = [{"name": _VOLUME, "configMap": {"name": config_map}}]
    return {"spec": spec}
