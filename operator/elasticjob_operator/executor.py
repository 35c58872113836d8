"""Executes the actions of a decision, in order.

Each class of error has one consequence here. A conflict or a missing object means that the decision
was based on a stale state: the object is read again, and the operator decides again. A refusal is
recorded for the job and shown by its status and an event. After a refusal or any other error, the
job is reconciled again after a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json, ObjectMeta
from elasticjob_kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Refused
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_kube.session import Kube

from elasticjob_operator.core.manifests.infrastructure import manifest_inputs
from elasticjob_operator.core.model import actions as do
from elasticjob_operator.core.model.identity import identity_of
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
_CHANGES = (do.EnsureInfrastructure, *_POD_ACTIONS)
"""What a user waits for when a job starts or changes its size. Statuses are written all the time.
"""
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
            StaleState: the decision was based on a stale state; decide again now.
        """
        decided = list(decided)
        changes = sum(isinstance(action, _CHANGES) for action in decided)
        with self.pod_executor.shares.serving(changes):
            await self._execute_in_order(job, decided)

    async def _execute_in_order(self, job: ElasticJob, decided: list[do.Action]) -> None:
        due: float | None = None
        refused: Refused | None = None
        try:
            for on_pods, group in groupby(decided, key=_pod_group):
                if on_pods:
                    # After a refusal the API server would refuse the other creates, too.
                    pods = [each for each in group if not (refused and self._skips(job, each))]
                    try:
                        await self.pod_executor.execute(job, pods)
                    except Refused as error:
                        # A quota that refuses pods must neither stop a plan that would remove
                        # some, nor delay its next step.
                        refused = error
                    continue
                for action in group:
                    job = await self._execute_one(job, action)
                    if isinstance(action, _PLAN_ACTIONS):
                        due = 0.0
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
        # After a ConfirmGone, the pods whose creation was refused are still to be created.
        if not any(isinstance(action, do.ConfirmGone) for action in decided):
            self.store.record_refusal(job, "")

    def _skips(self, job: ElasticJob, action: do.Action) -> bool:
        """Leave out the creation of a pod; return whether the action is one."""
        if not isinstance(action, do.CreatePod):
            return False
        self.store.pods.record_uncreated(identity_of(job), action.name)
        return True

    async def _execute_one(self, job: ElasticJob, action: do.Action) -> ElasticJob:
        """Execute one action and return the job as stored afterwards."""
        namespace = job.metadata.namespace
        match action:
            case do.PatchJobStatus(patch):
                job = await self._patch_job(job, {"status": patch}, subresource="status")
                self.store.record_status_write(job, self.kube.clock.now())
            case do.WriteBackReplicas(role, replicas):
                spec = {"replicaSpecs": {role: {"replicas": replicas}}}
                job = await self._patch_job(job, {"spec": spec})
            case do.PatchStatus() | do.Adopt() | do.DeleteScaling():
                await self.execute_on_request(namespace, action)
            case do.CreatePlan(body):
                await self._create_plan(job, body)
            case do.DeleteJob():
                await self._delete(ELASTIC_JOBS, namespace, job.metadata.name, job.metadata.uid)
            case do.EnsureInfrastructure(part):
                await self._ensure_infrastructure(job, part)
            case do.ConfirmGone():
                await self.pod_executor.confirm_gone(job, action)
            case do.CreateWorkload() | do.PatchWorkload() | do.DeleteWorkload():
                assert self.workloads is not None
                await self.workloads.execute(job, action)
            case do.EmitEvent():
                self.events.emit(job, action)
            case _:
                raise AssertionError(f"not an action that is executed here: {action}")
        return job

    async def _ensure_infrastructure(self, job: ElasticJob, part: do.Part) -> None:
        kube = self.kube
        if part != "First":
            # If many jobs are new, every master is created before the rest of any job.
            kube = kube.low_priority()
        record = self.store.infrastructure(job)
        changes = record.changes
        events = await ensure_infrastructure(
            kube,
            job,
            part,
            record=record,
            has_pods=self.store.observed(job).pods.live_count > 0,
            network_policies=self.network_policies,
        )
        for event in events:
            self.events.emit(job, event)
        # If an object was changed during this, all of them are ensured again.
        if part in ("Rest", "All") and record.changes == changes:
            record.ensured_for = manifest_inputs(job)

    async def _patch_job(
        self, job: ElasticJob, patch: Json, *, subresource: str = ""
    ) -> ElasticJob:
        answer = await self._patch(ELASTIC_JOBS, job.metadata, patch, subresource=subresource)
        return msgspec.convert(answer, ElasticJob)

    async def execute_on_request(
        self, namespace: str, action: do.PatchStatus | do.Adopt | do.DeleteScaling
    ) -> None:
        """Patch or delete a ScalePlan, ScaleIn or ScaleOut, whether its job exists or not.

        Raises:
            StaleState: it has changed since, or was deleted.
            KubeError: any other error of the API server.
        """
        match action:
            case do.PatchStatus():
                target = _target_of(namespace, action)
                body = {"status": action.patch}
                await self._patch(KINDS[action.kind], target, body, subresource="status")
            case do.Adopt():
                target = _target_of(namespace, action)
                owners = [dict(owner) for owner in action.owner_references]
                body = {"metadata": {"ownerReferences": owners}}
                await self._patch(KINDS[action.kind], target, body)
            case do.DeleteScaling(kind, name, uid):
                await self._delete(KINDS[kind], namespace, name, uid)

    async def _patch(
        self, resource: Resource, target: ObjectMeta, patch: Json, *, subresource: str = ""
    ) -> Json:
        """Patch a custom resource of the version on which the operator decided, and cache it."""
        version = {"resourceVersion": target.resource_version, "uid": target.uid}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
        try:
            answer = await self.kube.patch(
                resource, target.namespace, target.name, body, subresource=subresource
            )
        except (Conflict, NotFound) as error:
            await self._refresh(resource, target)
            raise StaleState from error
        self.store.update(resource, answer)
        return answer

    async def _refresh(self, resource: Resource, target: ObjectMeta) -> None:
        """Read an object into the store, or remove it from the store if it does not exist."""
        try:
            found = await self.kube.get(resource, target.namespace, target.name)
        except NotFound:
            found = None
        if found is None or found["metadata"]["uid"] != target.uid:
            # The watch reports a new object of this name; it may belong to another job.
            self.store.forget_uid(target.uid)
        else:
            self.store.update(resource, found)

    async def _create_plan(self, job: ElasticJob, body: Mapping[str, Any]) -> None:
        try:
            answer = await self.kube.create(SCALE_PLANS, job.metadata.namespace, body)
        except AlreadyExists:
            # The name follows from the plan's cause, so an earlier create of this plan may have
            # succeeded without an answer.
            name = body["metadata"]["name"]
            answer = await self.kube.get(SCALE_PLANS, job.metadata.namespace, name)
        self.store.update(SCALE_PLANS, answer)
        plans = {plan.metadata.uid for plan in self.store.observed(job).plans}
        if answer["metadata"]["uid"] not in plans:
            now = self.kube.clock.now()
            raise name_taken(job, SCALE_PLANS, answer, "delete it", now)

    async def _delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        try:
            await self.kube.delete(resource, namespace, name, uid=uid, propagation="Background")
        except NotFound:
            log.debug("%s %s is deleted already", resource.kind, name)
        except Conflict:
            if await self._exists(resource, namespace, name, uid):
                raise
        self.store.forget_uid(uid)

    async def _exists(self, resource: Resource, namespace: str, name: str, uid: str) -> bool:
        """Return whether the object with this UID exists."""
        try:
            found = await self.kube.get(resource, namespace, name)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == uid)


def _target_of(namespace: str, action: do.PatchStatus | do.Adopt) -> ObjectMeta:
    return ObjectMeta(
        name=action.name,
        namespace=namespace,
        uid=action.uid,
        resource_version=action.resource_version,
    )


def _pod_group(action: do.Action) -> int:
    """Return 0 for actions on other objects than pods; no member is created before the master."""
    is_master = isinstance(action, do.CreatePod) and action.role == names.ROLE_MASTER
    return 1 + is_master if isinstance(action, _POD_ACTIONS) else 0
