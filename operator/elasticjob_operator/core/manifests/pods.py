"""Makes the manifest of a member's pod from the user's template, and what all pods have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api import drain_times, names
from elasticjob_api.agent_environment import job_variables, member_variables
from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.gpus import divided_devices, gpus_of, slots
from elasticjob_api.job_policies import MasterSpec
from elasticjob_api.meta import Json
from elasticjob_api.pod_identity import MemberIdentity
from elasticjob_api.quantity import parse_quantity

from elasticjob_operator.core.manifests import claims, gang, launcher
from elasticjob_operator.core.manifests.agent_files import add_agent, agent_program, mounts_agent
from elasticjob_operator.core.manifests.process_variables import hidden_from_kubelet
from elasticjob_operator.core.model.identity import identity_of, pod_labels
from elasticjob_operator.core.model.limit_ranges import Bounds
from elasticjob_operator.core.model.observed import Defaults, owner_reference

_EVICTABLE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_OWN_VOLUMES = (names.AGENT, names.STATE, names.HOST_FILES)
_READY_WHEN_REGISTERED = {
    "tcpSocket": {"port": names.AGENT_READY_PORT},
    "periodSeconds": 2,
    "failureThreshold": 3,
}
"""A member's readiness probe: its agent listens on this port as soon as it is registered with the
master.
"""


def member_pod(
    job: ElasticJob,
    role: str,
    index: int,
    incarnation: int,
    *,
    resources: Mapping[str, Any],
    restarts: int,
    uncounted_restarts: int = 0,
    defaults: Defaults,
    default_limits: Mapping[str, int | str] | None = None,
) -> Json:
    """Return the manifest of a member's pod.

    Args:
        job: the job.
        role: the member's role.
        index: its index.
        incarnation: 0 for an index never used before, else the number that makes the name new.
        resources: quantities by resource that replace the template's for the first container.
        restarts: counted restarts of the index.
        uncounted_restarts: uncounted restarts of the index.
        defaults: what the job may leave out.
        default_limits: the limits that the namespace gives to containers that name none.
    """
    spec = job.spec.replica_specs[role]
    pod_spec: Json = dict(spec.template.get("spec") or {})
    first, *others = pod_spec["containers"]
    if resources:
        first = {
            **first,
            "resources": with_resources(first.get("resources") or {}, resources, default_limits),
        }
    if spec.managed:
        first = _member_container(job, role, index, incarnation, spec, first)
    pod_spec["containers"] = [first, *others]
    pod_spec |= {
        "hostname": names.member_hostname(role, index),
        "subdomain": job.metadata.name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(
            pod_spec.get("terminationGracePeriodSeconds") or 0,
            drain_times.pod_grace_seconds(spec.drain_seconds),
        ),
    }
    if not (pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount")):
        # Members do not need the API server; a template that does sets an account or this field.
        pod_spec.setdefault("automountServiceAccountToken", False)
    if mounts_agent(job, managed=spec.managed):
        add_agent(pod_spec, job, defaults.agent_image)
    if spec.managed and job.spec.agent.state_memory:
        _add_state_volume(pod_spec, job.spec.agent.state_memory)
    if launcher.has_host_files(job, role):
        launcher.add_host_files(pod_spec)
    if spec.volume_claim_templates:
        pod_spec["volumes"] = claims.with_claims(job, role, index, pod_spec.get("volumes") or [])
    return manifest(
        job,
        MemberIdentity(role, index, incarnation),
        names.member_pod(job.metadata.name, role, index, incarnation),
        spec.template,
        annotations={
            names.ANNOTATION_RESTARTS: str(restarts),
            names.ANNOTATION_UNCOUNTED: str(uncounted_restarts),
            names.ANNOTATION_ATTEMPT: str(restarts + uncounted_restarts),
            names.ANNOTATION_RETRY: str(job.status.retries),
            names.ANNOTATION_CONTAINER: str(first.get("name", "")),
            **_evictable_volumes(spec.template, pod_spec),
        },
        spec=pod_spec,
    )


def _evictable_volumes(template: Mapping[str, Any], pod_spec: Json) -> dict[str, str]:
    """Return the annotation by which cluster-autoscaler may evict a pod with our `emptyDir`s.

    Without it no node with a member is ever removed.
    """
    volumes = pod_spec.get("volumes") or ()
    folders = (volume.get("name") for volume in volumes if "emptyDir" in volume)
    ours = [name for name in folders if name in _OWN_VOLUMES]
    if not ours:
        return {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    theirs = [each for each in annotations.get(_EVICTABLE_VOLUMES, "").split(",") if each]
    return {_EVICTABLE_VOLUMES: ",".join([*theirs, *ours])}


def manifest(
    job: ElasticJob,
    member: MemberIdentity,
    name: str,
    template: Mapping[str, Any],
    *,
    annotations: Mapping[str, str],
    spec: Json,
) -> Json:
    """Return the manifest of a pod of the job, with the template's metadata.

    As from Kubernetes' own workloads, these are labels, annotations and finalizers.
    """
    metadata = template.get("metadata") or {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), **pod_labels(identity_of(job), member)},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [owner_reference(job)],
            **({"finalizers": metadata["finalizers"]} if metadata.get("finalizers") else {}),
        },
        "spec": spec,
    }
    return gang.with_scheduling(job, pod)


def with_resources(
    resources: Mapping[str, Any],
    changes: Mapping[str, Any],
    default_limits: Mapping[str, int | str] | None = None,
) -> Json:
    """Return a container's resources with some of them changed.

    An existing limit is changed, and none is added: a running pod cannot change its
    quality-of-service class. There are two exceptions: a resource that cannot be overcommitted,
    such as a GPU, and one for which the namespace would add a limit below the new request.
    """
    limits: Json = dict(resources.get("limits") or {})
    too_small = {
        name
        for name, least in (default_limits or {}).items()
        if name in changes and parse_quantity(changes[name]) > parse_quantity(least)
    }
    limits |= {
        name: value
        for name, value in changes.items()
        if name in limits or name in too_small or "/" in name
    }
    changed: Json = {**resources, "requests": {**(resources.get("requests") or {}), **changes}}
    return {**changed, "limits": limits} if limits else changed


def _member_container(
    job: ElasticJob,
    role: str,
    index: int,
    incarnation: int,
    spec: ReplicaSpec,
    container: Json,
) -> Json:
    container = {**container, **hidden_from_kubelet(job, container)}
    # On the node's network the agents of two members would use the same port.
    on_node_network = bool(spec.template["spec"].get("hostNetwork"))
    agent_env = agent_variables(job, role, index, incarnation, container)
    reserved = {variable["name"] for variable in agent_env}
    user_env = [
        variable for variable in container.get("env") or () if variable.get("name") not in reserved
    ]
    return {
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({} if on_node_network else {"readinessProbe": _READY_WHEN_REGISTERED}),
        **container,
        **_agent_command(agent_program(job.spec.agent.source), container),
        "env": [*agent_env, *user_env],
    }


def agent_variables(
    job: ElasticJob, role: str, index: int, incarnation: int, container: Json
) -> list[Json]:
    """Return the environment variables of a member's agent."""
    spec = job.spec.replica_specs[role]
    master = names.master_service(job.metadata.name)
    framework = job.spec.framework
    gpus = gpus_of(container)
    count = slots(framework, spec.slots_per_replica, gpus)
    values = member_variables(
        job.metadata.name,
        role,
        index,
        incarnation,
        framework=framework,
        slots=count,
        devices=divided_devices(framework, count, gpus),
        process_restart_limit=spec.process_restart_limit,
        drain_seconds=spec.drain_seconds,
        sigterm_delay_seconds=spec.sigterm_delay_seconds,
        standby=job.spec.agent.standby,
        state_bytes=int(parse_quantity(job.spec.agent.state_memory or 0)),
    )
    if launcher.uses_remote_shell(job, role):
        values[names.ENV_REMOTE_SHELL] = "1"
    if launcher.has_host_files(job, role):
        values[names.ENV_HOST_FILES] = names.HOST_FILES_DIRECTORY
    return [
        *identity_variables(job),
        _from_field(names.ENV_POD_UID, "metadata.uid"),
        _from_field(names.ENV_NODE_NAME, "spec.nodeName"),
        *_variables(values),
        from_secret(names.ENV_TOKEN, master, names.SECRET_TOKEN),
        from_secret(names.ENV_CA, master, names.SECRET_CA),
        *([_peer_identity(master)] if job.spec.agent.state_memory else ()),
    ]


