"""Knows the labels that other operators give to pods, and replaces references to them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from elasticjob_api import names

from elasticjob_cli.convert import framework_names
from elasticjob_cli.convert.peers import PeerJob


class Part(Enum):
    """What a label of a pod says."""

    JOB = auto()
    TYPE = auto()
    INDEX = auto()
    POD = auto()
    OPERATOR = auto()
    OTHER = auto()


_KUBEFLOW = "training.kubeflow.org/"
_DLROVER = "elasticjob.dlrover/"
_JOB_SET = "jobset.sigs.k8s.io/"
_PREFIXES = (_KUBEFLOW, _DLROVER, _JOB_SET)
_LABELS: Mapping[str, Part] = MappingProxyType(
    dict.fromkeys(
        (
            *(f"{_KUBEFLOW}job-name", "job-name", "pytorch-job-name", "tf-job-name"),
            *("mpi-job-name", "training-job-name", "job_name", f"{_DLROVER}name"),
            f"{_JOB_SET}jobset-name",
        ),
        Part.JOB,
    )
    | dict.fromkeys(
        (
            *(f"{_KUBEFLOW}replica-type", f"{_KUBEFLOW}job-role", "replica-type", "job-role"),
            *("pytorch-replica-type", "tf-replica-type", "mpi-job-role", "training-job-role"),
            *(f"{_DLROVER}replica-type", f"{_JOB_SET}replicatedjob-name"),
        ),
        Part.TYPE,
    )
    | dict.fromkeys(
        (
            *(f"{_KUBEFLOW}replica-index", "replica-index", "pytorch-replica-index"),
            *("tf-replica-index", f"{_DLROVER}replica-index", f"{_DLROVER}rank-index"),
            "batch.kubernetes.io/job-completion-index",
        ),
        Part.INDEX,
    )
    | dict.fromkeys((f"{_KUBEFLOW}operator-name", "group-name", "controller-name"), Part.OPERATOR)
    | {"pod_name": Part.POD}
)
_OURS = {
    Part.JOB: names.LABEL_JOB_NAME,
    Part.TYPE: names.LABEL_ROLE,
    Part.INDEX: names.LABEL_INDEX,
}
_OF_A_TASK = "FC_"
_FIELD = re.compile(r"metadata\.(?:labels|annotations)\['([^']{1,400})'\]")


class Lost(Exception):
    """A label has no equivalent; the message says why."""


def part_of(key: str, job: PeerJob | None) -> Part | None:
    """Return what a label of a job's pods says; None if no operator sets it, but the user."""
    if job is not None and key in job.own_labels:
        return None
    return _LABELS.get(key) or (Part.OTHER if is_of_an_operator(key) else None)


def is_of_an_operator(key: str) -> bool:
    """Return whether only another operator gives pods such a label."""
    return key.startswith(_PREFIXES)


def renamed(key: str, job: PeerJob | None) -> str:
    """Return the label here whose values differ where those of another operator's label differ.

    Raises:
        Lost: there is none.
    """
    if key == framework_names.INDEX:
        return names.LABEL_INDEX
    part = part_of(key, job) if job or is_of_an_operator(key) else None
    if part is None:
        return key
    if part not in _OURS:
        raise Lost(f"{key}: no pod here has a label that says this")
    return _OURS[part]


def field_path(path: str, job: PeerJob | None) -> tuple[str, str]:
    """Return the path of a field of a pod, and in which way it differs; empty: in none.

    Raises:
        Lost: it is a label without an equivalent.
    """
    found = _FIELD.fullmatch(path)
    if found is None:
        return path, ""
    name = found[1]
    if name.startswith(_OF_A_TASK):
        if (ours := framework_names.path_of(name)) is None:
            raise Lost(f"{name}: {framework_names.UNKNOWN}")
        return ours, ""
    if job is None or (ours := renamed(name, job)) == name:
        return path, ""
    differs = ""
    if ours != names.LABEL_JOB_NAME and any(group.first for group in job.groups.values()):
        differs = "; the Master is the worker of index 0, and the index of a Worker is one higher"
    return f"metadata.labels['{ours}']", differs
