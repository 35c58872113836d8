"""Creates the objects that a job needs besides pods, and restores changed or deleted ones.

They are Services, Secret, ServiceAccount, Role, RoleBinding, ConfigMaps, NetworkPolicy and
PodGroup.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    NATIVE_POD_GROUPS,
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
from elasticjob_kube.session import Kube

from elasticjob_operator.certificates import new_job_secrets
from elasticjob_operator.core.manifests import gang, infrastructure
from elasticjob_operator.core.member_counts import has_no_members_yet
from elasticjob_operator.core.model.actions import EmitEvent, Part
from elasticjob_operator.errors import name_taken
from elasticjob_operator.infrastructure_record import InfrastructureRecord, ObjectVersion

_RETRY_PAUSES_SECONDS = (0.1, 0.5)
WATCHED = (SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, NETWORK_POLICIES)
"""The kinds whose metadata the operator watches: it may list them, and they hardly ever change."""
POD_GROUPS = (VOLCANO_POD_GROUPS, COSCHEDULING_POD_GROUPS, NATIVE_POD_GROUPS)
_RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (*WATCHED, SECRETS, CONFIG_MAPS, *POD_GROUPS)
}
_NO_KIND = "could not find the requested resource"
_FIRST_KINDS = ("Secret", "ServiceAccount", "PodGroup", "NetworkPolicy")
"""The kinds that must exist before the first pod: the API server, the scheduler and the kubelet
need them, and no pod may run without its policy.
"""


async def ensure_infrastructure(
    kube: Kube,
    job: ElasticJob,
    part: Part = "All",
    *,
    record: InfrastructureRecord | None = None,
    has_pods: bool = False,
    network_policies: bool = False,
) -> list[EmitEvent]:
    """Create or correct the infrastructure of a job, or part of it.

    Args:
        kube: the session.
        job: the job.
        part: which objects.
        record: gets the objects that are found or created; a lost Secret is restored from it.
        has_pods: whether pods run, which use the contents of the Secret.
        network_policies: whether each job has a NetworkPolicy.

    Returns:
        Events about objects that were restored or could not be created.

    Raises:
        Refused: a foreign object has a name that the job needs, or the cluster lacks a kind.
        KubeError: any other error of the API server.
    """
    is_new = part != "All" or has_no_members_yet(job.status)
    try:
        manifests = infrastructure.infrastructure_manifests(job, network_policies=network_policies)
    except ValueError as error:
        # The templates were validated and cannot change, but the master's resources can.
        raise Refused(422, "Invalid", f"spec.master.resources: {error}") from error
    if record is None:
        record = InfrastructureRecord()
    # For a new job, creating without a read saves one round trip per object. Other jobs usually
    # have all objects, so these are read.
    ensure = _Ensure(kube, job, record, is_new)
    work: list[Callable[[], Awaitable[EmitEvent | None]]] = [
        partial(ensure.object, manifest)
        for manifest in manifests
        if part in ("All", part_of(manifest))
    ]
    if part != "Members":
        work.append(partial(ensure.tokens, part, has_pods=has_pods))
    if part in ("Rest", "All") and (profile := infrastructure.profile_manifest(job)) is not None:
        work.append(partial(ensure.profile, profile))
    # All requests must succeed together, and one of many easily gets no answer.
    requests = (retry(each, TryLater, pauses=_RETRY_PAUSES_SECONDS) for each in work)
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, EmitEvent)]


def part_of(manifest: Json) -> Part:
    """Return when an object of a new job must exist."""
    if manifest["kind"] in _FIRST_KINDS:
        return "First"
    # A container gets the address of the master's Service only if that exists when it starts.
    has_address = manifest["kind"] == "Service" and manifest["spec"].get("clusterIP") != "None"
    return "Members" if has_address else "Rest"


@dataclass(frozen=True)
class _Ensure:
    """Ensures single objects of one job."""

    kube: Kube
    job: ElasticJob
    record: InfrastructureRecord
    is_new: bool

    async def tokens(self, part: Part, *, has_pods: bool) -> EmitEvent | None:
        """Create the Secret if it is missing, and derive the read-only token from it."""
        event: EmitEvent | None = None
        if part != "Rest":
            event = await self._secret(has_pods=has_pods)
        if part != "First":
            derived = infrastructure.query_config_map(self.job, await self._secret_data())
            corrected = await self.object(derived)
            event = event or corrected
        return event

    async def _secret(self, *, has_pods: bool) -> EmitEvent | None:
        """Create the Secret if it does not exist; return an event if it was lost.

        The contents of an existing Secret are never changed, since running agents use them. While
        pods run that have the contents of a lost Secret, it is restored with them.
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
            note = f"Secret {name} was deleted and is restored with its contents"
            return EmitEvent("Restored", note)
        metadata = self.job.metadata
        now = self.kube.clock.now()
        content = new_job_secrets(metadata.name, metadata.namespace, now)
        made = infrastructure.secret(self.job, content)
        if self.is_new or not has_pods:
            await self._create(made, only_if_missing=True)
            return None
        made["metadata"].setdefault("annotations", {})[names.ANNOTATION_MADE_ANEW] = "true"
        await self._create(made, only_if_missing=True)
        note = (
            f"Secret {name} was deleted and its contents are lost: it is created with new ones. "
            "Pods with the old contents and pods with the new ones refuse each other, so all are "
            "replaced: members first, then the master"
        )
        return EmitEvent("MadeAnew", note, warning=True)

    async def _secret_data(self) -> Mapping[str, str]:
        """Return the contents of the Secret, read only if this process does not know them.

        They never change, and a loss of the Secret is noticed by the check of it.
        """
        name = names.master_service(self.job.metadata.name)
        if name not in self.record.secrets:
            self._check_owner(SECRETS, await self._get(SECRETS, name))
        return self.record.secrets[name]

    async def object(self, manifest: Json) -> EmitEvent | None:
        """Create an object, or correct it.

        Return an event if another client has changed or deleted it. A change that follows an edit
        of the job, such as the master's rights, has no event.
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
            await self._restore(resource, manifest)
            return EmitEvent("Restored", f"{resource.kind} {name} was missing and is created")
        if not await self._correct(resource, manifest, existing):
            self.record.observe(resource, existing)
        elif not _is_as_known(resource, known, existing):
            note = f"{resource.kind} {name} had other contents and is corrected"
            return EmitEvent("Restored", note)
        return None

    async def _restore(self, resource: Resource, manifest: Json) -> None:
        """Create a lost object; a Service at its former address, unless another has that now."""
        address = self.record.addresses.get(manifest["metadata"]["name"])
        if resource == SERVICES and address is not None:
            spec = {**manifest["spec"], "clusterIP": address}
            with contextlib.suppress(Refused):
                await self._create({**manifest, "spec": spec})
                return
        await self._create(manifest)

    async def profile(self, manifest: Json) -> EmitEvent | None:
        """Create the ConfigMap of the job's profile, which the job can run without."""
        try:
            await self.kube.create(CONFIG_MAPS, self.job.metadata.namespace, manifest)
        except AlreadyExists:
            pass
        except Refused as error:
            name = manifest["metadata"]["name"]
            note = f"ConfigMap {name} cannot be created, so later jobs get no profile: {error}"
            return EmitEvent("NoProfile", note, warning=True)
        return None

    async def _get(self, resource: Resource, name: str) -> Json:
        found = await self.kube.get(resource, self.job.metadata.namespace, name)
        self.record.observe(resource, found)
        return found

    async def _create(self, manifest: Json, *, only_if_missing: bool = False) -> None:
        """Create an object; if it exists, correct it, or with `only_if_missing` check its owner."""
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
        """Make an object equal to its manifest; return whether this needed a change."""
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
            now = self.kube.clock.now()
            raise name_taken(self.job, resource, existing, "delete it, or rename the job", now)


