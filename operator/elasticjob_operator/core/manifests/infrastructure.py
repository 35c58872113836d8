"""Manifests of what a job needs besides pods: Services, Secret, the master's account and Role, ConfigMap, PodGroup."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.query_token import query_token

from elasticjob_operator.core.manifests import gang
from elasticjob_operator.core.manifests.pods import labels
from elasticjob_operator.core.model.observed import owner_reference

Json = dict[str, Any]


def infrastructure_manifests(job: ElasticJob) -> list[Json]:
    """Return all manifests but the Secret's.

    Lists in them have every field that the API server defaults, so that they can be compared with existing objects.
    """
    name, master_labels = names.master_service(job.metadata.name), labels(job, names.ROLE_MASTER)
    selector = {key: master_labels[key] for key in (names.LABEL_JOB_UID, names.LABEL_ROLE)}
    members = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.LABEL_JOB_UID: job.metadata.uid},
    }
    # A master that is not ready, because it can store nothing at the moment, still serves its agents.
    master = {"publishNotReadyAddresses": True, "selector": selector, "ports": _ports()}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": job.metadata.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    manifests = [
        _object(job, "v1", "ServiceAccount", name),
        _object(job, "v1", "ConfigMap", names.state_config_map(job.metadata.name)),
        _object(job, "v1", "Service", name, spec=master),
        _object(job, "v1", "Service", job.metadata.name, spec=members),
        _object(job, "rbac.authorization.k8s.io/v1", "Role", name, rules=_rules(job)),
        _object(job, "rbac.authorization.k8s.io/v1", "RoleBinding", name, roleRef=role, subjects=[subject]),
    ]
    if group := gang.pod_group_spec(job):
        scheduler = gang.SCHEDULERS[job.spec.run_policy.scheduling_policy.gang]
        manifests.append(_object(job, scheduler.api_version, "PodGroup", job.metadata.name, spec=group))
    return manifests


def manifest_inputs(job: ElasticJob) -> Hashable:
    """Return the mutable part of a job that the manifests depend on: while it is equal, so are the manifests."""
    policy = job.spec.run_policy.scheduling_policy
    if policy.gang == "none":
        return policy.gang
    min_replicas = tuple(role.min_replicas for role in job.spec.replica_specs.values())
    return (policy.gang, policy.queue, policy.priority_class_name, min_replicas, str(job.spec.master.resources))


def secret(job: ElasticJob, content: Mapping[str, bytes]) -> Json:
    """Return the manifest of the Secret with the job's token and certificates."""
    return _secret(job, names.master_service(job.metadata.name), content)


def query_secret(job: ElasticJob, data: Mapping[str, str]) -> Json:
    """Return the manifest of the Secret that reads; `data` is that of the job's Secret, as it is stored."""
    token, authority = (base64.b64decode(data.get(key, "")) for key in (names.SECRET_TOKEN, names.SECRET_CA))
    readable = {names.SECRET_TOKEN: query_token(token.decode()).encode(), names.SECRET_CA: authority}
    return _secret(job, names.query_secret(job.metadata.name), readable)


def _secret(job: ElasticJob, name: str, content: Mapping[str, bytes]) -> Json:
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return _object(job, "v1", "Secret", name, type="Opaque", data=data)


def correction_patch(manifest: Mapping[str, Any], existing: Mapping[str, Any]) -> Json:
    """Return the merge patch that makes an existing object equal to its manifest; empty where it is equal already.

    Metadata, and fields that the manifest does not have, are left alone.
    """
    patch: Json = {}
    for key, value in manifest.items():
        old = existing.get(key)
        if key in ("apiVersion", "kind", "metadata") or old == value:
            continue
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := correction_patch(value, old):
                patch[key] = inner
        else:
            patch[key] = value
    return patch


def _object(job: ElasticJob, api_version: str, kind: str, name: str, **content: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels(job, names.ROLE_MASTER),
        "ownerReferences": [owner_reference(job)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _ports() -> list[Json]:
    ports = (("grpc", names.GRPC_PORT), ("http", names.HTTP_PORT))
    return [{"name": name, "port": port, "protocol": "TCP", "targetPort": port} for name, port in ports]


def _rules(job: ElasticJob) -> list[Json]:
    """Return the master's rights, limited to this job's objects by name; list, watch and create of plans cannot be."""
    name = job.metadata.name
    return [
        {
            "apiGroups": [names.GROUP],
            "resources": ["elasticjobs"],
            "resourceNames": [name],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [names.GROUP], "resources": ["elasticjobs/status"], "resourceNames": [name], "verbs": ["patch"]},
        {"apiGroups": [names.GROUP], "resources": ["scaleplans"], "verbs": ["get", "list", "watch", "create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.state_config_map(name)],
            "verbs": ["get", "patch", "update"],
        },
    ]
