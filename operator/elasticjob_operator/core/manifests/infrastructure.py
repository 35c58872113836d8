"""Makes the manifests of a job's objects besides pods, such as Services and the Secret."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import gang_size
from elasticjob_api.meta import Json, OwnerReference
from elasticjob_api.ownership import ELASTIC_JOB, is_of_kind
from elasticjob_api.query_token import query_token
from elasticjob_api.roles import uses_host_network

from elasticjob_operator.core.manifests import gang
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.observed import controlled_by, owner_reference


def infrastructure_manifests(job: ElasticJob, *, network_policies: bool = False) -> list[Json]:
    """Return all manifests but the Secret's, and the NetworkPolicy's only with `network_policies`.

    Lists in them have every field that the API server defaults, so that they can be compared with
    existing objects.
    """
    name = names.master_service(job.metadata.name)
    master_labels = _labels(job, names.ROLE_MASTER)
    selector = {key: master_labels[key] for key in (names.LABEL_JOB_UID, names.LABEL_ROLE)}
    members = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.LABEL_JOB_UID: job.metadata.uid},
    }
    # A master that is not ready, because it can store nothing at the moment, still serves its
    # agents.
    master = {"publishNotReadyAddresses": True, "selector": selector, "ports": _ports()}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": job.metadata.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    manifests = [
        _object(job, "v1", "ServiceAccount", name),
        _object(job, "v1", "ConfigMap", names.state_config_map(job.metadata.name)),
        _object(job, "v1", "Service", name, spec=master),
        _object(job, "v1", "Service", job.metadata.name, spec=members),
        _object(job, "rbac.authorization.k8s.io/v1", "Role", name, rules=_rules(job)),
        _object(
            job,
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            name,
            roleRef=role,
            subjects=[subject],
        ),
    ]
    if network_policies and not uses_host_network(job):
        manifests.append(_network_policy(job))
    if group := gang.pod_group_spec(job):
        scheduler = gang.SCHEDULERS[job.spec.run_policy.scheduling_policy.gang]
        manifests.append(
            _object(job, scheduler.api_version, "PodGroup", job.metadata.name, spec=group)
        )
    return manifests


def profile_manifest(job: ElasticJob) -> Json | None:
    """Return the empty ConfigMap of a job's profile, which outlives the job.

    None without a profile.
    """
    if job.profile is None:
        return None
    metadata = {
        "name": names.profile_config_map(job.profile),
        "namespace": job.metadata.namespace,
        "labels": {names.LABEL_PROFILE: job.profile},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def _network_policy(job: ElasticJob) -> Json:
    """Return the manifest of the policy by which only pods of the job can connect to its pods."""
    own = {"podSelector": {"matchLabels": {names.LABEL_JOB_UID: job.metadata.uid}}}
    spec = {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    return _object(job, "networking.k8s.io/v1", "NetworkPolicy", job.metadata.name, spec=spec)


def manifest_inputs(job: ElasticJob) -> Hashable:
    """Return the mutable parts of a job on which the manifests depend."""
    policy = job.spec.run_policy.scheduling_policy
    if policy.gang == "none":
        return (policy.gang, job.profile)
    min_replicas = tuple(role.min_replicas for role in job.spec.replica_specs.values())
    resources = str(job.spec.master.resources)
    return (
        policy.gang,
        job.profile,
        policy.queue,
        policy.priority_class_name,
        min_replicas,
        resources,
        gang_size(job) if gang.SCHEDULERS[policy.gang].native else None,
    )


def secret(job: ElasticJob, content: Mapping[str, bytes]) -> Json:
    """Return the manifest of the Secret with the job's token and certificates.

    It is immutable: running pods keep the contents with which they started, and would reject later
    pods with other contents.
    """
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    name = names.master_service(job.metadata.name)
    return _object(job, "v1", "Secret", name, type="Opaque", data=data, immutable=True)


def query_config_map(job: ElasticJob, data: Mapping[str, str]) -> Json:
    """Return the manifest of the ConfigMap for viewers, to which the master adds its last answers.

    It is not a Secret, so that users with the role `view` may read it. Its token gives access to
    the queries only.

    Args:
        job: the job.
        data: the contents of the job's Secret, as stored.
    """
    token, authority = (
        base64.b64decode(data.get(key, "")).decode()
        for key in (names.SECRET_TOKEN, names.SECRET_CA)
    )
    readable = {names.SECRET_TOKEN: query_token(token), names.SECRET_CA: authority}
    return _object(job, "v1", "ConfigMap", names.query_config_map(job.metadata.name), data=readable)


def belongs_to(existing: Mapping[str, Any], job: ElasticJob) -> bool:
    """Return whether an object is the job's by its controller, or by its label without one."""
    metadata = existing["metadata"]
    label = (metadata.get("labels") or {}).get(names.LABEL_JOB_UID)
    has_controller = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    return controlled_by(metadata, job) or (label == job.metadata.uid and not has_controller)