def _is_as_known(resource: Resource, known: ObjectVersion | None, found: Json) -> bool:
    """Return whether an object is as this process has found or created it."""
    if known is None or known.uid != found["metadata"]["uid"]:
        return False
    if resource in POD_GROUPS:  # schedulers write the status
        return bool(known.generation == found["metadata"].get("generation", 0))
    return bool(known.version == int(found["metadata"]["resourceVersion"]))


def _missing_kind_error(job: ElasticJob, resource: Resource, error: NotFound) -> KubeError:
    """Return the error for a create that was answered with 404.

    If the group does not exist, the answer has no reason; if only the kind is missing in it, the
    answer names no object. For a PodGroup, the error then says what makes it exist.
    """
    if (error.reason and _NO_KIND not in str(error)) or resource not in POD_GROUPS:
        return error
    gang_scheduler = job.spec.run_policy.scheduling_policy.gang
    message = (
        f"spec.runPolicy.schedulingPolicy.gang: {gang_scheduler} needs {resource.plural}."
        f"{resource.group} ({resource.version}), which this cluster does not serve; "
        f"{gang.SCHEDULERS[gang_scheduler].remedy}; or set gang to none"
    )
    return Refused(error.status, "NoSuchKind", message)


def _resource(manifest: dict[str, Any]) -> Resource:
    return _RESOURCES[manifest["apiVersion"], manifest["kind"]]
