"""Creates what a job's pods need around them; what is there already is only checked to be the job's own."""

from __future__ import annotations

import asyncio
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import AlreadyExists, Refused
from elasticjob_kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from elasticjob_kube.session import Kube

from elasticjob_operator.certificates import job_secrets
from elasticjob_operator.core import infrastructure
from elasticjob_operator.core.observed import owned_by

_RESOURCES = {r.kind: r for r in (SERVICES, SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)}


async def ensure_infrastructure(kube: Kube, job: ElasticJob) -> None:
    """Create Services, Secret, account, rights and state ConfigMap of a job where they are missing.

    Raises:
        Refused: a name is taken by an object that is not the job's; that object is left alone.
        KubeError: as the API server answers.
    """
    content = job_secrets(job.metadata.name, job.metadata.namespace)
    secret = infrastructure.secret(job, {key: value.decode() for key, value in content.items()})
    manifests = (secret, *infrastructure.around_the_pods(job))
    answers = await asyncio.gather(*(_ensure(kube, job, each) for each in manifests), return_exceptions=True)
    for answer in answers:
        if answer is not None:
            raise answer


async def _ensure(kube: Kube, job: ElasticJob, manifest: dict[str, Any]) -> None:
    resource, name = _RESOURCES[manifest["kind"]], manifest["metadata"]["name"]
    try:
        await kube.create(resource, job.metadata.namespace, manifest)
    except AlreadyExists:
        found = await kube.get(resource, job.metadata.namespace, name)
        if not owned_by(found["metadata"], job.metadata.uid):
            raise Refused(
                409, "Foreign", f"{resource.kind} {name} exists and is not this job's; delete it, or rename the job"
            ) from None
