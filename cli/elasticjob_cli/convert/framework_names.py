"""FrameworkController's variables, labels and placeholders of a task, for pods of ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.names import ANNOTATION_ATTEMPT, ANNOTATION_RETRY, LABEL_INDEX, LABEL_JOB_UID

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

_PLACEHOLDER = re.compile(r"\{\{(FC_[A-Z_]+)\}\}")
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])FC_[A-Z_]+(?![A-Za-z0-9_])")
_LABELS = ("FC_FRAMEWORK_NAME", "FC_TASKROLE_NAME")
_VALID_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def rewrite(draft: Draft, job: str, given: Mapping[str, str], report: Report) -> None:
    """Give the pods of each role the variables and labels that tasks have, and replace placeholders.

    Args:
        draft: whose roles are changed.
        job: the Framework's name.
        given: the task role's name, by role.
        report: what is told about it.
    """
    for role, spec in draft.roles.items():
        fixed = {"FC_FRAMEWORK_NAME": job, "FC_TASKROLE_NAME": given[role]}
        variables = _variables(fixed)
        template = spec["template"]
        where = draft.sources[role]
        at = place(role, "template")
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for name in _LABELS:
            if _VALID_LABEL.fullmatch(fixed[name]):
                labels.setdefault(name, fixed[name])
        template["metadata"] = _replaced(template["metadata"], fixed, frozenset())
        names = frozenset(variable["name"] for variable in variables)
        used = {
            name
            for container in templates.all_containers(template)
            for name in _mentioned(container)
        }
        template["spec"] = _replaced(template["spec"], fixed, names)
        for container in templates.all_containers(template):
            templates.add_variables(container, variables)
        if unknown := sorted((used - names) | set(_PLACEHOLDER.findall(str(template)))):
            message = f"{', '.join(unknown)}: not known here, or not in this place"
            report.lost(where, message, at)


def _variables(fixed: Mapping[str, str]) -> list[Json]:
    """Return the variables, in an order in which each may refer to those before it."""
    of_the_pod = {
        "FC_FRAMEWORK_NAMESPACE": "metadata.namespace",
        "FC_TASK_INDEX": f"metadata.labels['{LABEL_INDEX}']",
        "FC_POD_NAME": "metadata.name",
        "FC_POD_UID": "metadata.uid",
        "FC_FRAMEWORK_UID": f"metadata.labels['{LABEL_JOB_UID}']",
        "FC_FRAMEWORK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_RETRY}']",
        "FC_TASK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_ATTEMPT}']",
    }
    # What they are made of there cannot be had: these are as unique.
    composed = {
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "$(FC_FRAMEWORK_ATTEMPT_ID)_$(FC_FRAMEWORK_UID)",
        "FC_TASK_ATTEMPT_INSTANCE_UID": "$(FC_TASK_ATTEMPT_ID)_$(FC_POD_UID)",
    }
    return [
        *({"name": name, "value": value} for name, value in fixed.items()),
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in of_the_pod.items()
        ),
        *({"name": name, "value": value} for name, value in composed.items()),
    ]


def _mentioned(container: Json) -> set[str]:
    values = [variable.get("value") for variable in container.get("env") or ()]
    text = " ".join(
        [templates.command_text(container), *(value for value in values if isinstance(value, str))]
    )
    return set(_VARIABLE.findall(text))


def _replaced(
    value: Any, fixed: Mapping[str, str], variables: frozenset[str], *, in_words: bool = False
) -> Any:
    """Replace placeholders everywhere.

    Those of a member only where Kubernetes replaces references to variables.
    """
    if isinstance(value, dict):
        return {
            key: _replaced(
                inner, fixed, variables, in_words=in_words or key in ("command", "args", "env")
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, fixed, variables, in_words=in_words) for inner in value]
    if not isinstance(value, str):
        return value

    def text_of(found: re.Match[str]) -> str:
        name = found[1]
        return fixed.get(name) or (f"$({name})" if in_words and name in variables else found[0])

    return _PLACEHOLDER.sub(text_of, value)
