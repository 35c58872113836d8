"""A user's wishes for the pods of a job, whether from `submit`, `init` or the Python client. Pure.

A field that is None or empty was not given: first the defaults of the namespace apply, then those
of the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import PurePosixPath
from typing import Any

from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.limits import MAX_RESTARTS

from elasticjob_client.arguments import (
    check_sequence,
    check_text,
    check_whole,
    similar,
)
from elasticjob_client.errors import WrongArgument
from elasticjob_client.pod_parts import (
    check_name,
    check_requirements,
    objective,
    quantity,
    secret_variable,
    toleration,
    volume,
)

MAX_GPUS = 64
"""Bound of the GPUs of each worker."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path of containers
_LEAST_MEMORY = 1024 * 1024
"""Less is a mistake, such as 4 without a unit: 4 bytes."""
_MAPPINGS = ("env", "node_selector")
_SEQUENCES = ("env_secrets", "volumes", "tolerations", "pull_secrets", "files", "pip")


@dataclass(frozen=True, kw_only=True)
class JobTemplate:
    """The pods of a job, without the program that they run.

    Raises `WrongArgument` if a value has a wrong type or form, or is out of bounds.

    Attributes:
        image: the containers' image; it needs Python, for functions of the caller's minor version.
        workers: their number, or the least and the most; the job starts with the least.
        framework: pytorch, jax, horovod, tensorflow, mxnet or custom (the default); it chooses the
            environment of the processes.
        gpus: the GPUs of each worker.
        cpu: request of each worker, such as "500m".
        memory: request and limit of each worker, such as "4Gi".
        env: environment variables.
        env_secrets: variables from Secrets: "NAME=SECRET/KEY", or "SECRET" for all of its keys.
        volumes: "pvc:CLAIM:PATH", "nfs:SERVER:/EXPORT:PATH", "host:/FOLDER:PATH" or
            "empty:SIZE:PATH", with ":ro" at the end for a read-only one.
        shared_memory: size of /dev/shm, such as "8Gi", part of the memory; None for the runtime's.
        node_selector: labels that the nodes have.
        tolerations: taints that pods tolerate: "KEY", "KEY=VALUE", "KEY:EFFECT" or
            "KEY=VALUE:EFFECT".
        pull_secrets: Secrets for the registry of the image.
        service_account: the pods' account.
        autoscale: "efficiency", "throughput", "deadline=TIME" or "cost=PRICE" (of a worker an
            hour): the job scales itself with this objective.
        restart_limit: restarts of a failed worker before the job fails; None for 3.
        files: paths of files and folders that lie beside the script or function in the containers.
        pip: requirements that are installed before the program starts, as in requirements.txt.
        pip_cache: a folder on one of the volumes that keeps installed packages; None if no pod
            uses those of another one.
    """

    image: str | None = None
    workers: int | tuple[int, int] | None = None
    framework: str | None = None
    gpus: int | None = None
    cpu: str | None = None
    memory: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    env_secrets: Sequence[str] = ()
    volumes: Sequence[str] = ()
    shared_memory: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[str] = ()
    pull_secrets: Sequence[str] = ()
    service_account: str | None = None
    autoscale: str | None = None
    restart_limit: int | None = None
    files: Sequence[str | PathLike[str]] = ()
    pip: Sequence[str] = ()
    pip_cache: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the API server would accept, or report less clearly or only for the pods."""
        _check_forms(self)
        if self.image is not None and not self.image.strip():
            raise WrongArgument(
                f"image: {self.image!r:.40} is not an image; give the image of the containers"
            )
        check_workers(self.workers)
        if self.framework is not None and self.framework not in FRAMEWORKS:
            near = similar(self.framework, FRAMEWORKS)
            remedy = f"give {', '.join(FRAMEWORKS)}" + (f"; did you mean {near}?" if near else "")
            raise WrongArgument(f"framework: {self.framework!r:.40} is unknown; {remedy}")
        check_whole("gpus", self.gpus, MAX_GPUS)
        check_whole("restart_limit", self.restart_limit, MAX_RESTARTS)
        _given(self.cpu, lambda cpu: quantity("cpu", cpu, "500m or 2"))
        for name in ("memory", "shared_memory"):
            amount = getattr(self, name)
            if amount is not None and quantity(name, amount, "500Mi or 4Gi") < _LEAST_MEMORY:
                raise WrongArgument(
                    f"{name}: {amount:.40} is less than 1Mi; give a unit, such as 500Mi or 4Gi"
                )
        _given(self.service_account, lambda name: check_name("service_account", name))
        _given(self.autoscale, objective)
        for name in self.pull_secrets:
            check_name("pull_secrets", name)
        for text in self.tolerations:
            toleration(text)
        check_requirements(self.pip)
        names = [*self.env, *filter(None, (secret_variable(text)[0] for text in self.env_secrets))]
        _check_different("env", names, "give each variable once")
        self._check_volumes()

    def _check_volumes(self) -> None:
        volumes = [volume(text) for text in self.volumes]
        paths = [each.path for each in volumes] + [SHARED_MEMORY] * bool(self.shared_memory)
        _check_different("volumes", paths, "mount one volume at each path")
        if self.pip_cache is None:
            return
        cache = PurePosixPath(self.pip_cache)
        if ".." in cache.parts or not any(
            cache.is_relative_to(each.path) for each in volumes if not each.read_only
        ):
            raise WrongArgument(
                f"pip_cache: {self.pip_cache!r:.80} is on no volume that pods can write to; give a "
                "folder on one of the volumes, such as /cache/pip with the volume pvc:cache:/cache"
            )


def check_fields(names: Iterable[str]) -> None:
    """Raise `WrongArgument` unless these are fields of `JobTemplate`."""
    known = [each.name for each in fields(JobTemplate)]
    for name in names:
        if name not in known:
            near = similar(name, known)
            remedy = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise WrongArgument(f"{name}: there is no such argument; {remedy}")


def merged(defaults: JobTemplate, own: JobTemplate) -> JobTemplate:
    """Return a template with defaults for what the user has not given.

    Mappings and sequences are joined. Of a variable, a label or a mount path that both have, the
    user's is taken. Raises `WrongArgument` if the two do not fit.
    """
    variables = {*own.env, *filter(None, (secret_variable(each)[0] for each in own.env_secrets))}
    paths = {volume(each).path for each in own.volumes}
    paths |= {SHARED_MEMORY} if own.shared_memory else set()
    kept: dict[str, Callable[[Any], bool]] = {
        "env": lambda name: name not in variables,
        "env_secrets": lambda text: secret_variable(text)[0] not in variables,
        "volumes": lambda text: volume(text).path not in paths,
    }
    values: dict[str, Any] = {}
    for each in fields(JobTemplate):
        default = getattr(defaults, each.name)
        mine = getattr(own, each.name)
        keep = kept.get(each.name, lambda _: True)
        if each.name in _MAPPINGS:
            values[each.name] = {name: default[name] for name in default if keep(name)} | {**mine}
        elif each.name in _SEQUENCES:
            values[each.name] = tuple(dict.fromkeys([*filter(keep, default), *mine]))
        else:
            values[each.name] = default if mine is None else mine
    return JobTemplate(**values)


def _given(value: str | None, check: Callable[[str], object]) -> None:
    if value is not None:
        check(value)


def _check_forms(template: JobTemplate) -> None:
    """Refuse other types than texts, and sequences and mappings of texts."""
    for name in ("image", "framework", "service_account", "autoscale", "pip_cache"):
        value = getattr(template, name)
        if value is not None and not isinstance(value, str):
            raise WrongArgument(f"{name}: {value!r:.40} is not a text; give one in quotes")
    for name in _MAPPINGS:
        value = getattr(template, name)
        if not isinstance(value, Mapping):
            raise WrongArgument(
                f"{name}: {value!r:.40} is not a mapping; give one such as {{'NAME': 'value'}}"
            )
        for key, text in value.items():
            check_text(name, key, "10")
            check_text(f"{name}: {key:.40}", text, "10")
    for name in _SEQUENCES:
        value = getattr(template, name)
        check_sequence(name, value, ["a"])
        for each in value:
            if not isinstance(each, PathLike):
                check_text(name, each, "10")


def check_workers(workers: object) -> None:
    """Refuse what is neither a number of workers nor two. Raises `WrongArgument`."""
    if workers is None:
        return
    numbers = workers if isinstance(workers, tuple) else (workers,)
    if len(numbers) not in (1, 2) or any(type(each) is not int for each in numbers):
        remedy = "give a number, or the least and the most: (2, 8)"
        raise WrongArgument(f"workers: {workers!r:.40} is not valid; {remedy}")
    for number in numbers:
        if not 1 <= number <= MAX_REPLICAS:
            raise WrongArgument(f"workers: {number} is not from 1 to {MAX_REPLICAS}")
    if numbers[0] > numbers[-1]:
        least, most = numbers
        raise WrongArgument(f"workers: the least, {least}, is more than the most, {most}")


def _check_different(name: str, values: Sequence[str], remedy: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise WrongArgument(f"{name}: {value:.80} is there twice; {remedy}")
