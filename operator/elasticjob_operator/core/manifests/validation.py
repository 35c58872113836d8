"""Validates a job before it gets pods; an error names the field and the remedy."""

from __future__ import annotations

import posixpath
from decimal import Decimal

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.frameworks import FRAMEWORKS, launchers
from elasticjob_api.gpus import gpus_of, slots_error
from elasticjob_api.meta import Json, Object, describe_for_threads
from elasticjob_api.pod_requests import pod_requests
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.reserved_variables import reserved_variable_error
from elasticjob_api.resources import amount_error, bounded_resource, is_extended, name_error

from elasticjob_operator.core.manifests import gang, launcher
from elasticjob_operator.core.manifests.agent_files import mounts_agent
from elasticjob_operator.core.manifests.pods import agent_variables

MAX_SPEC_BYTES = 512 * 1024
"""Bytes of a job's spec as JSON. Each pod of a role is a copy of a part of it."""
MIN_STATE_BYTES = 1 << 20
MAX_STATE_BYTES = 16 << 40


class _Resources(Object, frozen=True):
    requests: dict[str, int | float | str] | None = None
    limits: dict[str, int | float | str] | None = None


class _Port(Object, frozen=True):
    container_port: int | None = None
    protocol: str | None = None


class _Container(Object, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Json] | None = None
    volume_mounts: list[Json] | None = None
    resources: _Resources | None = None
    ports: list[_Port] | None = None
    restart_policy: str | None = None


class _Spec(Object, frozen=True):
    resources: _Resources | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[Json] | None = None
    termination_grace_period_seconds: int | None = None