def is_of_earlier_job(existing: Mapping[str, Any], job: ElasticJob) -> bool:
    """Return whether an object belongs to an earlier job of this name, which was deleted."""
    owners = msgspec.convert(
        existing["metadata"].get("ownerReferences") or [], list[OwnerReference]
    )
    return any(
        is_of_kind(owner, ELASTIC_JOB)
        and owner.name == job.metadata.name
        and owner.uid != job.metadata.uid
        for owner in owners
    )


def metadata_correction(manifest: Mapping[str, Any], existing: Mapping[str, Any]) -> Json:
    """Return the merge patch that restores the operator's labels and the owner."""
    wanted = manifest["metadata"]
    found = existing["metadata"]
    patch: Json = {}
    labels = {
        key: value
        for key, value in wanted["labels"].items()
        if (found.get("labels") or {}).get(key) != value
    }
    if labels:
        patch["labels"] = labels
    (owner,) = wanted["ownerReferences"]
    present = found.get("ownerReferences") or ()
    if not any(owner.items() <= each.items() for each in present):
        patch["ownerReferences"] = [
            *(each for each in present if each.get("uid") != owner["uid"]),
            owner,
        ]
    return patch


def correction_patch(manifest: Mapping[str, Any], existing: Mapping[str, Any]) -> Json:
    """Return the merge patch that makes an existing object equal to its manifest; empty if it is.

    Metadata, and fields that the manifest does not have, stay as they are.
    """
    identity = ("apiVersion", "kind", "metadata")
    wanted = {key: value for key, value in manifest.items() if key not in identity}
    return patches.difference(existing, wanted, keep_others=True)


def _labels(job: ElasticJob, role: str) -> dict[str, str]:
    return {
        names.LABEL_JOB_NAME: job.metadata.name,
        names.LABEL_JOB_UID: job.metadata.uid,
        names.LABEL_ROLE: role,
    }


def _object(job: ElasticJob, api_version: str, kind: str, name: str, **content: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": _labels(job, names.ROLE_MASTER),
        "ownerReferences": [owner_reference(job)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _ports() -> list[Json]:
    ports = (("grpc", names.GRPC_PORT), ("http", names.HTTP_PORT))
    return [
        {"name": name, "port": port, "protocol": "TCP", "targetPort": port} for name, port in ports
    ]


def _rules(job: ElasticJob) -> list[Json]:
    """Return the master's rights, limited by name to this job's objects, except for plans."""
    name = job.metadata.name
    rules = [
        {
            "apiGroups": [names.GROUP],
            "resources": ["elasticjobs"],
            "resourceNames": [name],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": [names.GROUP],
            "resources": ["elasticjobs/status"],
            "resourceNames": [name],
            "verbs": ["patch"],
        },
        {
            "apiGroups": [names.GROUP],
            "resources": ["scaleplans"],
            "verbs": ["get", "list", "watch", "create"],
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.state_config_map(name)],
            "verbs": ["get", "patch", "update"],
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.query_config_map(name)],
            "verbs": ["patch"],
        },
    ]
    if job.profile is not None:
        profile = names.profile_config_map(job.profile)
        only = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [profile]}
        rules.append({**only, "verbs": ["get", "patch"]})
    return rules
