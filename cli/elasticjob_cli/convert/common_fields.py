"""Reads fields that the jobs of several operators share. Pure."""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.naming import job_name, job_prefix
from elasticjob_cli.convert.tables.rows import reason

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
