"""Reads fields that the jobs of several operators share, and makes names valid. Pure."""

from __future__ import annotations

import hashlib
import re

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json
from elasticjob_api.names import ROLE_MASTER

from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.tables.rows import reason

MAX_JOB_NAME = 40
MAX_ROLE_NAME = 20
_GENERATED_CHARACTERS = 5
"""Characters that Kubernetes appends to a `generateName`."""
_VALID = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LIKE_A_MEMBER = re.compile(r".*-[0-9]+")


def job_name(name: str) -> str:
    """Return a job's name as a valid name of an ElasticJob."""
    if _VALID.fullmatch(name) and len(name) <= MAX_JOB_NAME:
        return name
    return _made(name, MAX_JOB_NAME, "job")


def job_prefix(prefix: str) -> str:
    """Return a `generateName` as a valid one of an ElasticJob."""
    room = MAX_JOB_NAME - _GENERATED_CHARACTERS
    if len(prefix) <= room and _VALID.fullmatch(prefix + "0"):
        return prefix
    return _made(prefix, room - 1, "job") + "-"


def role_name(name: str) -> str:
    """Return the name of a group of pods as a valid name of a role."""
    usable = _VALID.fullmatch(name) and not _LIKE_A_MEMBER.fullmatch(name) and name != ROLE_MASTER
    if usable and len(name) <= MAX_ROLE_NAME:
        return name
    return _made(name, MAX_ROLE_NAME, "role")


def _made(name: str, most: int, otherwise: str) -> str:
    """Return a valid name: the usable characters, and a part of the hash, which keeps it unique."""
    usable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not usable or not usable[0].isalpha():
        usable = f"{otherwise}-{usable}".rstrip("-")
    mark = "h" + hashlib.sha256(name.encode()).hexdigest()[:5]
    return f"{usable[: most - len(mark) - 1].rstrip('-')}-{mark}"


_SET_BY_THE_SERVER = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
)  # fmt: skip
CLEAN_POLICIES = ("All", "Running", "None")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def metadata(document: Fields, *, of_job: bool) -> Json:
    """Return the metadata of the object; names of jobs become valid names."""
    read = document.map("metadata")
    name = read.text("name")
    prefix = read.text("generateName")
    found: Json = {}
    if name:
        found["name"] = job_name(name) if of_job else name
        _note_name(read, "name", name, found["name"])
    elif prefix:
        found["generateName"] = job_prefix(prefix) if of_job else prefix
        _note_name(read, "generateName", prefix, found["generateName"])
        message = (
            "kubectl apply refuses an object without a name: use kubectl create, or write a name"
        )
        read.differs("generateName", message, ("metadata", "generateName"))
    else:
        read.invalid("name", read.raw("name"), "a name; give it")
    if namespace := read.text("namespace"):
        found["namespace"] = namespace
    if labels := read.text_map("labels"):
        found["labels"] = labels
    annotations = read.text_map("annotations")
    annotations.pop(_LAST_APPLIED, None)
    for key in annotations:
        if reason(read.report.table, read.where(f"annotations.{key}")):
            read.lost(f"annotations.{key}", at=("metadata", "annotations", key))
    if annotations:
        found["annotations"] = annotations
    for key in _SET_BY_THE_SERVER:
        read.raw(key)
    read.done()
    return found


def _note_name(read: Fields, key: str, given: str, written: str) -> None:
    if given != written:
        rule = "at most 40 lower-case letters, digits and dashes"
        message = f"{given} is not a valid name of an ElasticJob ({rule}); it becomes {written}"
        read.differs(key, message, ("metadata", key))


def owner_name(read: Fields, field: str) -> str:
    """Read the name of a job that another object changes; return the ElasticJob's name."""
    name = read.text(field, required=True)
    ours = job_name(name) if name else "unknown"
    if ours != name:
        read.differs(field, f"{name} is {ours} here", ("spec", "jobName"))
    return ours


def run_policy(read: Fields, *, clean_default: str | None) -> Json:
    """Return the fields of a run policy that several operators share with this one.

    Args:
        read: the map with these fields.
        clean_default: the other operator's default of `cleanPodPolicy`, if it is not `Running`.
    """
    found: Json = {}
    policy = read.text("cleanPodPolicy", choices=CLEAN_POLICIES)
    if policy:
        found["cleanPodPolicy"] = policy
    elif clean_default:
        found["cleanPodPolicy"] = clean_default
        message = f"cleanPodPolicy: {clean_default} is the default there, Running is ours"
        read.differs("cleanPodPolicy", message, ("spec", "runPolicy", "cleanPodPolicy"))
    bounded = (
        ("ttlSecondsAfterFinished", 0, 31_536_000),
        ("activeDeadlineSeconds", 1, MAX_INT32),
    )
    for name, low, high in bounded:
        if (seconds := read.integer(name, low, high)) is not None:
            found[name] = seconds
    return found


def replicas(read: Fields, name: str = "replicas", default: int = 1) -> int:
    """Read a number of members."""
    found = read.integer(name, 0, MAX_REPLICAS)
    return default if found is None else found


def read_bounds(read: Fields, role: Json) -> None:
    """Read `minReplicas` and `maxReplicas` of a role."""
    for name in ("minReplicas", "maxReplicas"):
        if (bound := read.integer(name, 0, MAX_REPLICAS)) is not None:
            role[name] = bound


def read_processes(read: Fields, name: str, role: Json) -> str:
    """Read the number of processes in a pod; return the word that replaces it, or nothing."""
    value = read.raw(name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 4:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SLOTS:
        role["slotsPerReplica"] = value
    elif value in ("auto", "gpu", "cpu"):
        return str(value)
    elif value is not None:
        read.invalid(name, value, f"a number from 1 to {MAX_SLOTS}, auto, gpu or cpu")
    return ""
