"""Writes a commented job file to start from, for each framework. Pure.

The job is the one that `submit` creates. Comments and defaults come from the API's types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import yaml
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from msgspec import inspect as mi

from elasticjob_client.job_template import JobTemplate, merged
from elasticjob_client.manifests import Program, job_manifest
from elasticjob_client.served_fields import plain, struct_of
from elasticjob_client.yaml_text import as_yaml

Path = tuple[str, ...]
_OPTIONS: Mapping[Path, Sequence[str]] = {
    ("spec", "replicaSpecs", names.ROLE_WORKER): ("restartLimit", "drainSeconds", "autoScale"),
    ("spec", "autoscaling"): ("enabled", "cooldownSeconds"),
    ("spec", "runPolicy"): ("backoffLimit", "cleanPodPolicy", "startPolicy", "suspend"),
}
"""Fields that are shown with their defaults, commented out."""
OPTION = "#"
"""Begins a line with a commented-out field; in a comment a space follows."""
IMAGE = "registry.example/train:1"
_PROGRAM = Program("train.py", ("python", "train.py"))
_TEMPLATE = JobTemplate(image=IMAGE, workers=(1, 4), cpu="1", memory="2Gi")
_REPLICAS = 2


def starter(framework: str, *, name: str, template: JobTemplate | None = None) -> str:
    """Return a job file with what the user has chosen; its image has `train.py`."""
    chosen = replace(template or JobTemplate(), framework=framework)
    job = job_manifest(name, merged(_TEMPLATE, chosen), _PROGRAM)
    if chosen.workers is None:
        job["spec"]["replicaSpecs"][names.ROLE_WORKER]["replicas"] = _REPLICAS
    head = (
        f"# elasticjob submit {name}.yaml",
        "# All fields: kubectl explain ej.spec --recursive. Remove a # to use its field.",
    )
    return "\n".join([*head, *_lines(job, struct_of(ElasticJob), ())]) + "\n"


def _lines(value: Json, known: mi.Type | None, path: Path) -> Iterator[str]:
    """Yield the lines of a mapping, and then of its commented-out fields."""
    indent = "  " * len(path)
    for name, each in value.items():
        field = _field(known, name)
        if (description := _description(field)) and not _is_other_role(path):
            yield f"{indent}# {description}"
        if isinstance(each, dict) and "template" not in (*path, name):
            yield f"{indent}{name}:"
            yield from _lines(each, _type_of(field), (*path, name))
        else:
            yield from (f"{indent}{line}" for line in as_yaml([{name: each}]).splitlines())
    for parent, options in _OPTIONS.items():
        if parent == path:
            yield from _option_lines(options, known, indent)
        elif parent[:-1] == path and parent[-1] not in value:
            yield f"{indent}{OPTION}{parent[-1]}:"
            yield from _option_lines(
                options, _type_of(_field(known, parent[-1])), f"{indent}{OPTION}  "
            )


def _is_other_role(path: Path) -> bool:
    """Return whether a path is in another role than the worker, which has the comments."""
    return path[1:2] == ("replicaSpecs",) and path[2:3] not in ((), (names.ROLE_WORKER,))


def _option_lines(options: Sequence[str], known: mi.Type | None, indent: str) -> Iterator[str]:
    """Yield a comment and a commented-out line for each option."""
    spaces = indent.replace(OPTION, "")
    for name in options:
        field = _field(known, name)
        assert isinstance(field, mi.Field)
        default = yaml.safe_dump(msgspec.to_builtins(field.default)).splitlines()[0]
        yield f"{spaces}# {_description(field)}"
        yield f"{indent if OPTION in indent else indent + OPTION}{name}: {default}"


def _field(known: mi.Type | None, name: str) -> mi.Field | mi.Type | None:
    """Return the field of a structure, or the type of a mapping's values."""
    found = None if known is None else plain(known)
    if isinstance(found, mi.DictType):
        return found.value_type
    if isinstance(found, mi.StructType):
        return next((field for field in found.fields if field.encode_name == name), None)
    return None


def _type_of(field: mi.Field | mi.Type | None) -> mi.Type | None:
    return field.type if isinstance(field, mi.Field) else field


def _description(field: mi.Field | mi.Type | None) -> str:
    """Return the API's description of a field."""
    found = _type_of(field) if isinstance(field, mi.Field) else None
    if isinstance(found, mi.Metadata):
        return str((found.extra_json_schema or {}).get("description", ""))
    return ""
