"""Creates what a job needs besides pods (Services, Secret, account, Role, ConfigMap, PodGroup), and corrects drift."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from elasticjob_api import names
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
_FIRST_KINDS = ("ServiceAccount", "PodGroup")
"""With the Secret, what must exist before the first pod: for the API server, the scheduler and the kubelet."""


async def ensure_infrastructure(
    kube: Kube, job: ElasticJob, part: Literal["First", "Rest", "All"] = "All"
) -> list[str]:
    """Create or correct the infrastructure of a job, or part of it: what the first pods need, the rest, or all.

    Returns:
        Notes for warning events; none where all is as expected.

    Raises:
        Refused: a name is taken by an object that is not the job's, which is left alone; or a kind does not exist here.
        KubeError: as the API server answers.
    """
    is_new = has_no_members_yet(job.status)
    try:
        manifests = infrastructure.infrastructure_manifests(job)
    except ValueError as error:  # templates were validated at first and cannot change, but the master's resources can
        raise Refused(422, "Invalid", f"spec.master.resources: {error}") from error
    # For a new job, creating without a read saves a round trip each. Any other job has all this: it is only read.
    work: list[Callable[[], Awaitable[str | None]]] = []
    work.append(partial(_ensure_secrets, kube, job, part, is_new=is_new))
    for manifest in manifests:
        if part == "All" or (manifest["kind"] in _FIRST_KINDS) == (part == "First"):
            work.append(partial(_create if is_new else _ensure, kube, job, manifest))
    # All of it must succeed at once, and of many requests one easily gets no answer.
    requests = (retry(each, TryLater, pauses=_RETRY_PAUSES_SECONDS) for each in work)
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, str)]


async def _ensure_secrets(
    kube: Kube, job: ElasticJob, part: Literal["First", "Rest", "All"], *, is_new: bool
) -> str | None:
    """Create the Secrets that are missing, and have the one that reads follow the other one."""
    note = None if part == "Rest" else await _ensure_secret(kube, job, is_new=is_new)
    if part != "First":
        main = await kube.get(SECRETS, job.metadata.namespace, names.master_service(job.metadata.name))
        _check_owner(job, SECRETS, main)
        manifest = infrastructure.query_secret(job, main.get("data") or {})
        await (_create if is_new else _ensure)(kube, job, manifest)
    return note


async def _ensure_secret(kube: Kube, job: ElasticJob, *, is_new: bool) -> str | None:
    """Create the Secret if there is none; return a warning if it had been lost.

    The contents of an existing one are never changed, since running agents use them.
    """
    name = infrastructure.secret(job, {})["metadata"]["name"]
    if not is_new:
        try:
            _check_owner(job, SECRETS, await kube.get(SECRETS, job.metadata.namespace, name))
        except NotFound:
            pass
        else:
            return None
    content = new_job_secrets(job.metadata.name, job.metadata.namespace)
    manifest = infrastructure.secret(job, content)
    try:
        await kube.create(SECRETS, job.metadata.namespace, manifest)
    except AlreadyExists:
        _check_owner(job, SECRETS, await kube.get(SECRETS, job.metadata.namespace, name))
        return None
    if is_new:
        return None
    return (
        f"Secret {name} was gone and is made anew: pods with the old one and pods with the new one refuse each other; "
        "delete the older pods, they are replaced"
    )


async def _ensure(kube: Kube, job: ElasticJob, manifest: Json) -> None:
    resource = _resource(manifest)
    try:
        existing = await kube.get(resource, job.metadata.namespace, manifest["metadata"]["name"])
    except NotFound:
        await _create(kube, job, manifest)
        return
    await _correct(kube, job, resource, manifest, existing)


async def _create(kube: Kube, job: ElasticJob, manifest: Json) -> None:
    resource = _resource(manifest)
    try:
        await kube.create(resource, job.metadata.namespace, manifest)
    except AlreadyExists:
        existing = await kube.get(resource, job.metadata.namespace, manifest["metadata"]["name"])
        await _correct(kube, job, resource, manifest, existing)
    except NotFound as error:
        raise _missing_kind_error(job, resource, error) from error


async def _correct(kube: Kube, job: ElasticJob, resource: Resource, manifest: Json, existing: Json) -> None:
    _check_owner(job, resource, existing)
    if patch := infrastructure.correction_patch(manifest, existing):
        versioned = {key: existing["metadata"][key] for key in ("uid", "resourceVersion")}
        await kube.patch(
            resource, job.metadata.namespace, existing["metadata"]["name"], {"metadata": versioned, **patch}
        )


def _check_owner(job: ElasticJob, resource: Resource, existing: Json) -> None:
    if not owned_by(existing["metadata"], job.metadata.uid):
        name = existing["metadata"]["name"]
        message = f"{resource.kind} {name} exists and is not this job's; delete it, or rename the job"
        raise Refused(409, "Foreign", message)


def _missing_kind_error(job: ElasticJob, resource: Resource, error: NotFound) -> KubeError:
    """Return the error for a create that was answered with 404.

    The API server gives no reason where it is the kind that does not exist. For a PodGroup the error then says what to
    install.
    """
    if error.reason or resource not in _POD_GROUPS:
        return error
    gang_scheduler = job.spec.run_policy.scheduling_policy.gang
    message = (
        f"spec.runPolicy.schedulingPolicy.gang: {gang_scheduler} needs the CustomResourceDefinition "
        f"{resource.plural}.{resource.group} ({resource.version}), which this cluster does not have; install "
        f"{gang.SCHEDULERS[gang_scheduler].product}, or set gang to none"
    )
    return Refused(error.status, "NoSuchKind", message)


def _resource(manifest: dict[str, Any]) -> Resource:
    return _RESOURCES[manifest["apiVersion"], manifest["kind"]]
