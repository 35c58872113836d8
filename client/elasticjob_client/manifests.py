"""Builds the manifest of a job that runs one command in each member. Pure.

`submit`, `init` and the Python client use it. Fields that the user does not set are left out, so
that the API's defaults apply.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import PurePath

from elasticjob_api import file_digests, names
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.limits import MAX_RESTARTS
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_client.errors import ClientError, WrongArgument

SCRIPT_DIRECTORY = "/elasticjob-script"
"""The folder in the containers with the submitted files."""
MAX_FILES_BYTES = 768 * 1024
"""Bound of all files of a job. In a ConfigMap, whose bound is 1 MiB, base64 adds a third."""
MAX_JOB_NAME = 40
MAX_GPUS = 64
"""Bound of the GPUs of each worker."""
CONTAINER = "train"
_LEAST_MEMORY = 1024 * 1024
"""Less is a mistake, such as 4 without a unit: 4 bytes."""
_VOLUME = "script"
_WORKERS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_OTHER_THAN_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Workers:
    """The first number of workers, and its bounds; None: the API's default."""

    replicas: int
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Training:
    """The command, image and resources of each worker.

    Raises `WrongArgument` if a value has a wrong type or is out of bounds.

    Attributes:
        command: with its arguments.
        framework: a name of `FRAMEWORKS`.
        gpus: of each worker.
        cpu: request of each worker, as a quantity.
        memory: request and limit of each worker, as a quantity.
        restart_limit: counted restarts of a worker before the job fails; None: the API's default.
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
    restart_limit: int | None = None
    restart_rules: Sequence[Json] = ()

    def __post_init__(self) -> None:
        """Refuse wrong types that the API server would accept, or report less clearly."""
        if isinstance(self.command, str | bytes) or not isinstance(self.command, Sequence):
            raise WrongArgument(
                f"args: {self.command!r:.40} is not a sequence; give one such as ['--epochs', '10']"
            )
        if not isinstance(self.image, str) or not self.image.strip():
            raise WrongArgument(
                f"image: {self.image!r:.40} is not an image; give the image of the containers"
            )
        if not isinstance(self.framework, str):
            raise WrongArgument(
                f"framework: {self.framework!r:.40} is unknown; give {', '.join(FRAMEWORKS)}"
            )
        if type(self.gpus) is not int or not 0 <= self.gpus <= MAX_GPUS:
            raise WrongArgument(
                f"gpus: {self.gpus!r:.40} is not a whole number from 0 to {MAX_GPUS}"
            )
        limit = 0 if self.restart_limit is None else self.restart_limit
        if type(limit) is not int or not 0 <= limit <= MAX_RESTARTS:
            raise WrongArgument(
                f"restart_limit: {limit!r:.40} is not a whole number from 0 to {MAX_RESTARTS}"
            )
        _check_quantity("cpu", self.cpu, "500m or 2")
        memory = _check_quantity("memory", self.memory, "500Mi or 4Gi")
        if memory is not None and memory < _LEAST_MEMORY:
            raise WrongArgument(
                f"memory: {self.memory:.40} is less than 1Mi; give a unit, such as 500Mi or 4Gi"
            )
        if not isinstance(self.env, Mapping):
            raise WrongArgument(
                f"env: {self.env!r:.40} is not a mapping; give one such as {{'NAME': 'value'}}"
            )
        texts = [
            *(("args", each) for each in self.command),
            *(("env", name) for name in self.env),
            *((f"env: {name!s:.40}", value) for name, value in self.env.items()),
        ]
        for what, text in texts:
            if not isinstance(text, str):
                raise WrongArgument(f"{what}: {text!r:.40} is not a text; give one such as '10'")


def parse_workers(text: str) -> Workers:
    """Return the number of workers in a text such as 4 or 2:8. Raises `WrongArgument`."""
    match = _WORKERS.fullmatch(text)
    if match is None:
        raise WrongArgument(
            f"workers {text[:40]!r}: give a number (4), or the least and the most (2:8)"
        )
    return workers(int(match[1]), int(match[2]) if match[2] else None)


def workers(least: int, most: int | None = None) -> Workers:
    """Return a number of workers; with `most`, the job starts with the least.

    Raises `WrongArgument`.
    """
    for number in (least, least if most is None else most):
        if not 1 <= number <= MAX_REPLICAS:
            raise WrongArgument(f"workers: {number} is not from 1 to {MAX_REPLICAS}")
    if most is None:
        return Workers(least)
    if least > most:
        raise WrongArgument(f"workers: the least, {least}, is more than the most, {most}")
    return Workers(least, least, most)


def parse_env(assignments: Sequence[str]) -> dict[str, str]:
    """Return the variables of `NAME=value` texts; the last value of a name counts.

    Raises `WrongArgument`.
    """
    found: dict[str, str] = {}
    for assignment in assignments:
        name, sign, value = assignment.partition("=")
        if not (name and sign):
            raise WrongArgument(f"env {assignment[:40]!r}: give NAME=value")
        found[name] = value
    return found


def job_name(source: str, suffix: str = "") -> str:
    """Return a name for a job that runs this file or function; a suffix makes it unique."""
    base = _OTHER_THAN_NAME.sub("-", PurePath(source).stem.lower()).strip("-")
    base = base.lstrip("0123456789-") or "job"
    end = f"-{suffix}" if suffix else ""
    return f"{base[: MAX_JOB_NAME - len(end)].rstrip('-')}{end}"


def script_command(file: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs one of the submitted files with unbuffered output."""
    return ["python", "-u", f"{SCRIPT_DIRECTORY}/{file}", *arguments]


