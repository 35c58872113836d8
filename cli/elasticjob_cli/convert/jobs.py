"""Builds ElasticJobs that the API server and the operator accept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS, Peer, framework_of
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert import common_fields, processes, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.report import Report, shown

MORE_MEMORY = "a member that was OOMKilled gets twice its memory, up to maxMemory"
OUT_OF_MEMORY = f"there OOMKilled fails the job, here {MORE_MEMORY}"
_ROLE_ORDER = (
    "replicas", "minReplicas", "maxReplicas", "agent", "onWorldChange", "slotsPerReplica",
    "restartLimit", "restartRules", "restartOnSuccess", "autoScale", "processRestartLimit",
    "podForceDeleteSeconds", "completion", "template",
)  # fmt: skip
_SPEC_ORDER = ("framework", "runPolicy", "master", "autoscaling", "health", "replicaSpecs")
_SAVE = (
    "when members join or leave, all but the evaluator restart from the newest checkpoint: let the "
    "{saver} save when it is asked to stop; otherwise later steps are repeated "
    "(docs/frameworks/tensorflow.md)"
)


@dataclass
class Draft:
    """An ElasticJob under construction.

    Attributes:
        sources: the path of each role in the document.
    """

    metadata: Json
    framework: str
    report: Report
    spec: Json = field(default_factory=dict)
    roles: dict[str, Json] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, role: str, written: Json, source: Fields) -> None:
        """Add a role that was read from a part of the document."""
        self.roles[role] = written
        self.sources[role] = source.path

    def container(self, role: str) -> Json:
        """Return the container of a role that trains."""
        return templates.first_container(self.roles[role]["template"])

    def lost(self, role: str, message: str, *inner: str | int) -> None:
        """Note a loss at a field of a role."""
        self.report.lost(self.sources[role], message, place(role, *inner))

    def invented(self, role: str, message: str, *inner: str | int) -> None:
        """Note an invented field of a role."""
        self.report.invented(self.sources[role], message, place(role, *inner))

    def differs(self, role: str, message: str, *inner: str | int) -> None:
        """Note a difference at a field of a role."""
        self.report.differs(self.sources[role], message, place(role, *inner))

    def fix_size(self, role: str, *, source: str = "") -> None:
        """Set `minReplicas` to `replicas`, as the size of the other operator's job was fixed.

        `source`: the path of the note; empty: that of the role.
        """
        written = self.roles[role]
        written["minReplicas"] = written["replicas"]
        remedy = "lower it if the program can train with fewer members"
        message = f"minReplicas: there the size was fixed; {remedy}"
        where = source or self.sources[role]
        self.report.invented(where, message, place(role, "minReplicas"))


def begun(document: Fields, framework: str) -> Draft:
    """Return a draft with the metadata of a document."""
    metadata = common_fields.metadata(document, of_job=True)
    return Draft(metadata, framework, document.report)


def place(role: str, *inner: str | int) -> Place:
    """Return the place of a field of a role."""
    return ("spec", "replicaSpecs", role, *inner)


CONTAINER = ("template", "spec", "containers", 0)
"""The place of the container that trains, in a role."""


def finish(draft: Draft) -> Json | None:
    """Return the ElasticJob; None if it would be invalid, which is noted."""
    report = draft.report
    _restart_servers(draft)
    _check_framework(draft)
    for role, written in draft.roles.items():
        _include_replicas(draft, role)
        if written.get("agent") != "None":
            _make_startable(draft, role)
        _note_missing_images(draft, role)
    if not 1 <= len(draft.roles) <= MAX_ROLES:
        groups = f"has {len(draft.roles)} groups of pods"
        report.refused("spec", f"{groups}, but a job has 1 to {MAX_ROLES} roles; make several jobs")
    if report.failed:
        return None
    roles = {role: _ordered(values, _ROLE_ORDER) for role, values in draft.roles.items()}
    for values in roles.values():
        values["template"] = _ordered(values["template"], ("metadata", "spec"))
    spec = {"framework": draft.framework, **draft.spec, "replicaSpecs": roles}
    job = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": draft.metadata,
        "spec": _ordered(spec, _SPEC_ORDER),
    }
    return checked(job, ElasticJob, report)


def checked(written: Json, kind: type[Any], report: Report) -> Json | None:
    """Return an object without an error whose fields are within their bounds; else None."""
    if report.failed:
        return None
    try:
        msgspec.convert(written, kind)
    except msgspec.ValidationError as error:
        report.refused("the result", f"would be refused: {error}; change its source")
        return None
    return written


def _include_replicas(draft: Draft, role: str) -> None:
    """Move `minReplicas` and `maxReplicas` so that `replicas` is between them."""
    written = draft.roles[role]
    replicas = written["replicas"]
    least = written.get("minReplicas", replicas)
    most = written.get("maxReplicas", replicas)
    for name, bound, nearest in (
        ("minReplicas", least, min(least, replicas)),
        ("maxReplicas", most, max(most, replicas)),
    ):
        if bound != nearest:
            message = f"{name} was {bound}; it must include replicas, so it is {nearest}"
            written[name] = nearest
            draft.differs(role, message, name)


def _make_startable(draft: Draft, role: str) -> None:
    """Change a role's first container so that the agent can start it."""
    container = draft.container(role)
    launched = draft.framework == "horovod" and "launcher" in draft.roles and role != "launcher"
    if not launched and not container.get("command"):
        container["command"] = [templates.NO_COMMAND]
        image = shown(container.get("image", "IMAGE"))
        message = (
            "the container has no command, and its image's command is unknown here: write it "
            f"in place of {templates.NO_COMMAND}: docker image inspect "
            f"--format '{{{{.Config.Entrypoint}}}} {{{{.Config.Cmd}}}}' {image}"
        )
        draft.lost(role, message, *CONTAINER, "command")
    removed = templates.remove_variables(container, _set_by_the_agent(draft.framework, draft.roles))
    for name in removed:
        message = f"{name} is set by the agent, for each world; it is left out"
        at = place(role, *CONTAINER, "env")
        draft.report.differs(f"{draft.sources[role]}.env", message, at)
    written = draft.roles[role]
    at = place(role, "slotsPerReplica")
    for kind, message in processes.settle(draft.framework, written, container):
        draft.report.add(kind, draft.sources[role], message, at)


