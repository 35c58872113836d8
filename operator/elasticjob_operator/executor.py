"""Executes the actions of a decision, in order.

Each class of error has one consequence here. A conflict or a vanished object means that the
decision was made on a stale state: the object is read again, and a new decision is made. A refusal
is recorded for the job and shown by its status and an event. After a refusal or any other error,
the job is reconciled again after a pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Refused
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_kube.session import Json, Kube

from elasticjob_operator.core.manifests.infrastructure import manifest_inputs
from elasticjob_operator.core.model import actions as do
from elasticjob_operator.core.model.patches import readable
from elasticjob_operator.ensure_infrastructure import ensure_infrastructure
from elasticjob_operator.errors import NotServed, StaleState, name_taken
from elasticjob_operator.events import Events
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import Retry, retry_after
from elasticjob_operator.workload_executor import WorkloadExecutor

log = logging.getLogger(__name__)
KINDS = {resource.kind: resource for resource in (SCALE_PLANS, SCALE_INS, SCALE_OUTS)}
_POD_ACTIONS = (do.CreatePod, do.DeletePod, do.ResizePod)
_PLAN_ACTIONS = (do.PatchStatus, do.Adopt, do.CreatePlan, do.WriteBackReplicas)


@dataclass(frozen=True)
class Executor:
    """Executes decisions on one cluster."""

    kube: Kube
    store: Store
    pod_executor: PodExecutor
    events: Events
    network_policies: bool = False
    workloads: WorkloadExecutor | None = None

    async def execute(self, job: ElasticJob, decided: Iterable[do.Action]) -> None:
        """Execute actions in order; adjacent actions on pods concurrently.

        Raises:
            Retry: an action failed; decide again after a pause.
            StaleState: the decision was made on a stale state; decide again now.
        """
        decided = list(decided)
        due: float | None = None
        refused: Refused | None = None
        try:
            for on_pods, group in groupby(
                decided, key=lambda action: isinstance(action, _POD_ACTIONS)
            ):
                if on_pods:
                    try:
                        await self.pod_executor.execute(
                            job, list(group), self.store.record_refused_resize
                        )
                    except Refused as error:
                        # a quota that refuses pods must not stop the plan that would make them
                        # fewer
                        refused = error
                    continue
                for action in group:
                    job = await self._execute_one(job, action)
                    if isinstance(action, _PLAN_ACTIONS):
                        due = 0.0  # nor delay the plan's next step
            if refused is not None:
                raise refused
        except NotServed as error:
            raise Retry(error.message, due=due, is_known=True) from error
        except Refused as error:
            if self.store.record_refusal(job, error.message):
                self.events.emit(job, do.EmitEvent("Refused", error.message, warning=True))
            raise Retry(error.message, due=due) from error
        except KubeError as error:
            raise retry_after(error, due=due) from error
        if not any(
            isinstance(action, do.ConfirmGone) for action in decided
        ):  # before pods that may be refused again
            self.store.record_refusal(job, "")

    async def _execute_one(self, job: ElasticJob, action: do.Action) -> ElasticJob:
        """Execute one action; return the job as it is afterwards."""
        match action:
            case do.PatchJobStatus(patch):
                job = await self._patch_job(job, {"status": patch}, subresource="status")
                self.store.record_status_write(job, time.time())
                return job
            case do.WriteBackReplicas(role, replicas):
                spec = {"replicaSpecs": {role: {"replicas": replicas}}}
                return await self._patch_job(job, {"spec": spec}, subresource="")
            case do.PatchStatus() | do.Adopt() | do.DeletePlan() | do.DeleteScaler():
                await self.execute_on_request(job.metadata.namespace, action)
            case do.CreatePlan(body):
                await self._create_plan(job, body)
            case do.DeleteJob():
                await self._delete(
                    ELASTIC_JOBS, job.metadata.namespace, job.metadata.name, job.metadata.uid
                )
            case do.EnsureInfrastructure(part):
                # Of many new jobs, each gets its master before any gets what can come after.
                kube = self.kube if part == "First" else self.kube.low_priority()
                await self._ensure_infrastructure(kube, job, part)
            case do.ConfirmGone():
                await self.pod_executor.confirm_gone(job, action)
            case do.CreateWorkload() | do.PatchWorkload() | do.DeleteWorkload():
                assert self.workloads is not None
                await self.workloads.execute(job, action)
            case do.EmitEvent():
                self.events.emit(job, action)
            case _:
                raise AssertionError(f"not an action outside of pods: {action}")
        return job

    async def _ensure_infrastructure(
        self, kube: Kube, job: ElasticJob, part: Literal["First", "Rest", "All"]
    ) -> None:
        record = self.store.infrastructure(job)
        changes = record.changes
        events = await ensure_infrastructure(
            kube,
            job,
            part,
            record=record,
            has_pods=any(not pod.finished for pod in self.store.observed(job).pods),
            network_policies=self.network_policies,
        )
        for event in events:
            self.events.emit(job, event)
        if (
            part != "First" and record.changes == changes
        ):  # else somebody has changed something meanwhile
            record.ensured_for = manifest_inputs(job)

    # --- the job and its plans
    # ------------------------------------------------------------------------------------

    async def _patch_job(
        self, job: ElasticJob, patch: dict[str, Any], *, subresource: str
    ) -> ElasticJob:
        metadata = {"resourceVersion": job.metadata.resource_version, "uid": job.metadata.uid}
        body = {**patch, "metadata": metadata}
        try:
            answer = await self.kube.patch(
                ELASTIC_JOBS,
                job.metadata.namespace,
                job.metadata.name,
                body,
                subresource=subresource,
            )
        except (Conflict, NotFound) as error:
            await self.refresh_job(job)
            raise StaleState from error
        return self._stored(answer)

    def _stored(self, answer: Json) -> ElasticJob:
        """Cache the API server's answer to a write of the job, and return the job."""
        self.store.update(ELASTIC_JOBS, answer)
        return readable(answer, ElasticJob)[0]

    async def refresh_job(self, job: ElasticJob) -> bool:
        """Read the job from the API server into the store.

        Return False if it does not exist any more.
        """
        try:
            found = await self.kube.get(ELASTIC_JOBS, job.metadata.namespace, job.metadata.name)
        except NotFound:
            self.store.forget(job)
            return False
        if found["metadata"]["uid"] != job.metadata.uid:
            self.store.forget(job)
        self.store.update(ELASTIC_JOBS, found)
        return True

    async def execute_on_request(
        self, namespace: str, action: do.PatchStatus | do.Adopt | do.DeletePlan | do.DeleteScaler
    ) -> None:
        """Patch or delete a ScalePlan, ScaleIn or ScaleOut, whether its job exists or not.

        Raises:
            StaleState: it has changed since, or was deleted.
            KubeError: any other error of the API server.
        """
        match action:
            case do.PatchStatus():
                await self._patch_request(
                    namespace, action, {"status": action.patch}, subresource="status"
                )
            case do.Adopt():
                owners = [dict(owner) for owner in action.owner_references]
                await self._patch_request(
                    namespace, action, {"metadata": {"ownerReferences": owners}}
                )
            case do.DeletePlan(name, uid):
                await self._delete(SCALE_PLANS, namespace, name, uid)
            case do.DeleteScaler(kind, name, uid):
                await self._delete(KINDS[kind], namespace, name, uid)

    async def _patch_request(
        self,
        namespace: str,
        action: do.PatchStatus | do.Adopt,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
    ) -> None:
        resource = KINDS[action.kind]
        versioned = {"resourceVersion": action.resource_version, "uid": action.uid}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **versioned}}
        try:
            answer = await self.kube.patch(
                resource, namespace, action.name, body, subresource=subresource
            )
        except (Conflict, NotFound) as error:
            await self._refresh_request(resource, namespace, action)
            raise StaleState from error
        self.store.update(resource, answer)

    async def _refresh_request(
        self, resource: Resource, namespace: str, action: do.PatchStatus | do.Adopt
    ) -> None:
        try:
            found = await self.kube.get(resource, namespace, action.name)
        except NotFound:
            found = None
        if found is None or found["metadata"]["uid"] != action.uid:
            # A new object of this name may name another job; the watch reports it.
            self.store.forget_uid(action.uid)
        else:
            self.store.update(resource, found)

    async def _create_plan(self, job: ElasticJob, body: do.Json) -> None:
        try:
            answer = await self.kube.create(SCALE_PLANS, job.metadata.namespace, body)
        except AlreadyExists:
            # Its name derives from what it is for: an earlier create of this plan has succeeded
            # without an answer.
            answer = await self.kube.get(
                SCALE_PLANS, job.metadata.namespace, body["metadata"]["name"]
            )
        self.store.update(SCALE_PLANS, answer)
        if answer["metadata"]["uid"] not in {
            plan.metadata.uid for plan in self.store.observed(job).plans
        }:
            raise name_taken(job, SCALE_PLANS, answer, "delete it")

    async def _delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        try:
            await self.kube.delete(resource, namespace, name, uid=uid, propagation="Background")
        except (NotFound, Conflict) as error:
            if isinstance(error, Conflict) and await self._exists(resource, namespace, name, uid):
                raise
            log.debug("%s %s was gone already", resource.kind, name)
        self.store.forget_uid(uid)

    async def _exists(self, resource: Resource, namespace: str, name: str, uid: str) -> bool:
        """Whether the object with this UID exists; another of its name does not count."""
        try:
            found = await self.kube.get(resource, namespace, name)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == uid)
