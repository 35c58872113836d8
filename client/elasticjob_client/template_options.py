"""The options of `submit` and `init`, which are also the keys of a namespace's defaults.

Each becomes a field of a `JobTemplate`. An administrator writes the defaults of a namespace into a
ConfigMap, which is read with the user's own rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob_kube.errors import Forbidden, NotFound
from elasticjob_kube.resources import CONFIG_MAPS

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.job_template import JobTemplate, check_workers, merged

CONFIG_MAP = "elasticjob-defaults"
_WORKERS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Option:
    """An option: its help, and how the texts that it was given become the field's value.

    `many`: it may be given more than once; in the defaults of a namespace, one in each line.
    """

    field: str
    help: str
    parse: Callable[[Sequence[str]], Any]
    metavar: str = "TEXT"
    many: bool = False


def _last(texts: Sequence[str]) -> str:
    return texts[-1]


def parse_workers(text: str) -> int | tuple[int, int]:
    """Return the number of workers, or the least and the most. Raises `WrongArgument`."""
    match = _WORKERS.fullmatch(text)
    if match is None:
        raise WrongArgument(
            f"workers {text[:40]!r}: give a number (4), or the least and the most (2:8)"
        )
    found = (int(match[1]), int(match[2])) if match[2] else int(match[1])
    check_workers(found)
    return found


def _whole(field: str) -> Callable[[Sequence[str]], int]:
    def parse(texts: Sequence[str]) -> int:
        if not re.fullmatch("-?[0-9]{1,9}", texts[-1]):
            raise WrongArgument(f"{field}: {texts[-1]!r:.40} is not a whole number")
        return int(texts[-1])

    return parse


def _assignments(field: str) -> Callable[[Sequence[str]], dict[str, str]]:
    def parse(texts: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in texts:
            name, sign, value = text.partition("=")
            if not (name and sign):
                raise WrongArgument(f"{field} {text[:40]!r}: give NAME=value")
            found[name] = value
        return found

    return parse


OPTIONS: Mapping[str, Option] = {
    "image": Option("image", "Image with Python in which the program runs.", _last),
    "framework": Option("framework", "Default: custom.", _last),
    "workers": Option(
        "workers",
        "Workers (4), or the least and the most (2:8).",
        lambda texts: parse_workers(texts[-1]),
        "N|MIN:MAX",
    ),
    "gpus": Option("gpus", "GPUs of each worker.", _whole("gpus"), "N"),
    "cpu": Option("cpu", "CPU that each worker requests, such as 500m.", _last),
    "memory": Option("memory", "Memory of each worker, such as 4Gi.", _last),
    "shared-memory": Option("shared_memory", "Size of /dev/shm, such as 8Gi.", _last),
    "env": Option("env", "Variable.", _assignments("env"), "NAME=VALUE", many=True),
    "env-secret": Option(
        "env_secrets", "Variable from a Secret; or all of its keys.", list, "NAME=SECRET/KEY", True
    ),
    "volume": Option(
        "volumes",
        "pvc:CLAIM:PATH, nfs:SERVER:/EXPORT:PATH, host:/FOLDER:PATH or empty:SIZE:PATH; with :ro "
        "at the end read-only.",
        list,
        "VOLUME",
        many=True,
    ),
    "node-selector": Option(
        "node_selector", "Label of the nodes.", _assignments("node-selector"), "KEY=VALUE", True
    ),
    "toleration": Option(
        "tolerations", "Taint that pods tolerate.", list, "KEY[=VALUE][:EFFECT]", many=True
    ),
    "pull-secret": Option(
        "pull_secrets", "Secret for the image's registry.", list, "SECRET", many=True
    ),
    "service-account": Option("service_account", "Service account of the pods.", _last),
    "autoscale": Option(
        "autoscale",
        "Let the job scale itself: efficiency, throughput, deadline=2026-01-31T18:00:00Z, or "
        "cost=PRICE of a worker.",
        _last,
        "OBJECTIVE",
    ),
    "restart-limit": Option(
        "restart_limit",
        "Restarts of a failed worker before the job fails; default: 3.",
        _whole("restart_limit"),
        "N",
    ),
    "file": Option("files", "File or folder that lies beside the script.", list, "PATH", many=True),
    "pip": Option("pip", "Package that is installed at the start.", list, "REQUIREMENT", many=True),
    "pip-cache": Option(
        "pip_cache", "Folder on a volume that keeps installed packages.", _last, "PATH"
    ),
}
"""By name."""
OF_THE_USER = frozenset({"file"})
"""Options that name something of the user's machine, and so have no default of a namespace."""


def template_of(given: Mapping[str, Sequence[str]]) -> JobTemplate:
    """Return the template of options; `given`: the texts that each was given, at least one.

    Raises `WrongArgument`.
    """
    values = {OPTIONS[name].field: OPTIONS[name].parse(texts) for name, texts in given.items()}
    return JobTemplate(**values)


def defaults_of(data: Mapping[str, str]) -> JobTemplate:
    """Return the defaults in the data of a ConfigMap. Raises `WrongArgument`, which names the key.

    Empty lines, and those that begin with #, are comments.
    """
    given: dict[str, Sequence[str]] = {}
    for name, text in data.items():
        option = None if name in OF_THE_USER else OPTIONS.get(name)
        if option is None:
            known = ", ".join(name for name in OPTIONS if name not in OF_THE_USER)
            raise WrongArgument(f"data.{name}: is no option of submit; remove it, or give {known}")
        lines = [line.strip() for line in text.splitlines()]
        given[name] = [line for line in lines if line and not line.startswith("#")]
        if not given[name] or (len(given[name]) > 1 and not option.many):
            number = "one line or more" if option.many else "one line"
            raise WrongArgument(f"data.{name}: has {len(given[name])} lines; give {number}")
        try:
            template_of({name: given[name]})
        except WrongArgument as error:
            if name != "pip-cache":  # its volume has another key
                raise WrongArgument(f"data.{name}: {error}") from error
    return template_of(given)


@dataclass(frozen=True)
class Completed:
    """A template with the defaults of its namespace; `origin` says which ones, for people."""

    template: JobTemplate
    origin: str = ""


async def completed(cluster: Cluster, template: JobTemplate) -> Completed:
    """Complete a template. Without the ConfigMap, or the right to read it, there are no defaults.

    Raises:
        WrongArgument: the template does not fit the defaults.
        ClientError: the ConfigMap has wrong contents, or cannot be read for another reason.
    """
    found = await ask(cluster, CONFIG_MAPS, CONFIG_MAP, lambda: _data(cluster))
    if not found:
        return Completed(template)
    where = f"ConfigMap {cluster.namespace}/{CONFIG_MAP}"
    try:
        defaults = defaults_of(found)
    except WrongArgument as error:
        remedy = "let its author correct it, or use no defaults (--no-defaults)"
        raise ClientError(f"{where}: {error}; {remedy}") from error
    try:
        both = merged(defaults, template)
    except WrongArgument as error:
        raise WrongArgument(f"{error} ({where} has defaults)") from error
    return Completed(both, f"defaults of {where}: {', '.join(sorted(found))}")


async def _data(cluster: Cluster) -> Mapping[str, str]:
    try:
        found = await cluster.kube.get(CONFIG_MAPS, cluster.namespace, CONFIG_MAP)
    except (NotFound, Forbidden):
        return {}
    binary = {f"binaryData/{name}": "" for name in found.get("binaryData") or ()}  # is refused
    return {**(found.get("data") or {}), **binary}
