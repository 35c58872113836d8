"""Determines which object belongs to which job.

Only namespace, name, UID and kind together identify a job.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.meta import ObjectMeta, OwnerReference

ELASTIC_JOB = "ElasticJob"


def names_owner(reference: OwnerReference, kind: str, name: str, uid: str) -> bool:
    """Return whether an owner reference names this custom resource."""
    return is_of_kind(reference, kind) and (reference.name, reference.uid) == (name, uid)


def is_of_kind(reference: OwnerReference, kind: str) -> bool:
    """Return whether the owner has this kind in our API group; other projects have ElasticJobs."""
    return reference.kind == kind and reference.api_version.partition("/")[0] == names.GROUP


def may_be_of_job(metadata: ObjectMeta, job_name: str, job_uid: str) -> bool:
    """Return whether a plan or request that names the job may belong to it.

    Owners or a label may show that it belongs to an earlier job of this name. A user's new object
    has neither.
    """
    if metadata.labels.get(names.LABEL_JOB_UID, job_uid) != job_uid:
        return False
    owners = [owner for owner in metadata.owner_references if is_of_kind(owner, ELASTIC_JOB)]
    is_owner = [names_owner(owner, ELASTIC_JOB, job_name, job_uid) for owner in owners]
    return not owners or any(is_owner)
