"""Identifies the job and the member of a pod by its controller and its name.

Users can edit labels and owner references, and a watch by labels reports a pod that has lost its
label as deleted. Nobody can edit the name, which contains role, index and incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import OwnerReference
from elasticjob_api.ownership import ELASTIC_JOB, is_of_kind
from elasticjob_api.pod_identity import MemberIdentity, member_of_name
from msgspec.structs import replace

from elasticjob_operator.core.model.pod import Pod


@dataclass(frozen=True)
class JobIdentity:
    """One job; an owner reference in another namespace may have the same name and UID."""

    namespace: str
    name: str
    uid: str


def identity_of(job: ElasticJob) -> JobIdentity:
    """Return the identity of a job."""
    return JobIdentity(job.metadata.namespace, job.metadata.name, job.metadata.uid)


def controlling_job(pod: Pod) -> JobIdentity | None:
    """Return the job that controls a pod, by its owner references; None for no job."""
    for owner in pod.metadata.owner_references:
        if owner.controller and is_of_kind(owner, ELASTIC_JOB):
            return JobIdentity(pod.metadata.namespace, owner.name, owner.uid)
    return None


def tampering(pod: Pod, job: JobIdentity, member: MemberIdentity) -> str:
    """Return which label or owner of a pod differs from its name; empty if none does."""
    for label, value in pod_labels(job, member).items():
        found = pod.metadata.labels.get(label)
        if found is None:
            return f"its label {label} is gone"
        if found != value:
            return f"its label {label} is {found!r} and not {value!r}"
    if controlling_job(pod) != job:
        return f"it is not controlled by ElasticJob {job.name} any more"
    return ""


def restored(pod: Pod, job: JobIdentity, member: MemberIdentity) -> Pod:
    """Return the pod with the labels and the owner that it was created with."""
    owner = OwnerReference(
        api_version=names.API_VERSION, kind=ELASTIC_JOB, name=job.name, uid=job.uid, controller=True
    )
    labels = {**pod.metadata.labels, **pod_labels(job, member)}
    return replace(pod, metadata=replace(pod.metadata, labels=labels, owner_references=[owner]))


def was_made_for(pod: Mapping[str, Any], job: JobIdentity) -> bool:
    """Return whether a pod, as the API server returns it, was created for the job.

    The environment of its containers decides, which nobody can edit. A pod without an agent has no
    such environment. For it the owner decides, and without an owner the host name.
    """
    metadata = pod.get("metadata") or {}
    spec = pod.get("spec") or {}
    variables = (
        each for container in spec.get("containers") or () for each in container.get("env") or ()
    )
    uids = {
        variable.get("value") for variable in variables if variable.get("name") == names.ENV_JOB_UID
    }
    if not uids:
        uids = {
            each.get("uid")
            for each in metadata.get("ownerReferences") or ()
            if each.get("controller")
        }
    if uids:
        return job.uid in uids
    member = member_of_name(job.name, metadata.get("name", ""))
    host_name = (spec.get("hostname"), spec.get("subdomain"))
    return member is not None and host_name == (
        names.member_hostname(member.role, member.index),
        job.name,
    )


def pod_labels(job: JobIdentity, member: MemberIdentity) -> dict[str, str]:
    """Return the labels that a pod is created with, besides those of its template."""
    labels = {
        names.LABEL_JOB_NAME: job.name,
        names.LABEL_JOB_UID: job.uid,
        names.LABEL_ROLE: member.role,
        names.LABEL_INCARNATION: str(member.incarnation),
    }
    if member.role != names.ROLE_MASTER:
        labels[names.LABEL_INDEX] = str(member.index)
    return labels
