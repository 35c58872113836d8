"""What a job's pods need around them: Services, Secret, account and rights of the master, and its state ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.observed import owner_reference
from elasticjob_operator.core.pods import labels

Json = dict[str, Any]


def around_the_pods(job: ElasticJob) -> list[Json]:
    """Return all manifests but the Secret's. Each is created once and belongs to the job."""
    name, master_labels = names.master_service(job.metadata.name), labels(job, names.ROLE_MASTER)
    selector = {key: master_labels[key] for key in (names.LABEL_JOB_UID, names.LABEL_ROLE)}
    members = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.LABEL_JOB_UID: job.metadata.uid},
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": job.metadata.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        _object(job, "v1", "ServiceAccount", name),
        _object(job, "v1", "ConfigMap", names.state_config_map(job.metadata.name)),
        _object(job, "v1", "Service", name, spec={"selector": selector, "ports": _ports()}),
        _object(job, "v1", "Service", job.metadata.name, spec=members),
        _object(job, "rbac.authorization.k8s.io/v1", "Role", name, rules=_rules(job)),
        _object(job, "rbac.authorization.k8s.io/v1", "RoleBinding", name, roleRef=role, subjects=[subject]),
    ]


def secret(job: ElasticJob, content: Mapping[str, str]) -> Json:
    """Return the manifest of the Secret with the token and the certificates of this job."""
    return _object(
        job, "v1", "Secret", names.master_service(job.metadata.name), type="Opaque", stringData=dict(content)
    )


def _object(job: ElasticJob, api_version: str, kind: str, name: str, **content: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels(job, names.ROLE_MASTER),
        "ownerReferences": [owner_reference(job)],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _ports() -> list[Json]:
    return [{"name": name, "port": port} for name, port in (("grpc", names.GRPC_PORT), ("http", names.HTTP_PORT))]


def _rules(job: ElasticJob) -> list[Json]:
    """Limited to this job's objects by name wherever the verb allows; list, watch and create of plans do not."""
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
