"""Makes the manifests of members' volume claims: one for each template and index.

A claim belongs to the index, so it stays when the member's pod is replaced. The job owns the claims
that are created for it, unless they are to be retained. As with a StatefulSet, a claim that exists
already is used but not owned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json

from elasticjob_operator.core.model.observed import owner_reference


def member_claims(job: ElasticJob, role: str, index: int) -> tuple[Json, ...]:
    """Return the manifests of a member's claims; the job owns those that are deleted with it."""
    spec = job.spec.replica_specs[role]
    owners = (
        [owner_reference(job)]
        if spec.persistent_volume_claim_retention_policy.when_deleted == "Delete"
        else []
    )
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": names.member_claim(template.metadata.name, job.metadata.name, role, index),
                "namespace": job.metadata.namespace,
                "labels": {
                    **template.metadata.labels,
                    names.LABEL_JOB_NAME: job.metadata.name,
                    names.LABEL_JOB_UID: job.metadata.uid,
                    names.LABEL_ROLE: role,
                    names.LABEL_INDEX: str(index),
                },
                "annotations": dict(template.metadata.annotations),
                "ownerReferences": owners,
            },
            "spec": template.spec,
        }
        for template in spec.volume_claim_templates
    )


def with_claims(job: ElasticJob, role: str, index: int, volumes: list[Json]) -> list[Json]:
    """Return a pod's volumes with the member's claims, which replace volumes of the same name."""
    templates = [
        template.metadata.name for template in job.spec.replica_specs[role].volume_claim_templates
    ]
    return [
        *(volume for volume in volumes if volume.get("name") not in templates),
        *(
            {
                "name": name,
                "persistentVolumeClaim": {
                    "claimName": names.member_claim(name, job.metadata.name, role, index)
                },
            }
            for name in templates
        ),
    ]


def is_of_another_job(claim: Mapping[str, Any], job: ElasticJob) -> bool:
    """Return whether another ElasticJob owns a claim."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(
        each.get("kind") == type(job).__name__ and each.get("uid") != job.metadata.uid
        for each in owners
    )
