"""Creates what a job needs besides pods, and corrects it when somebody else has changed or deleted it.

That are Services, Secret, account, Role, ConfigMap, NetworkPolicy and PodGroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    NETWORK_POLICIES,
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
from elasticjob_operator.core.model.actions import EmitEvent
from elasticjob_operator.errors import name_taken
from elasticjob_operator.infrastructure_record import InfrastructureRecord, ObjectVersion

_RETRY_PAUSES_SECONDS = (0.1, 0.5)
WATCHED = (SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, NETWORK_POLICIES)
"""The kinds of which all objects may be listed, and which hardly ever change: the operator watches
their metadata.
"""
POD_GROUPS = (VOLCANO_POD_GROUPS, COSCHEDULING_POD_GROUPS)
_RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (*WATCHED, SECRETS, CONFIG_MAPS, *POD_GROUPS)
}
_FIRST_KINDS = ("ServiceAccount", "PodGroup")
"""With the Secret, what must exist before the first pod: for the API server, the scheduler and the
kubelet.
"""


async def ensure_infrastructure(
    kube: Kube,
    job: ElasticJob,
    part: Literal["First", "Rest", "All"] = "All",
    *,
    record: InfrastructureRecord | None = None,
    has_pods: bool = False,
    network_policies: bool = False,
) -> list[EmitEvent]:
    """Create or correct the infrastructure of a job, or part of it.

    What the first pods need, the rest, or all.

    Args:
        kube: the session.
        job: the job.
        part: see above.
        record: gets the objects that are found or made; from it a lost Secret is restored.
        has_pods: whether pods run, which have the contents of the Secret.
        network_policies: whether each job has a NetworkPolicy.

    Returns:
        Events about what was not as expected.

    Raises:
        Refused: a name is taken by an object that is not the job's, which is left alone; or a kind does not exist here.
        KubeError: as the API server answers.
    """
    is_new = has_no_members_yet(job.status)
    try:
        manifests = infrastructure.infrastructure_manifests(job, network_policies=network_policies)
    except ValueError as error:  # templates were validated at first and cannot change, but the master's resources can
        raise Refused(422, "Invalid", f"spec.master.resources: {error}") from error
    # For a new job, creating without a read saves a round trip each. Any other job has all this: it
    # is only read.
    ensure = _Ensure(kube, job, record if record is not None else InfrastructureRecord(), is_new)
    work: list[Callable[[], Awaitable[EmitEvent | None]]] = [
        partial(ensure.tokens, part, has_pods=has_pods)
    ]
    for manifest in manifests:
        if part == "All" or (manifest["kind"] in _FIRST_KINDS) == (part == "First"):
            work.append(partial(ensure.object, manifest))
    if part != "First" and (profile := infrastructure.profile_manifest(job)) is not None:
        work.append(partial(ensure.profile, profile))
    # All of it must succeed at once, and of many requests one easily gets no answer.
    requests = (retry(each, TryLater, pauses=_RETRY_PAUSES_SECONDS) for each in work)
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, EmitEvent)]


@dataclass(frozen=True)
class _Ensure:
    """Ensures single objects of one job."""

    kube: Kube
    job: ElasticJob
    record: InfrastructureRecord
    is_new: bool

    async def tokens(
        self, part: Literal["First", "Rest", "All"], *, has_pods: bool
    ) -> EmitEvent | None:
        """Create the Secret if it is missing, and have the token that reads follow the one in it."""
        event = None if part == "Rest" else await self._secret(has_pods=has_pods)
        if part != "First":
            main = await self._get(SECRETS, names.master_service(self.job.metadata.name))
            self._check_owner(SECRETS, main)
            follows = await self.object(
                infrastructure.query_config_map(self.job, main.get("data") or {})
            )
            event = event or follows
        return event

    async def _secret(self, *, has_pods: bool) -> EmitEvent | None:
        """Create the Secret if there is none; return an event if it had been lost.

        The contents of an existing one are never changed, since running agents use them. A lost one
        is restored with its contents as long as pods run that have them.
        """
        manifest = infrastructure.secret(self.job, {})
        name = manifest["metadata"]["name"]
        if not self.is_new:
            try:
                await self._correct(SECRETS, manifest, await self._get(SECRETS, name))
            except NotFound:
                pass
            else:
                return None
        if has_pods and (known := self.record.secrets.get(name)):
            await self._create({**manifest, "data": known})
            return EmitEvent(
                "Restored", f"Secret {name} was gone and is restored with its contents"
            )
        content = new_job_secrets(self.job.metadata.name, self.job.metadata.namespace)
        made = infrastructure.secret(self.job, content)
        if self.is_new or not has_pods:
            await self._create(made, only_if_missing=True)
            return None
        made["metadata"].setdefault("annotations", {})[names.ANNOTATION_MADE_ANEW] = "true"
        await self._create(made, only_if_missing=True)
        note = (
            f"Secret {name} was gone, and nobody knows its contents any more: it is made anew. Pods with the old one "
            "and pods with the new one refuse each other, so all are replaced: members first, then the master"
        )
        return EmitEvent("MadeAnew", note, warning=True)

    async def object(self, manifest: Json) -> EmitEvent | None:
        """Create an object, or correct it.

        Return an event if somebody else has changed what a job that is not new had.
        What follows an edit of the job, such as the master's rights, is no such change.
        """
        resource = _resource(manifest)
        name = manifest["metadata"]["name"]
        known = self.record.objects.get((resource, name))
        if self.is_new:
            await self._create(manifest)
            return None
        try:
            existing = await self.kube.get(resource, self.job.metadata.namespace, name)
        except NotFound:
            await self._create(manifest)
            return EmitEvent("Restored", f"{resource.kind} {name} was missing and is made again")
        if not await self._correct(resource, manifest, existing):
            self.record.observe(resource, existing)
        elif not _is_as_known(resource, known, existing):
            return EmitEvent(
                "Restored", f"{resource.kind} {name} had other contents and is corrected"
            )
        return None

    async def profile(self, manifest: Json) -> EmitEvent | None:
        """Create the ConfigMap of the job's profile if there is none; the job can do without it."""
        try:
            await self.kube.create(CONFIG_MAPS, self.job.metadata.namespace, manifest)
        except AlreadyExists:
            pass
        except Refused as error:
            name = manifest["metadata"]["name"]
            note = f"ConfigMap {name} cannot be made, so nothing is kept for later jobs: {error}"
            return EmitEvent("NoProfile", note, warning=True)
        return None

    async def _get(self, resource: Resource, name: str) -> Json:
        found = await self.kube.get(resource, self.job.metadata.namespace, name)
        self.record.observe(resource, found)
        return found

    async def _create(self, manifest: Json, *, only_if_missing: bool = False) -> None:
        """Create an object.

        One that exists is corrected, or checked to be the job's own if `only_if_missing`.
        """
        resource = _resource(manifest)
        try:
            made = await self.kube.create(resource, self.job.metadata.namespace, manifest)
            self.record.observe(resource, made)
        except AlreadyExists:
            existing = await self._get(resource, manifest["metadata"]["name"])
            if only_if_missing:
                self._check_owner(resource, existing)
            else:
                await self._correct(resource, manifest, existing)
        except NotFound as error:
            raise _missing_kind_error(self.job, resource, error) from error

    async def _correct(self, resource: Resource, manifest: Json, existing: Json) -> bool:
        """Make an existing object equal to its manifest; return whether it was not."""
        self._check_owner(resource, existing)
        metadata = infrastructure.metadata_correction(manifest, existing)
        patch = infrastructure.correction_patch(manifest, existing)
        if not (patch or metadata):
            return False
        versioned = {key: existing["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {"metadata": {**metadata, **versioned}, **patch}
        name = existing["metadata"]["name"]
        self.record.observe(
            resource, await self.kube.patch(resource, self.job.metadata.namespace, name, body)
        )
        return True

    def _check_owner(self, resource: Resource, existing: Json) -> None:
        if not infrastructure.belongs_to(existing, self.job):
            raise name_taken(self.job, resource, existing, "delete it, or rename the job")


def _is_as_known(resource: Resource, known: ObjectVersion | None, found: Json) -> bool:
    """Whether nobody else has changed an object since this process has found or made it."""
    if known is None or known.uid != found["metadata"]["uid"]:
        return False
    if resource in POD_GROUPS:  # their schedulers write their status
        return bool(known.generation == found["metadata"].get("generation", 0))
    return bool(known.version == int(found["metadata"]["resourceVersion"]))


def _missing_kind_error(job: ElasticJob, resource: Resource, error: NotFound) -> KubeError:
    """Return the error for a create that was answered with 404.

    The API server gives no reason where it is the kind that does not exist. For a PodGroup the
    error then says what to install.
    """
    if error.reason or resource not in POD_GROUPS:
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
