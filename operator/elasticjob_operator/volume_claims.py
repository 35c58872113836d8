"""Creates the volume claims of a member, which its pod needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import AlreadyExists, NotFound, Refused
from elasticjob_kube.resources import VOLUME_CLAIMS
from elasticjob_kube.session import Kube

from elasticjob_operator.core.manifests.claims import is_of_another_job
from elasticjob_operator.errors import name_taken


async def ensure_claims(kube: Kube, job: ElasticJob, claims: Iterable[Mapping[str, Any]]) -> None:
    """Create the claims that do not exist.

    Each is read first: an exhausted quota refuses to create even a claim that exists.

    Raises:
        Refused: a claim cannot be used, or the API server refuses it.
        KubeError: any other error of the API server.
    """
    for claim in claims:
        namespace = job.metadata.namespace
        name = claim["metadata"]["name"]
        try:
            found = await kube.get(VOLUME_CLAIMS, namespace, name)
        except NotFound:
            try:
                found = await kube.create(VOLUME_CLAIMS, namespace, claim)
            except AlreadyExists:
                found = await kube.get(VOLUME_CLAIMS, namespace, name)
        if is_of_another_job(found, job):
            raise name_taken(job, VOLUME_CLAIMS, found, "the member waits until it is deleted")
        if found["metadata"].get("deletionTimestamp"):
            message = (
                f"{VOLUME_CLAIMS.kind} {name} is being deleted; the member gets a new one then"
            )
            raise Refused(409, "BeingDeleted", message)
