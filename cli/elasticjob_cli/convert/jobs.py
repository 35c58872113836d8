"""Puts together an ElasticJob so that it is accepted, whatever the other operator's job was like.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS, ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS, Peer, framework_of
from elasticjob_api.gpus import gpus_of, slots_error
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.naming import job_name, job_prefix
from elasticjob_cli.convert.report import Place, Report, shown

MAX_RESTARTS = 10_000
MORE_MEMORY = "a member that was OOMKilled gets twice its memory, up to maxMemory"
OUT_OF_MEMORY = f"OOMKilled is for good there, here {MORE_MEMORY}"
_ROLE_ORDER = (
    "replicas", "minReplicas", "maxReplicas", "agent", "onWorldChange", "slotsPerReplica", "restartLimit",
    "restartRules", "restartOnSuccess", "autoScale", "processRestartLimit", "podForceDeleteSeconds", "completion",
    "template",
)  # fmt: skip
_SPEC_ORDER = ("framework", "runPolicy", "master", "autoscaling", "health", "replicaSpecs")
_OF_THE_SERVER = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass
class Draft:
    """An ElasticJob that is being written.

    Attributes:
        sources: where each role was in the document.
    """

    metadata: Json
    framework: str
    spec: Json = field(default_factory=dict)
    roles: dict[str, Json] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def place(role: str, *inner: str | int) -> Place:
    """Return where a field of a role is written."""
    return ("spec", "replicaSpecs", role, *inner)


def metadata(document: Fields, *, of_job: bool) -> Json:
    """Return the metadata for the object that is written; names of jobs are made valid."""
    read = document.map("metadata")
    name = read.text("name")
    prefix = read.text("generateName")
    if not name and not prefix:
        read.report.invalid(read.where("name"), read.raw("name"), "a name; give it")
    found: Json = {}
    if name:
        found["name"] = job_name(name) if of_job else name
    elif prefix:
        found["generateName"] = job_prefix(prefix) if of_job else prefix
    for key, given in (("name", name), ("generateName", prefix)):
        if key in found and found[key] != given:
            message = f"{given} is no name for an ElasticJob (at most 40 lower-case letters, digits and dashes)"
            read.report.differs(
                read.where(key), f"{message}; it is {found[key]}", ("metadata", key)
            )
    if namespace := read.text("namespace"):
        found["namespace"] = namespace
    if labels := read.text_map("labels"):
        found["labels"] = labels
    if annotations := {
        key: text for key, text in read.text_map("annotations").items() if key != _LAST_APPLIED
    }:
        found["annotations"] = annotations
    for key in _OF_THE_SERVER:
        read.raw(key)
    read.done()
    return found


def bounds(role: Json, report: Report, where: str, at: Place) -> None:
    """Make `minReplicas` and `maxReplicas` such that `replicas` is between them."""
    replicas = role["replicas"]
    least = role.get("minReplicas")
    most = role.get("maxReplicas")
    if least is not None and least > replicas:
        _move_bound(role, "minReplicas", report, where, at)
    if most is not None and most < replicas:
        _move_bound(role, "maxReplicas", report, where, at)


def _move_bound(role: Json, name: str, report: Report, where: str, at: Place) -> None:
    message = f"{name} was {role[name]}; it has to hold for replicas, so it is {role['replicas']}"
    role[name] = role["replicas"]
    report.differs(where, message, (*at, name))


def fixed_size(role: Json, report: Report, where: str, at: Place) -> None:
    """Let a job whose size was fixed train with all its members only."""
    role["minReplicas"] = role["replicas"]
    message = "minReplicas: there the size was fixed; lower it when the program can go on with fewer members"
    report.invented(where, message, (*at, "minReplicas"))


def finish(draft: Draft, report: Report) -> Json | None:
    """Return the ElasticJob; None if there can be none, which is noted."""
    _known_framework(draft, report)
    for role, written in draft.roles.items():
        bounds(written, report, draft.sources[role], place(role))
        if written.get("agent") != "None":
            _member(draft, role, written, report)
    if not 1 <= len(draft.roles) <= MAX_ROLES:
        report.refused(
            "spec",
            f"has {len(draft.roles)} groups of pods, but a job has 1 to {MAX_ROLES} roles; make several jobs",
        )
    if report.failed:
        return None
    spec: Json = {"framework": draft.framework, **draft.spec}
    spec["replicaSpecs"] = {
        role: _ordered(values, _ROLE_ORDER) for role, values in draft.roles.items()
    }
    for values in spec["replicaSpecs"].values():
        values["template"] = _ordered(values["template"], ("metadata", "spec"))
    job = {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "metadata": draft.metadata}
    job["spec"] = _ordered(spec, _SPEC_ORDER)
    return checked(job, ElasticJob, report)


def checked(written: Json, kind: type[Any], report: Report) -> Json | None:
    """Return an object if its fields are within their bounds; else note why not."""
    try:
        msgspec.convert(written, kind)
    except msgspec.ValidationError as error:
        report.refused("the result", f"would be refused: {error}; change what it comes from")
        return None
    return written


def run_policy(read: Fields, *, clean_default: str | None) -> Json:
    """Return the fields of a run policy that have the same names and meanings at several operators.

    Args:
        read: what has them.
        clean_default: their default of `cleanPodPolicy`, if it is not ours.
    """
    found: Json = {}
    policy = read.text("cleanPodPolicy", choices=("All", "Running", "None"))
    if policy or clean_default:
        found["cleanPodPolicy"] = policy or clean_default
        if not policy:
            message = f"cleanPodPolicy: {clean_default} is the default there, Running is ours"
            read.report.differs(
                read.where("cleanPodPolicy"), message, ("spec", "runPolicy", "cleanPodPolicy")
            )
    for name, low, high in (
        ("ttlSecondsAfterFinished", 0, 31_536_000),
        ("activeDeadlineSeconds", 1, MAX_INT32),
    ):
        if (seconds := read.integer(name, low, high)) is not None:
            found[name] = seconds
    return found


def replicas(read: Fields, name: str = "replicas", default: int = 1) -> int:
    """Read a number of members."""
    found = read.integer(name, 0, MAX_REPLICAS)
    return default if found is None else found


def needs_command(role: Json, report: Report, where: str, at: Place) -> None:
    """Give a container without a command one that has to be replaced."""
    container = templates.first_container(role["template"])
    if container.get("command"):
        return
    image = shown(container.get("image", "IMAGE"))
    container["command"] = [templates.NO_COMMAND]
    report.lost(
        where,
        "the container has no command, and its image's own is not known here: write it "
        f"in place of {templates.NO_COMMAND}: docker image inspect "
        f"--format '{{{{.Config.Entrypoint}}}} {{{{.Config.Cmd}}}}' {image}",
        (*at, "template", "spec", "containers", 0, "command"),
    )


def _member(draft: Draft, role: str, spec: Json, report: Report) -> None:
    """Make a role's first container such that the agent can start it."""
    where = draft.sources[role]
    at = place(role)
    container = templates.first_container(spec["template"])
    launched = draft.framework == "horovod" and "launcher" in draft.roles and role != "launcher"
    if not launched:
        needs_command(spec, report, where, at)
    templates.remove_variables(
        container,
        _set_by_the_agent(draft.framework, draft.roles),
        report,
        where,
        (*at, "template", "spec", "containers", 0, "env"),
    )
    try:
        problem = slots_error(spec.get("slotsPerReplica"), gpus_of(container))
    except ValueError as error:
        problem = str(error)
    if problem:
        report.refused(where, f"slotsPerReplica: {problem}")