def job_manifest(
    name: str,
    training: Training,
    *,
    config_map: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Json:
    """Return the job.

    Args:
        name: of the job.
        training: its command and resources.
        config_map: with the files that are mounted at `SCRIPT_DIRECTORY`; None: no files.
        files: their contents by name, whose digests the job carries.

    Raises:
        WrongArgument: there is no such framework.
    """
    if files:
        digests = {names.ENV_FILES_SHA256: file_digests.encoded(files)}
        training = replace(training, env={**training.env, **digests})
    framework = FRAMEWORKS.get(training.framework)
    if framework is None:
        raise WrongArgument(
            f"framework {training.framework[:40]!r} is unknown; give {', '.join(FRAMEWORKS)}"
        )
    others = [group[0] for group in framework.required if names.ROLE_WORKER not in group]
    roles = {names.ROLE_WORKER: _worker(training, config_map)}
    # Parameter servers and the like run the same program, which reads its role from the framework.
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
    """Return the ConfigMap of a job's files, which is immutable.

    Args:
        name: of the ConfigMap.
        files: contents by name.
        owner: reference to the job; the ConfigMap is deleted with the job.

    Raises:
        ClientError: the files are too large.
    """
    size = sum(map(len, files.values()))
    if size > MAX_FILES_BYTES:
        raise ClientError(
            f"{', '.join(files)}: {size} bytes; submitted files have at most {MAX_FILES_BYTES}; "
            "put them into the image or on a volume, and submit a job file (elasticjob init "
            "writes one)"
        )
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for file, content in files.items():
        try:
            text[file] = content.decode()
        except UnicodeDecodeError:
            binary[file] = base64.b64encode(content).decode()
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
    }
    if owner:
        manifest["metadata"]["ownerReferences"] = [owner]
    if text:
        manifest["data"] = text
    if binary:
        manifest["binaryData"] = binary
    return manifest


def owner_reference(job: Json) -> Json:
    """Return the owner reference to an existing job."""
    metadata = job["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _worker(training: Training, config_map: str | None) -> Json:
    workers = training.workers
    role: Json = {"replicas": workers.replicas}
    if workers.least is not None:
        role["minReplicas"] = workers.least
    if workers.most is not None:
        role["maxReplicas"] = workers.most
    if training.restart_limit is not None:
        role["restartLimit"] = training.restart_limit
    if training.restart_rules:
        role["restartRules"] = list(training.restart_rules)
    return role | {"template": _template(training, config_map, gpus=training.gpus)}


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
    resources = {"requests": _given(requests), "limits": _given(limits)}
    if any(resources.values()):
        container["resources"] = {kind: amounts for kind, amounts in resources.items() if amounts}
    spec: Json = {"containers": [container]}
    if config_map is not None:
        container["volumeMounts"] = [
            {"name": _VOLUME, "mountPath": SCRIPT_DIRECTORY, "readOnly": True}
        ]
        spec["volumes"] = [{"name": _VOLUME, "configMap": {"name": config_map}}]
    return {"spec": spec}


def _check_quantity(name: str, amount: object, example: str) -> Decimal | None:
    """Return the number of a quantity that the user may leave out. Raises `WrongArgument`."""
    if amount is None:
        return None
    try:
        if isinstance(amount, str):
            return parse_quantity(amount)
    except ValueError:
        pass
    raise WrongArgument(f"{name}: {amount!r:.40} is not a quantity; give a text such as {example}")


def _given(amounts: Mapping[str, str | None]) -> Json:
    return {name: amount for name, amount in amounts.items() if amount is not None}
