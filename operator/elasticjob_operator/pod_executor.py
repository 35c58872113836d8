"""Creates, deletes and resizes pods, and creates volume claims, with a bounded number of requests.

A member must never get two pods. So if a create fails in a way that is likely to pass, it is
repeated under the same name, which no other pod of the job ever gets. If no answer comes at all,
all pods are listed before the job gets another one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS, VOLUME_CLAIMS
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube

from elasticjob_operator.core.manifests.claims import is_of_another_job
from elasticjob_operator.core.model import actions as do
from elasticjob_operator.core.model.identity import (
    JobIdentity,
    controlling_job,
    identity_of,
    was_made_for,
)
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.errors import StaleState, name_taken
from elasticjob_operator.events import Events
from elasticjob_operator.pod_store import PodStore

_CREATE_RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)
_NO_ANSWER_STATUSES = (0, 504)
MAX_CONCURRENT_CHANGES = 32
"""Concurrent requests of one job, and the most changes with which a job counts as small. The
session has more connections, so a large job leaves some to the others.
"""
MAX_BESIDE_SMALL_JOBS = 4
"""Concurrent requests of all large jobs together while a small one is served."""


class RequestShares:
    """Bounds the concurrent requests of each job, and lets small jobs pass large ones.

    A new job needs several requests one after the other, and each of them waits in the API server
    beside those of other jobs. So a job with thousands of pods to change makes only a few requests
    at a time while a job with few changes is served.
    """

    def __init__(self) -> None:
        self._small_jobs = 0
        self._beside_small_jobs = asyncio.Semaphore(MAX_BESIDE_SMALL_JOBS)

    @contextmanager
    def serving(self, changes: int) -> Generator[None]:
        """Serve a job with this number of changes; large jobs yield to small ones meanwhile."""
        is_small = 0 < changes <= MAX_CONCURRENT_CHANGES
        self._small_jobs += is_small
        try:
            yield
        finally:
            self._small_jobs -= is_small

    @asynccontextmanager
    async def turn(self, changes: int) -> AsyncGenerator[None]:
        """Wait until a request for a job with this number of changes may be sent."""
        if changes <= MAX_CONCURRENT_CHANGES or not self._small_jobs:
            yield
            return
        async with self._beside_small_jobs:
            yield


@dataclass(frozen=True)
class PodExecutor:
    """Executes pod actions, and caches the answers in the informer `pods` for the next decision.

    Attributes:
        lease: namespace and name of the operator's Lease, which each new pod carries.
    """

    kube: Kube
    pods: Informer[Pod]
    store: PodStore
    events: Events
    lease: str
    shares: RequestShares = field(default_factory=RequestShares)
    _jobs_to_relist: set[str] = field(default_factory=set)

    async def execute(self, job: ElasticJob, actions: Sequence[do.Action]) -> None:
        """Execute pod actions, `MAX_CONCURRENT_CHANGES` at a time; then raise the first error.

        A resize that the API server refuses is recorded in the store and is not an error.

        Raises:
            StaleState: a pod has changed since the decision was made.
            KubeError: any other error of the API server.
        """
        if job.metadata.uid in self._jobs_to_relist:
            await self.pods.refresh()
            self._jobs_to_relist.discard(job.metadata.uid)
            raise StaleState
        limit = asyncio.Semaphore(MAX_CONCURRENT_CHANGES)
        failures: list[KubeError | StaleState] = []

        async def execute_bounded(action: do.Action) -> None:
            async with limit, self.shares.turn(len(actions)):
                # After a refusal (a quota, a webhook) the other creates would be refused, too.
                if failures and isinstance(action, do.CreatePod):
                    self.store.record_uncreated(identity_of(job), action.name)
                    return
                try:
                    await self._execute_one(job, action)
                except (KubeError, StaleState) as error:
                    failures.append(error)

        await asyncio.gather(*(execute_bounded(action) for action in actions))
        if failures:
            raise failures[0]

    async def confirm_gone(self, job: ElasticJob, action: do.ConfirmGone) -> None:
        """Read the pods with these names, and record which of them exist.

        Raises:
            KubeError: the API server has not answered for one of them.
        """
        limit = asyncio.Semaphore(MAX_CONCURRENT_CHANGES)

        async def confirm(name: str) -> None:
            async with limit:
                await self._confirm_one(job, name, action.at)

        reads = (confirm(name) for name in action.names)
        answers = await asyncio.gather(*reads, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _confirm_one(self, job: ElasticJob, name: str, now: float) -> None:
        identity = identity_of(job)
        try:
            found = await self.kube.get(PODS, job.metadata.namespace, name)
        except NotFound:
            found = None
        if found is not None and was_made_for(found, identity):
            self._keep(identity, _pod(found), now)
            return
        self.store.record_gone(identity, name)
        for pod in list(self.store.of(identity).named([name])):
            self.pods.forget(pod.metadata.uid)

    def _keep(self, job: JobIdentity, pod: Pod, now: float) -> None:
        """Keep a pod that was made for the job, whatever its labels and owners are now."""
        self.store.claim(job, pod.metadata.uid)
        is_watched = names.LABEL_JOB_UID in pod.metadata.labels
        self.store.record_found(job, pod.name, now, is_watched=is_watched)
        self.pods.keep(pod)
        # If only the owner was removed, the informer already has the pod and reports no change.
        self.store.update(None, pod)

    async def _execute_one(self, job: ElasticJob, action: do.Action) -> None:
        match action:
            case do.CreatePod():
                await self._create(job, action)
            case do.DeletePod(name, uid, grace_seconds):
                await self._delete(job, name, uid, grace_seconds)
            case do.ResizePod():
                await self._resize(job, action)

    async def _create(self, job: ElasticJob, action: do.CreatePod) -> None:
        identity = identity_of(job)
        self.store.begin_to_create(identity, action.name)
        attempts = itertools.count()
        try:
            # A conflict is about a ResourceQuota that many creates update at the same time. After a
            # time-out the pod may have been created and deleted already, and its name must not be
            # used again.
            answer = await retry(
                lambda: self._create_or_get(job, action, is_first=not next(attempts)),
                (TryLater, Conflict),
                pauses=_CREATE_RETRY_SECONDS,
                unless=lambda error: error.status in _NO_ANSWER_STATUSES,
            )
        except (TryLater, Conflict):
            self._jobs_to_relist.add(job.metadata.uid)
            raise
        pod = _pod(answer)
        if controlling_job(pod) != identity:
            if was_made_for(answer, identity):
                self._keep(identity, pod, 0.0)
                raise StaleState
            note = f"pod {action.name} exists and does not belong to this job; it is left alone"
            self.events.emit(job, do.EmitEvent(reason="ForeignPod", note=note, warning=True))
            # A StaleState would be retried at once. The next names may be in use as well, so a
            # pause is needed.
            raise Refused(409, "ForeignPod", note)
        self.pods.observe(pod)

    async def _create_or_get(
        self, job: ElasticJob, action: do.CreatePod, *, is_first: bool
    ) -> Json:
        """Create the pod after its volume claims, or read the pod that has the name.

        If the first attempt is refused, certainly no pod has got the name.
        """
        try:
            return await self._create_or_get_pod(job, action)
        except Refused as error:
            if is_first:
                why_invalid = error.message if _is_invalid(error) else ""
                self.store.record_uncreated(identity_of(job), action.name, why_invalid)
            raise

    async def _create_or_get_pod(self, job: ElasticJob, action: do.CreatePod) -> Json:
        await _ensure_claims(self.kube, job, action.claims)
        metadata = action.body["metadata"]
        annotations = {**metadata["annotations"], names.ANNOTATION_OPERATOR: self.lease}
        body = {**action.body, "metadata": {**metadata, "annotations": annotations}}
        try:
            return await self.kube.create(PODS, job.metadata.namespace, body)
        except AlreadyExists:
            return await self.kube.get(PODS, job.metadata.namespace, action.name)

    async def _delete(
        self, job: ElasticJob, name: str, uid: str, grace_seconds: int | None
    ) -> None:
        try:
            answer = await self.kube.delete(
                PODS, job.metadata.namespace, name, uid=uid, grace_seconds=grace_seconds
            )
        except NotFound:
            self.pods.forget(uid)
            return
        except Conflict:
            if await self._exists(job, name, uid):
                raise
            return
        # If another client deletes the pod at the same time, the answer has no version, and the
        # cached pod stays.
        if answer.get("kind") == "Pod" and answer["metadata"].get("resourceVersion"):
            self.pods.observe(_pod(answer))

    async def _resize(self, job: ElasticJob, action: do.ResizePod) -> None:
        pod = self.pods.get(action.uid)
        if pod is None:
            raise StaleState
        containers = [{"name": pod.container.name, "resources": action.resources}]
        body = {"metadata": {"uid": action.uid}, "spec": {"containers": containers}}
        try:
            answer = await self.kube.patch(
                PODS,
                job.metadata.namespace,
                action.name,
                body,
                kind="strategic-merge-patch",
                subresource="resize",
            )
        except Refused as error:
            why = f"the API server refuses to resize it: {error.message}"
            self.store.refused_resizes[action.uid] = (action, why)
            return
        except (NotFound, Conflict) as error:
            if await self._exists(job, action.name, action.uid) and isinstance(error, NotFound):
                why = "in-place resize needs Kubernetes 1.33 or later"
                self.store.refused_resizes[action.uid] = (action, why)
                return
            raise StaleState from error
        self.pods.observe(_pod(answer))

    async def _exists(self, job: ElasticJob, name: str, uid: str) -> bool:
        """Read the pod into the informer; return whether the pod with this UID exists."""
        try:
            pod = _pod(await self.kube.get(PODS, job.metadata.namespace, name))
        except NotFound:
            pod = None
        if pod is None or pod.metadata.uid != uid:
            self.pods.forget(uid)
            return False
        self.pods.observe(pod)
        return True


async def _ensure_claims(kube: Kube, job: ElasticJob, claims: Iterable[Mapping[str, Any]]) -> None:
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
            now = kube.clock.now()
            raise name_taken(job, VOLUME_CLAIMS, found, "the member waits until it is deleted", now)
        if found["metadata"].get("deletionTimestamp"):
            message = (
                f"{VOLUME_CLAIMS.kind} {name} is being deleted; the member gets a new one then"
            )
            raise Refused(409, "BeingDeleted", message)


def _is_invalid(error: Refused) -> bool:
    """Return whether the API server's validation refuses an object, not a policy or a webhook.

    Both answer with 422, but only the validation names fields.
    """
    return error.status == 422 and bool(error.causes) and all(each.field for each in error.causes)


def _pod(answer: Json) -> Pod:
    return msgspec.convert(answer, Pod)
