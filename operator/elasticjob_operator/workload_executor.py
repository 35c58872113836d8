"""Writes the Workloads by which jobs request quota from Kueue."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.errors import AlreadyExists, Conflict, NotFound, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import KUEUE_PRIORITIES, KUEUE_WORKLOADS, PRIORITY_CLASSES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model import actions as do
from elasticjob_operator.core.model.workload import Workload, is_workload_of
from elasticjob_operator.core.quota.workloads import priority_class, with_priority
from elasticjob_operator.errors import NotServed, StaleState, name_taken

_CLASSES = {"WorkloadPriorityClass": KUEUE_PRIORITIES, "PriorityClass": PRIORITY_CLASSES}


@dataclass(frozen=True)
class WorkloadExecutor:
    """Writes Workloads, and caches the answers in the informer, ahead of its watch."""

    kube: Kube
    workloads: Informer[Workload]

    async def execute(
        self, job: ElasticJob, action: do.CreateWorkload | do.PatchWorkload | do.DeleteWorkload
    ) -> None:
        """Execute one action.

        Raises:
            StaleState: the Workload has changed since.
            NotServed: Kueue is not installed.
            KubeError: any other error of the API server.
        """
        match action:
            case do.CreateWorkload(body):
                await self._create(job, body)
            case do.PatchWorkload():
                await self._patch(job, action)
            case do.DeleteWorkload(name, uid):
                # It may be deleted, and another one of its name may exist.
                with suppress(NotFound, Conflict):
                    await self.kube.delete(KUEUE_WORKLOADS, job.metadata.namespace, name, uid=uid)
                self.workloads.forget(uid)

    async def _create(self, job: ElasticJob, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        body = await self._with_priority(job, body)
        try:
            answer = await self.kube.create(KUEUE_WORKLOADS, job.metadata.namespace, body)
        except NotFound as error:
            raise _not_served(error) from error
        except AlreadyExists:
            answer = await self.kube.get(KUEUE_WORKLOADS, job.metadata.namespace, name)
        found = _readable(answer)
        if found is None or not is_workload_of(found, job):
            now = self.kube.clock.now()
            raise name_taken(job, KUEUE_WORKLOADS, answer, "delete it", now)
        self.workloads.observe(found)

    async def _with_priority(self, job: ElasticJob, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the manifest with the number of its priority class, which Kueue reads."""
        chosen = priority_class(job, body)
        if chosen is None:
            return body
        try:
            found = await self.kube.get(_CLASSES[chosen.kind], None, chosen.name)
        except NotFound as error:
            if chosen.name not in error.message:
                raise _not_served(error) from error
            what = f"{chosen.field}: {chosen.kind} {chosen.name!r}"
            message = f"{what} does not exist; create it, or name another one"
            raise Refused(404, "NoSuchClass", message) from error
        return with_priority(body, chosen, int(found["value"]))

    async def _patch(self, job: ElasticJob, action: do.PatchWorkload) -> None:
        metadata = {"resourceVersion": action.resource_version, "uid": action.uid}
        body = {"metadata": metadata, "status": action.patch}
        try:
            answer = await self.kube.patch(
                KUEUE_WORKLOADS, job.metadata.namespace, action.name, body, subresource="status"
            )
        except (Conflict, NotFound) as error:
            await self._refresh(job, action)
            raise StaleState from error
        if (found := _readable(answer)) is not None:
            self.workloads.observe(found)

    async def _refresh(self, job: ElasticJob, action: do.PatchWorkload) -> None:
        try:
            found = _readable(
                await self.kube.get(KUEUE_WORKLOADS, job.metadata.namespace, action.name)
            )
        except NotFound:
            found = None
        if found is None or found.metadata.uid != action.uid:
            self.workloads.forget(action.uid)
        else:
            self.workloads.observe(found)


def _not_served(error: NotFound) -> NotServed:
    return NotServed(error.status, error.reason, f"Kueue is not installed: {error.message.strip()}")


def _readable(answer: Json) -> Workload | None:
    try:
        return msgspec.convert(answer, Workload)
    except msgspec.ValidationError:
        return None
