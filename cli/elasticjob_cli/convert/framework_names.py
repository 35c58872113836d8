"""FrameworkController's variables, labels and placeholders of a task, for our pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.names import ANNOTATION_ATTEMPT, ANNOTATION_RETRY, LABEL_INDEX, LABEL_JOB_UID

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.jobs import Draft
from elasticjob_cli.convert.report import Report

_PLACEHOLDER = re.compile(r"\{\{(FC_[A-Z_]+)\}\}")
_VARIABLE = re.compile(r"(?<![A-Za-z0-9_])FC_[A-Z_]+(?![A-Za-z0-9_])")
_VALID_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_WITH_REFERENCES = ("command", "args", "env")
"""Fields in which Kubernetes replaces references to variables."""
_INDEX = "FC_TASK_INDEX"
_OF_THE_POD = {
    "FC_FRAMEWORK_NAMESPACE": "metadata.namespace",
    _INDEX: f"metadata.labels['{LABEL_INDEX}']",
    "FC_POD_NAME": "metadata.name",
    "FC_POD_UID": "metadata.uid",
    "FC_FRAMEWORK_UID": f"metadata.labels['{LABEL_JOB_UID}']",
    "FC_FRAMEWORK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_RETRY}']",
    "FC_TASK_ATTEMPT_ID": f"metadata.annotations['{ANNOTATION_ATTEMPT}']",
}
_COMPOSED = {
    "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "$(FC_FRAMEWORK_ATTEMPT_ID)_$(FC_FRAMEWORK_UID)",
    "FC_TASK_ATTEMPT_INSTANCE_UID": "$(FC_TASK_ATTEMPT_ID)_$(FC_POD_UID)",
}
"""As unique as FrameworkController's values, whose parts do not exist here."""


def rewrite(draft: Draft, job: str, task_roles: Mapping[str, str]) -> None:
    """Give the pods of each role the variables and labels of tasks, and replace placeholders.

    Args:
        draft: the job; its roles are changed.
        job: the Framework's name.
        task_roles: the name of the task role, by role.
    """
    for role, spec in draft.roles.items():
        fixed = {"FC_FRAMEWORK_NAME": job, "FC_TASKROLE_NAME": task_roles[role]}
        variables = _variables(fixed)
        names = frozenset(variable["name"] for variable in variables)
        template = spec["template"]
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for name, value in fixed.items():
            if _VALID_LABEL.fullmatch(value):
                labels.setdefault(name, value)
        template["metadata"] = _replaced(template["metadata"], fixed, frozenset())
        unknown: set[str] = set()
        for container in templates.all_containers(template):
            unknown |= _mentioned(container) - names
        template["spec"] = _replaced(template["spec"], fixed, names)
        for container in templates.all_containers(template):
            templates.add_variables(container, variables)
        unknown |= set(_PLACEHOLDER.findall(str(template)))
        if unknown:
            message = f"{', '.join(sorted(unknown))}: unknown here, or not in this place"
            draft.lost(role, message, "template")


def service(document: Json, report: Report) -> Json | None:
    """Return a Service with the operator's label for FC_TASK_INDEX; None if it selects no index."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return None
    selector = spec.get("selector")
    if not isinstance(selector, dict) or _INDEX not in selector:
        return None
    changed = {LABEL_INDEX if name == _INDEX else name: value for name, value in selector.items()}
    message = f"the label of a task's index is {LABEL_INDEX} here"
    report.differs("spec.selector", message, ("spec", "selector"))
    return {**document, "spec": {**spec, "selector": changed}}


def _variables(fixed: Mapping[str, str]) -> list[Json]:
    """Return the variables; each may refer to earlier ones."""
    of_the_pod = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _OF_THE_POD.items()
    ]
    return [
        *({"name": name, "value": value} for name, value in fixed.items()),
        *of_the_pod,
        *({"name": name, "value": value} for name, value in _COMPOSED.items()),
    ]


def _mentioned(container: Json) -> set[str]:
    words = [templates.command_text(container)]
    for variable in container.get("env") or ():
        if isinstance(variable.get("value"), str):
            words.append(variable["value"])
    return set(_VARIABLE.findall(" ".join(words)))


def _replaced(
    value: Any, fixed: Mapping[str, str], variables: frozenset[str], *, references: bool = False
) -> Any:
    """Replace placeholders everywhere; with `references` also by references to variables."""
    if isinstance(value, dict):
        return {
            key: _replaced(
                inner, fixed, variables, references=references or key in _WITH_REFERENCES
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, fixed, variables, references=references) for inner in value]
    if not isinstance(value, str):
        return value

    def text_of(found: re.Match[str]) -> str:
        name = found[1]
        if fixed.get(name):
            return fixed[name]
        if references and name in variables:
            return f"$({name})"
        return found[0]

    return _PLACEHOLDER.sub(text_of, value)