def _known_framework(draft: Draft, report: Report) -> None:
    """Fall back to custom where the roles are not those of the framework."""
    framework = FRAMEWORKS[draft.framework]
    managed = [role for role, spec in draft.roles.items() if spec.get("agent") != "None"]
    foreign = [role for role in managed if framework.roles and role not in framework.roles]
    lacking = [" or ".join(group) for group in framework.required if not set(group) & set(managed)]
    several = [
        role for role in framework.single_roles if draft.roles.get(role, {}).get("replicas", 1) > 1
    ]
    if problem := (
        (foreign and f"it has no role {', '.join(foreign)}")
        or (lacking and f"it needs a role {', '.join(lacking)}")
        or (several and f"it has one {', '.join(several)} only")
    ):
        message = f"framework {draft.framework} does not fit, as {problem}; it is custom, without that one's variables"
        report.lost("spec", message, ("spec", "framework"))
        draft.framework = "custom"


def _set_by_the_agent(framework: str, roles: Mapping[str, Json]) -> frozenset[str]:
    known = framework_of(framework, roles)
    world = [Peer(role, role, 0, address="") for role in known.roles or (names.ROLE_WORKER,)]
    environment = known.environment(world)
    fixed = {value for key, value in vars(names).items() if key.startswith("ENV_")}
    of_framework = {variable for rank in range(len(world)) for variable in environment(rank)}
    return frozenset(fixed | of_framework | {names.hosts_env(role) for role in roles})


def _ordered(values: Json, order: tuple[str, ...]) -> Json:
    return {name: values[name] for name in order if values.get(name) not in (None, {}, [])} | {
        name: value for name, value in values.items() if name not in order
    }