def _peer_identity(secret: str) -> Json:
    """Return the variable with the agents' key, which Secrets of earlier operators do not have."""
    variable = from_secret(names.ENV_PEER_IDENTITY, secret, names.SECRET_PEER)
    variable["valueFrom"]["secretKeyRef"]["optional"] = True
    return variable


def _agent_command(agent: str, container: Json) -> Json:
    """Return how the agent is started: with the command, or to wait for what a launcher starts."""
    if not container.get("command"):
        return {"command": [agent, "remote-shell"], "args": []}
    return {
        "command": [agent, "run", "--"],
        "args": [*container["command"], *(container.get("args") or ())],
    }


def _add_state_volume(pod_spec: Json, size: int | str) -> None:
    """Mount a volume in memory into the first container."""
    mount = {"name": names.STATE, "mountPath": names.STATE_DIRECTORY}
    first, *others = pod_spec["containers"]
    first = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    pod_spec["containers"] = [first, *others]
    volume = {"name": names.STATE, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]


def within_bounds(job: ElasticJob, pod: Mapping[str, Any], bounds: Bounds) -> Mapping[str, Any]:
    """Return a pod's manifest in which the operator's own containers keep the namespace's bounds.

    These are the agent's init container, and a master with the default resources.
    """
    ours = {("initContainers", names.AGENT)}
    is_master = pod["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_MASTER
    if is_master and job.spec.master.resources == MasterSpec().resources:
        ours = {("containers", names.ROLE_MASTER)}
    fitted = {
        kind: [
            {**each, "resources": bounds.fit(each["resources"])}
            if (kind, each.get("name")) in ours
            else each
            for each in pod["spec"][kind]
        ]
        for kind, _ in ours
        if kind in pod["spec"]
    }
    return {**pod, "spec": {**pod["spec"], **fitted}}


def identity_variables(job: ElasticJob) -> list[Json]:
    """Return the variables of each pod of the job that say what the pod is."""
    of_job = job_variables(job.metadata.name, job.metadata.uid, job.metadata.namespace)
    return [
        *_variables(of_job),
        _from_field(names.ENV_POD_NAME, "metadata.name"),
        _from_field(names.ENV_POD_IP, "status.podIP"),
    ]


def _variables(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _from_field(variable: str, path: str) -> Json:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def from_secret(variable: str, secret: str, key: str) -> Json:
    """Return a variable with a value of a Secret."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
