"""Which object belongs to which job.

By namespace, name, UID and kind together, for each alone can be another's.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.meta import ObjectMeta, OwnerReference

ELASTIC_JOB = "ElasticJob"


def names_owner(reference: OwnerReference, kind: str, name: str, uid: str) -> bool:
    """Whether an owner reference names this custom resource of ours."""
    return is_of_kind(reference, kind) and (reference.name, reference.uid) == (name, uid)


def is_of_kind(reference: OwnerReference, kind: str) -> bool:
    """Whether the owner is a custom resource of ours of this kind.

    Other projects have an ElasticJob as well.
    """
    return reference.kind == kind and reference.api_version.partition("/")[0] == names.GROUP


def may_be_of_job(metadata: ObjectMeta, job_name: str, job_uid: str) -> bool:
    """Whether a plan or request that names the job is not that of an earlier job of this name, by owners and labels.

    A user's new object has neither. It is in the job's namespace.
    """
    owners = [owner for owner in metadata.owner_references if is_of_kind(owner, ELASTIC_JOB)]
    label = metadata.labels.get(names.LABEL_JOB_UID, job_uid)
    return label == job_uid and (
        not owners or any(names_owner(owner, ELASTIC_JOB, job_name, job_uid) for owner in owners)
    )
