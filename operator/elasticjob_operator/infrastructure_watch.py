"""Detects that another client has changed or deleted an object that a job needs besides pods.

The job is then reconciled at once. Services, ServiceAccounts, Roles, RoleBindings and
NetworkPolicies are watched: five watches for all jobs, of metadata only.

The other objects are read one by one: the right to list Secrets would be the right to read all of
them, masters write their ConfigMaps all the time, and the kinds of PodGroups need not exist. This
takes three requests per active job and `CHECK_SECONDS`, four with a gang. For 1,000 jobs these are
75 requests a second, which the API server answers from its cache.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import CONFIG_MAPS, NETWORK_POLICIES, SECRETS, Resource
from elasticjob_kube.session import Kube

from elasticjob_operator.cluster_watches import run_if_allowed
from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.ensure_infrastructure import POD_GROUPS, WATCHED
from elasticjob_operator.infrastructure_record import ObjectVersion
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store

CHECK_SECONDS = 40.0
_BATCH_SECONDS = 1.0
CORRECTION_SECONDS = 10.0
"""The shortest time between two corrections of one job. So if another controller undoes them, the
two do not write without a pause.
"""


class Metadata(Object, frozen=True):
    """An object that was read without anything but its metadata."""

    metadata: ObjectMeta


class InfrastructureWatch:
    """Compares the infrastructure of all jobs with their records."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        on_change: Callable[[JobKey], None],
        *,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """`on_change` is called with a job whose infrastructure must be ensured again."""
        self._kube = kube
        self._store = store
        self._on_change = on_change
        self._check_seconds = check_seconds
        self._corrected_at: dict[str, float] = {}
        self._waiting: set[str] = set()

    def tasks(self, scope: Scope, *, network_policies: bool) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the watches and the checks, which run as long as the operator leads."""
        for resource in WATCHED:
            if resource == NETWORK_POLICIES and not network_policies:
                continue
            informer: Informer[Metadata] = Informer(
                self._kube,
                resource,
                Metadata,
                namespace=scope.namespace,
                only=scope.only,
                label_selector=names.LABEL_JOB_UID,
                metadata_only=True,
                on_change=self._handler(resource),
            )
            missing = f"changed or deleted {resource.plural} of jobs are not detected"
            yield run_if_allowed(informer, missing=missing, grant=resource.plural)
        yield self._check_for_ever()

    def _handler(self, resource: Resource) -> Callable[[Metadata | None, Metadata | None], None]:
        def on_change(before: Metadata | None, after: Metadata | None) -> None:
            found = after or before
            assert found is not None
            labels = found.metadata.labels
            key = JobKey(found.metadata.namespace, labels.get(names.LABEL_JOB_NAME, ""))
            job = self._store.job(key)
            if job is None or job.metadata.uid != labels.get(names.LABEL_JOB_UID):
                return
            known = self._store.infrastructure(job).objects.get((resource, found.metadata.name))
            changed = known is not None and known.version < int(found.metadata.resource_version)
            if after is None or changed:
                self._invalidate(job)

        return on_change

    def _invalidate(self, job: ElasticJob) -> None:
        """Have the infrastructure ensured, now or `CORRECTION_SECONDS` after the last time."""
        uid = job.metadata.uid
        loop = asyncio.get_running_loop()
        if uid in self._waiting:
            return
        for other, at in list(self._corrected_at.items()):
            if loop.time() - at > CORRECTION_SECONDS:
                del self._corrected_at[other]
        if (last := self._corrected_at.get(uid)) is None:
            self._correct(job)
        else:
            self._waiting.add(uid)
            loop.call_at(last + CORRECTION_SECONDS, self._correct, job)

    def _correct(self, job: ElasticJob) -> None:
        self._waiting.discard(job.metadata.uid)
        self._corrected_at[job.metadata.uid] = asyncio.get_running_loop().time()
        self._store.infrastructure(job).invalidate()
        self._on_change(JobKey(job.metadata.namespace, job.metadata.name))

    async def _check_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            end = loop.time() + self._check_seconds
            jobs = [job for job in self._store.jobs() if _is_active(job)]
            size = math.ceil(len(jobs) / max(self._check_seconds / _BATCH_SECONDS, 1)) or 1
            for start in range(0, len(jobs), size):
                await asyncio.gather(*(self._check(job) for job in jobs[start : start + size]))
                await asyncio.sleep(min(_BATCH_SECONDS, self._check_seconds))
            await asyncio.sleep(max(end - loop.time(), 0))

    async def _check(self, job: ElasticJob) -> None:
        """Read the job's objects that are not watched."""
        record = self._store.infrastructure(job)
        if record.ensured_for is None:
            return  # it will be ensured anyway
        name = job.metadata.name
        needed = [
            (SECRETS, names.master_service(name)),
            (CONFIG_MAPS, names.query_config_map(name)),
            (CONFIG_MAPS, names.state_config_map(name)),
            *(key for key in record.objects if key[0] in POD_GROUPS),
        ]
        for resource, name in needed:
            try:
                found = await self._kube.low_priority().get_cached_metadata(
                    resource, job.metadata.namespace, name
                )
            except NotFound:
                self._invalidate(job)
                return
            except KubeError:
                return  # the next check reads it again
            known = record.objects.get((resource, name))
            if known is None or not _is_same(resource, known, found["metadata"]):
                self._invalidate(job)
                return


def _is_active(job: ElasticJob) -> bool:
    phase = job.status.phase
    ended = phase in (None, "Suspended", "Retrying") or phase in ENDED
    return not ended and job.metadata.deletion_timestamp is None


def _is_same(resource: Resource, known: ObjectVersion, found: dict[str, Any]) -> bool:
    if resource in POD_GROUPS and known.generation != found.get("generation", 0):
        # Schedulers write the status, which changes the version, but not the generation.
        return False
    return bool(found["uid"] == known.uid)