class _Metadata(Object, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None


class _Template(Object, frozen=True):
    """The parts of a template that the operator reads; the API server validates the others."""

    metadata: _Metadata | None = None
    spec: _Spec | None = None


describe_for_threads(_Template)


def validation_error(job: ElasticJob) -> str | None:
    """Return why the job could never run, naming the field and the remedy; None if it is valid."""
    size = len(msgspec.json.encode(job.spec))
    if size > MAX_SPEC_BYTES:
        return (
            f"spec: has {size} bytes as JSON, above the {MAX_SPEC_BYTES} of a job; keep files and "
            "long values in a ConfigMap or in the image, and refer to them"
        )
    if error := gang.scheduling_policy_error(job):
        return error
    for role, spec in job.spec.replica_specs.items():
        field = f"spec.replicaSpecs.{role}.template"
        needs_command = spec.managed and not launcher.runs_launcher_commands(job, role)
        if error := _template_error(spec.template, field, needs_command=needs_command):
            return error
        if error := launcher.command_error(job, role):
            return error
        if spec.managed and (error := _processes_error(job, role, spec)):
            return error
        if spec.managed and (error := _state_memory_error(job, spec)):
            return error
        if error := _port_error(job, spec):
            return f"{field}.spec.{error}"
        has_volume = mounts_agent(job, managed=spec.managed)
        if has_volume and (error := _reserved_name_error(spec.template["spec"], field)):
            return error
    if error := _resource_limits_error(job):
        return error
    if error := _schema_error(
        {"spec": {"containers": [{"resources": job.spec.master.resources}]}}, "spec.master"
    ):
        return error
    if error := _schema_error(job.spec.master.template, "spec.master.template"):
        return error
    return startup_order_error(job)


def _resource_limits_error(job: ElasticJob) -> str | None:
    """Return the resource limit of the job that is below the requests of its fewest members."""
    limits = job.spec.autoscaling.resource_limits
    roles = job.spec.replica_specs.values() if limits else ()
    of_role = [(spec.min_replicas, pod_requests(spec.template["spec"])) for spec in roles]
    for key, limit in limits.items():
        name = bounded_resource(key)
        field = "spec.autoscaling.resourceLimits"
        if error := name_error(name):
            return f"{field}: {error}"
        if is_extended(key) and (error := amount_error(name, limit)):
            return f"{field}.{key}: {error}"
        total = sum(
            (fewest * requests.get(name, Decimal(0)) for fewest, requests in of_role),
            Decimal(0),
        )
        if total > parse_quantity(limit):
            return (
                f"{field}.{key}: {limit} is below the {total.normalize():f} that the members "
                "of minReplicas request together"
            )
    return None


def _template_error(template: Json, field: str, *, needs_command: bool) -> str | None:
    if error := _schema_error(template, field):
        return error
    containers = (template.get("spec") or {}).get("containers")
    if not containers:
        return f"{field}.spec.containers: must have at least one container"
    policy = containers[0].get("restartPolicy") or "Never"
    if policy != "Never":
        return (
            f"{field}.spec.containers[0].restartPolicy: is {policy!r}, but must be Never or left "
            "out, because the pod must end with the training; the agent and the operator restart "
            "it (processRestartLimit, restartLimit)"
        )
    if needs_command and not containers[0].get("command"):
        return (
            f"{field}.spec.containers[0].command: must be set, because the agent starts it and the "
            "image's own entry point is not known; for a role that needs no agent, set agent of "
            "the role to None"
        )
    return None


def _processes_error(job: ElasticJob, role: str, spec: ReplicaSpec) -> str | None:
    """Return the setting of a role's first container that conflicts with the agent."""
    field = f"spec.replicaSpecs.{role}"
    container = spec.template["spec"]["containers"][0]
    if error := slots_error(spec.slots_per_replica, gpus_of(container)):
        return f"{field}.slotsPerReplica: {error}"
    error = _reserved_variable_error(job, role, container) or _launcher_error(job, spec, container)
    return error and f"{field}.template.spec.containers[0].{error}"


def _reserved_variable_error(job: ElasticJob, role: str, container: Json) -> str | None:
    """Return the variable of the container that the operator or the agent sets."""
    of_member = {variable["name"] for variable in agent_variables(job, role, 0, 0, container)}
    variables = [variable.get("name") for variable in container.get("env") or ()]
    return reserved_variable_error(job, variables, of_member)


def _launcher_error(job: ElasticJob, spec: ReplicaSpec, container: Json) -> str | None:
    """Return why a launcher, or options of it in the command, are refused."""
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if job.spec.framework != "pytorch":
        return None
    found = launchers.launcher_of(command) if command else None
    if spec.on_world_change == "Notify" and found is not None:
        return (
            f"command: {found.name} starts its processes again in each world, but onWorldChange is "
            "Notify; start the script itself, such as [python, train.py], or remove onWorldChange"
        )
    error = launchers.fixed_options(command, launchers.FIELDS)
    return error and f"command: {error}"


def _state_memory_error(job: ElasticJob, spec: ReplicaSpec) -> str | None:
    """Return why a role's members cannot have the folder in memory for checkpoints."""
    size = job.spec.agent.state_memory
    if size is None:
        return None
    if not MIN_STATE_BYTES <= parse_quantity(size) <= MAX_STATE_BYTES:
        return f"spec.agent.stateMemory: {size} must be 1Mi to 16Ti; or leave it out"
    pod: Json = spec.template["spec"]
    limit = ((pod["containers"][0].get("resources") or {}).get("limits") or {}).get("memory")
    if limit is not None and parse_quantity(size) >= parse_quantity(limit):
        return (
            f"spec.agent.stateMemory: {size} must be below the {limit} of limits.memory of the "
            "first container, because it counts against it; raise the limit, or lower it"
        )
    if any(volume.get("name") == names.STATE for volume in pod.get("volumes") or ()):
        return f"spec.agent.stateMemory: the pod has a volume {names.STATE!r}; rename the volume"
    mounts = pod["containers"][0].get("volumeMounts") or ()
    if any(
        posixpath.normpath(str(mount.get("mountPath"))) == names.STATE_DIRECTORY for mount in mounts
    ):
        return (
            f"spec.agent.stateMemory: the first container mounts a volume at "
            f"{names.STATE_DIRECTORY}; use another path"
        )
    return None


def _reserved_name_error(spec: Json, field: str) -> str | None:
    """Return the name or path of the template that is reserved for the installed agent."""
    remedy = (
        "is the agent's own; use another, or put the agent into the image and set "
        "spec.agent.source to Image"
    )
    for kind in ("initContainers", "containers", "volumes"):
        for position, named in enumerate(spec.get(kind) or ()):
            if named.get("name") == names.AGENT:
                return f"{field}.spec.{kind}[{position}].name: {names.AGENT!r} {remedy}"
    for position, mount in enumerate(spec["containers"][0].get("volumeMounts") or ()):
        path = posixpath.normpath(str(mount.get("mountPath")))
        if path == names.AGENT_DIRECTORY or path.startswith(f"{names.AGENT_DIRECTORY}/"):
            return (
                f"{field}.spec.containers[0].volumeMounts[{position}].mountPath: {path!r} {remedy}"
            )
    return None


def _schema_error(template: Json, field: str) -> str | None:
    """Return the field of a template that does not have its type or format."""
    try:
        parsed = msgspec.convert(template, _Template)
        spec = parsed.spec or _Spec()
        for part in (spec, *(spec.containers or ()), *(spec.init_containers or ())):
            resources = part.resources or _Resources()
            for values in (resources.requests, resources.limits):
                for quantity in (values or {}).values():
                    parse_quantity(quantity)
    except ValueError as invalid:  # msgspec's are ValueErrors, too
        return f"{field}: {invalid}"
    return None


def _port_error(job: ElasticJob, spec: ReplicaSpec) -> str | None:
    """Return the declared port of a pod on which another container or the agent listens.

    The training container may declare the ports of its framework, because it opens them.
    """
    pod: Json = spec.template["spec"]
    agents = {names.AGENT_READY_PORT} if spec.managed and not pod.get("hostNetwork") else set()
    frameworks = set(FRAMEWORKS[job.spec.framework].ports) if spec.managed else set()
    owners: dict[tuple[str, int], int] = {}
    for position, container in enumerate(pod["containers"]):
        for number, declared in enumerate(container.get("ports") or ()):
            port = declared.get("containerPort")
            protocol = declared.get("protocol") or "TCP"
            field = f"containers[{position}].ports[{number}].containerPort"
            if protocol == "TCP" and port in agents:
                return (
                    f"{field}: {port} is the agent's, which listens there when its member is "
                    "ready; use another"
                )
            if protocol == "TCP" and position > 0 and port in frameworks:
                return (
                    f"{field}: {port} is where the training processes of {job.spec.framework} "
                    "meet; use another"
                )
            if (owner := owners.setdefault((protocol, port), position)) != position:
                return (
                    f"{field}: {port} is a port of containers[{owner}] too, in the same pod; "
                    "use another"
                )
    return None


def startup_order_error(job: ElasticJob) -> str | None:
    """Return why roles could never start in the order of `dependsOn`; None if they can."""
    roles = job.spec.replica_specs
    left = {role: list(spec.depends_on) for role, spec in roles.items()}
    for role, needed in left.items():
        if unknown := [each for each in needed if each not in roles]:
            return (
                f"spec.replicaSpecs.{role}.dependsOn: {unknown[0]!r} is not one of replicaSpecs; "
                "name one of them"
            )
    gang = job.spec.run_policy.scheduling_policy.gang
    if gang != "none" and (dependent := [role for role, needed in left.items() if needed]):
        return (
            f"spec.replicaSpecs.{dependent[0]}.dependsOn: with schedulingPolicy.gang {gang} no pod "
            "starts before all of them are there; remove one of the two"
        )
    while ready := [role for role, needed in left.items() if not set(needed) & left.keys()]:
        for role in ready:
            del left[role]
    if left:
        role = next(iter(left))
        return (
            f"spec.replicaSpecs.{role}.dependsOn: {', '.join(left)} wait for each other; remove "
            "one of the references"
        )
    return None
