"""Brings what a job's pods need around them to what it should be: made where missing, corrected where it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Json, Kube

from elasticjob_operator.certificates import new_job_secrets
from elasticjob_operator.core.job_status import has_no_members_yet
from elasticjob_operator.core.manifests import gang, infrastructure
from elasticjob_operator.core.model.observed import owned_by

_RETRY_PAUSES_SECONDS = (0.1, 0.5)
_POD_GROUPS = (VOLCANO_POD_GROUPS, COSCHEDULING_POD_GROUPS)
_RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (SERVICES, SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, *_POD_GROUPS)
}
_FIRST = ("ServiceAccount", "PodGroup")
"""What the API server and the scheduler want to see before the first pod; so does the kubelet with the Secret."""


async def ensure_infrastructure(
    kube: Kube, job: ElasticJob, part: Literal["First", "Rest", "All"] = "All"
) -> list[str]:
    """Make or correct Services, Secret, account, rights, state ConfigMap and PodGroup of a job, or part of them.

    Returns:
        What people should be told.

    Raises:
        Refused: a name is taken by an object that is not the job's, which is left alone; or a kind does not exist here.
        KubeError: as the API server answers.
    """
    new = has_no_members_yet(job.status)
    try:
        manifests = infrastructure.infrastructure_manifests(job)
    except ValueError as error:  # the template was judged when the job was taken up and cannot change; this can
        raise Refused(422, "Invalid", f"spec.master.resources: {error}") from error
    # Creating first saves a new job a round trip each; for any other job all this is there, and reading is no write.
    work: list[Callable[[], Awaitable[str | None]]] = []
    if part != "Rest":
        work.append(partial(_ensure_secret, kube, job, new=new))
    for each in manifests:
        if part == "All" or (each["kind"] in _FIRST) == (part == "First"):
            work.append(partial(_create if new else _ensure, kube, job, each))
    # All of it must succeed at once, and of many requests one easily gets no answer.
    requests = (retry(each, TryLater, pauses=_RETRY_PAUSES_SECONDS) for each in work)
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, str)]


async def _ensure_secret(kube: Kube, job: ElasticJob, *, new: bool) -> str | None:
    """Make the Secret if there is none. What is in it is never looked at: running agents have it, too."""
    name = infrastructure.secret(job, {})["metadata"]["name"]
    if not new:
        try:
            _check_owner(job, SECRETS, await kube.get(SECRETS, job.metadata.namespace, name))
        except NotFound:
            pass
        else:
            return None
    content = new_job_secrets(job.metadata.name, job.metadata.namespace)
    await _create(kube, job, infrastructure.secret(job, {key: value.decode() for key, value in content.items()}))
    if new:
        return None
    return (
        f"Secret {name} was gone and is made anew: pods with the old one and pods with the new one refuse each other; "
        "delete the older pods, they are replaced"
    )


async def _ensure(kube: Kube, job: ElasticJob, manifest: Json) -> None:
    resource = _resource(manifest)
    try:
        found = await kube.get(resource, job.metadata.namespace, manifest["metadata"]["name"])
    except NotFound:
        await _create(kube, job, manifest)
        return
    await _correct(kube, job, resource, manifest, found)


async def _create(kube: Kube, job: ElasticJob, manifest: Json) -> None:
    resource = _resource(manifest)
    try:
        await kube.create(resource, job.metadata.namespace, manifest)
    except AlreadyExists:
        found = await kube.get(resource, job.metadata.namespace, manifest["metadata"]["name"])
        await _correct(kube, job, resource, manifest, found)
    except NotFound as error:
        raise _explained(job, resource, error) from error


async def _correct(kube: Kube, job: ElasticJob, resource: Resource, manifest: Json, found: Json) -> None:
    _check_owner(job, resource, found)
    if resource == SECRETS:
        return
    if patch := infrastructure.correction_patch(manifest, found):
        versioned = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        await kube.patch(resource, job.metadata.namespace, found["metadata"]["name"], {"metadata": versioned, **patch})


def _check_owner(job: ElasticJob, resource: Resource, found: Json) -> None:
    if not owned_by(found["metadata"], job.metadata.uid):
        name = found["metadata"]["name"]
        message = f"{resource.kind} {name} exists and is not this job's; delete it, or rename the job"
        raise Refused(409, "Foreign", message)


def _explained(job: ElasticJob, resource: Resource, error: NotFound) -> KubeError:
    """Say what to do when the kind itself is missing: of that, unlike of an object, the API server gives no reason."""
    if error.reason or resource not in _POD_GROUPS:
        return error
    asked = job.spec.run_policy.scheduling_policy.gang
    message = (
        f"spec.runPolicy.schedulingPolicy.gang: {asked} needs the CustomResourceDefinition "
        f"{resource.plural}.{resource.group} ({resource.version}), which this cluster does not have; install "
        f"{gang.SCHEDULERS[asked].product}, or set gang to none"
    )
    return Refused(error.status, "NoSuchKind", message)


def _resource(manifest: dict[str, Any]) -> Resource:
    return _RESOURCES[manifest["apiVersion"], manifest["kind"]]