def _note_missing_images(draft: Draft, role: str) -> None:
    pod = draft.roles[role]["template"]["spec"]
    for kind in ("containers", "initContainers"):
        for position, container in enumerate(pod.get(kind) or ()):
            if not container.get("image"):
                name = shown(container.get("name"))
                message = f"container {name} has no image: write it, or its pods are refused"
                draft.lost(role, message, "template", "spec", kind, position)


def _restart_servers(draft: Draft) -> None:
    """Restart TensorFlow's parameter servers in each world; a process cannot change its cluster."""
    servers = draft.roles.get("ps")
    if draft.framework != "tensorflow" or servers is None:
        return
    saver = "first worker"
    if "chief" in draft.roles:
        servers["onWorldChange"] = "Restart"
        saver = "chief"
    draft.differs("ps", _SAVE.format(saver=saver))


def _check_framework(draft: Draft) -> None:
    """Change the framework to custom if its roles are not those of the job."""
    problem = _role_problem(draft)
    if problem:
        name = draft.framework
        result = f"it is custom, without the variables of {name}"
        message = f"framework {name} does not fit, as {problem}; {result}"
        draft.report.lost("spec", message, ("spec", "framework"))
        draft.framework = "custom"


def _role_problem(draft: Draft) -> str:
    framework = FRAMEWORKS[draft.framework]
    managed = [role for role, spec in draft.roles.items() if spec.get("agent") != "None"]
    if framework.roles:
        foreign = [role for role in managed if role not in framework.roles]
        if foreign:
            return f"it has no role {', '.join(foreign)}"
    lacking = [" or ".join(group) for group in framework.required if not set(group) & set(managed)]
    if lacking:
        return f"it needs a role {', '.join(lacking)}"
    several = [
        role for role in framework.single_roles if draft.roles.get(role, {}).get("replicas", 1) > 1
    ]
    if several:
        return f"it has one {', '.join(several)} only"
    return ""


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
