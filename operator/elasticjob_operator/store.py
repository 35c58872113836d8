"""The operator's cache of objects as last observed, by job.

It may be stale. Every write carries the resourceVersion or UID on which it was decided, so that it
fails on another state. A deleted object is removed when the watch reports it, or earlier, when the
API server answers a write to it with "not found".
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.ownership import may_be_of_job
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
    Resource,
)

from elasticjob_operator.cluster_store import NodeChange, NodeStore, QuotaStore
from elasticjob_operator.core.job_end import without_unused_templates
from elasticjob_operator.core.manifests.infrastructure import manifest_inputs
from elasticjob_operator.core.members.cluster_rules import Rules, with_cluster_rules
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.model.limit_ranges import LimitRange, bounds, default_limits
from elasticjob_operator.core.model.nodes import Node
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.infrastructure_record import InfrastructureRecord
from elasticjob_operator.job_keys import Custom, JobKey, key_of
from elasticjob_operator.pod_store import PodStore
from elasticjob_operator.pool_store import PoolStore
from elasticjob_operator.queue_store import QueueStore

log = logging.getLogger(__name__)
_MAX_DELETED_UIDS = 10_000
"""The number of deleted objects whose UID is kept: a late event must not bring one of them back."""

TYPES: Mapping[Resource, type[Custom]] = {
    ELASTIC_JOBS: ElasticJob,
    SCALE_PLANS: ScalePlan,
    SCALE_INS: ScaleIn,
    SCALE_OUTS: ScaleOut,
}
for _type in TYPES.values():
    # This prepares decoding, so that the first object of a kind is not delayed.
    msgspec.json.Decoder(_type)


@dataclass
class Store:
    """Custom resources, pods, nodes and default limits as last observed.

    Attributes:
        pods: the pods of all jobs.
        nodes: the nodes of the cluster.
        pools: the ElasticPools, and what their jobs have got.
        quotas: what Kueue says of jobs; None if the operator runs without Kueue.
        queues: Kueue's queues and all Workloads; None if the operator runs without Kueue.
        restart_rules: the cluster's, which apply after those of each job.
        rules_refused: whether the ConfigMap of the restart rules cannot be read, so that earlier
            rules apply.
        shared_jobs: the UIDs of the jobs on which another operator has been seen to work.
    """

    pods: PodStore = field(default_factory=PodStore)
    nodes: NodeStore = field(default_factory=NodeStore)
    pools: PoolStore = field(default_factory=PoolStore)
    quotas: QuotaStore | None = None
    queues: QueueStore | None = None
    restart_rules: Rules = ()
    rules_refused: bool = False
    shared_jobs: set[str] = field(default_factory=set)
    _customs: dict[JobKey, dict[str, Custom]] = field(default_factory=lambda: defaultdict(dict))
    _keys: dict[str, dict[JobKey, None]] = field(default_factory=lambda: defaultdict(dict))
    """The keys of `_customs` by namespace."""
    _last_refusals: dict[str, str] = field(default_factory=dict)
    _status_written_at: dict[str, float] = field(default_factory=dict)
    _infrastructure: dict[str, InfrastructureRecord] = field(
        default_factory=lambda: defaultdict(InfrastructureRecord)
    )
    _limit_ranges: dict[str, dict[str, LimitRange]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _deleted_uids: dict[str, None] = field(default_factory=dict)

    def change(self, before: Custom | None, after: Custom | None) -> JobKey | None:
        """Cache a custom resource that was added, changed or deleted (`after` None).

        Return its job's key if this version was not cached yet. The watch repeats the answers to
        the operator's own writes: these must not shorten the pause after a failure.
        """
        if after is None:
            assert before is not None
            self.forget(before)
            return key_of(before)
        if self._put(after):
            return key_of(after)
        self._share(after)
        return None

    def update(self, resource: Resource, raw: Mapping[str, Any]) -> JobKey | None:
        """Cache a custom resource from an answer of the API server.

        Return its job's key if this version was not cached yet.
        """
        try:
            custom = to_cache(msgspec.convert(raw, TYPES[resource]))
        except msgspec.ValidationError as error:
            metadata = raw.get("metadata", {})
            where = f"{metadata.get('namespace')}/{metadata.get('name')}"
            fields = {ELASTIC_JOBS: {"job": where}, SCALE_PLANS: {"plan": metadata.get("name")}}
            text = "%s %s cannot be read and is left alone: %s"
            log.warning(text, resource.kind, where, error, extra=fields.get(resource))
            self.set_aside(str(metadata.get("uid")))
            return None
        return key_of(custom) if self._put(custom) else None

    def set_aside(self, uid: str) -> None:
        """Remove an object that can no longer be read; no decision includes it until it can."""
        for key, customs in list(self._customs.items()):
            if customs.pop(uid, None) is not None and not customs:
                self._drop(key)

    def forget(self, custom: Custom) -> None:
        """Remove an object that was deleted; late events and answers do not bring it back."""
        key = key_of(custom)
        uid = custom.metadata.uid
        self._deleted_uids[uid] = None
        if len(self._deleted_uids) > _MAX_DELETED_UIDS:
            del self._deleted_uids[next(iter(self._deleted_uids))]
        self._customs[key].pop(uid, None)
        if not self._customs[key]:
            self._drop(key)
        self._last_refusals.pop(uid, None)
        self._status_written_at.pop(uid, None)
        self._infrastructure.pop(uid, None)
        self.shared_jobs.discard(uid)
        if isinstance(custom, ElasticJob):
            self.pods.forget_job(identity_of(custom))

    def _drop(self, key: JobKey) -> None:
        """Forget a key of which no object is left."""
        del self._customs[key]
        self._keys[key.namespace].pop(key, None)
        if not self._keys[key.namespace]:
            del self._keys[key.namespace]

    def forget_uid(self, uid: str) -> None:
        """Remove the object with this UID, which was deleted."""
        for customs in list(self._customs.values()):
            if uid in customs:
                self.forget(customs[uid])

    def update_pod(self, before: Pod | None, after: Pod | None) -> JobKey | None:
        """Cache a pod that was added, changed or deleted (`after` None).

        Return the key of its job, if it has one.
        """
        job = self.pods.update(before, after)
        if job is None:
            return None
        key = JobKey(job.namespace, job.name)
        present = self.job(key)
        if (present is None or present.metadata.uid != job.uid) and not self.pods.of(job):
            self.pods.forget_job(job)
        return key

    def update_node(
        self,
        before: Node | None,
        after: Node | None,
        on_resources: Callable[[], None] = lambda: None,
    ) -> list[JobKey]:
        """Cache a node that was added, changed or deleted (`after` None).

        Return the keys of the jobs that the change concerns, and call `on_resources` if the nodes
        have other resources for jobs than before.
        """
        node = after or before
        assert node is not None
        name = node.metadata.name
        change = self.nodes.update(name, after)
        if change.resources or change.leaving:
            on_resources()
        if not (change.leaving or change.labels or change.conditions):
            return []
        keys = [JobKey(job.namespace, job.name) for job in self.pods.on_node(name)]
        return [key for key in keys if self._depends_on(key, change)]

    def _depends_on(self, key: JobKey, change: NodeChange) -> bool:
        """Return whether the job's decisions depend on the parts of a node that have changed."""
        if change.leaving:
            return True
        job = self.job(key)
        if job is None:
            return False
        if change.labels and job.spec.topology_key:
            return True
        return change.conditions and bool(job.spec.run_policy.replace_on_node_conditions)

    def update_limit_range(self, before: LimitRange | None, after: LimitRange | None) -> None:
        """Cache a LimitRange that was added, changed or deleted (`after` None)."""
        limit_range = after or before
        assert limit_range is not None
        in_namespace = self._limit_ranges[limit_range.metadata.namespace]
        if after is not None:
            in_namespace[after.metadata.uid] = after
        else:
            in_namespace.pop(limit_range.metadata.uid, None)

    def job_keys(self, namespace: str | None = None) -> list[JobKey]:
        """Return the key of every job that exists or is named by a plan or request.

        `namespace`: of this namespace only.
        """
        return list(self._customs if namespace is None else self._keys.get(namespace, ()))

    def job(self, key: JobKey) -> ElasticJob | None:
        """Return the job, or None if it does not exist."""
        # Two jobs of one name mean that the deletion of the earlier one is not reported yet.
        customs = self._customs.get(key, {}).values()
        jobs = [custom for custom in customs if isinstance(custom, ElasticJob)]
        return max(jobs, key=lambda job: int(job.metadata.resource_version), default=None)

    def jobs(self) -> list[ElasticJob]:
        """Return all jobs."""
        return [job for job in map(self.job, self.job_keys()) if job is not None]

    def count_by_phase(self) -> Counter[str]:
        """Return the number of jobs by phase; a job without a status counts as `New`."""
        counts: Counter[str] = Counter()
        for customs in self._customs.values():
            for custom in customs.values():
                if isinstance(custom, ElasticJob):
                    counts[custom.status.phase or "New"] += 1
        return counts

    def observed(self, job: ElasticJob) -> Observed:
        """Return the job and its objects, without those of an earlier job of its name."""
        uid = job.metadata.uid
        identity = identity_of(job)
        infrastructure = self._infrastructure[uid]
        account = infrastructure.objects.get(
            (SERVICE_ACCOUNTS, names.master_service(job.metadata.name))
        )
        limit_ranges = self._limit_ranges.get(job.metadata.namespace, {}).values()
        return dataclasses.replace(
            self.with_queue(job),
            job=with_cluster_rules(job, self.restart_rules),
            last_refusal=self._last_refusals.get(uid, ""),
            status_written_at=self._status_written_at.get(uid, 0.0),
            leaving_nodes=self.nodes.leaving,
            node_labels=self.nodes.labels,
            node_conditions=self.nodes.conditions,
            infrastructure_ensured=infrastructure.ensured_for == manifest_inputs(job),
            account_created="" if account is None else account.created,
            secret_made_anew=infrastructure.secret_made_anew,
            refused_resizes=self.pods.refused_resizes,
            default_limits=default_limits(limit_ranges),
            bounds=bounds(limit_ranges),
            tampered=self.pods.tampered(identity),
            gone=self.pods.gone(identity),
            uncreated=self.pods.uncreated(identity),
            unconfirmed=self.pods.unconfirmed(identity),
            kept=self.pods.kept(identity),
            quota=None if self.quotas is None else self.quotas.of(job),
            share=self.pools.share_of(job),
        )

    def with_queue(self, job: ElasticJob) -> Observed:
        """Return the job with its own pods, plans and requests alone."""
        customs = [
            custom
            for custom in self._customs.get(key_of(job), {}).values()
            if may_be_of_job(custom.metadata, job.metadata.name, job.metadata.uid)
        ]
        return Observed(
            job=job,
            pods=self.pods.of(identity_of(job)),
            plans=tuple(custom for custom in customs if isinstance(custom, ScalePlan)),
            scale_ins=tuple(custom for custom in customs if isinstance(custom, ScaleIn)),
            scale_outs=tuple(custom for custom in customs if isinstance(custom, ScaleOut)),
        )

    def requests(self, key: JobKey) -> Iterator[ScalePlan | ScaleIn | ScaleOut]:
        """Yield the plans and requests that name this job, whether it exists or not."""
        for custom in list(self._customs.get(key, {}).values()):
            if not isinstance(custom, ElasticJob):
                yield custom

    def record_refusal(self, job: ElasticJob, message: str) -> bool:
        """Keep the reason for which the last write was refused, or an empty one.

        Return whether it is another one than before.
        """
        before = self._last_refusals.pop(job.metadata.uid, "")
        if message:
            self._last_refusals[job.metadata.uid] = message
        return message != before

    def record_status_write(self, job: ElasticJob, now: float) -> None:
        """Keep the time at which the job's status was last written, in seconds since 1970."""
        self._status_written_at[job.metadata.uid] = now

    def infrastructure(self, job: ElasticJob) -> InfrastructureRecord:
        """Return the record of the job's Secret, Services and other objects besides pods."""
        return self._infrastructure[job.metadata.uid]

    def _put(self, custom: Custom) -> bool:
        """Cache an object, unless it was deleted, or this or a later version is cached.

        Return whether it was cached by this call.
        """
        key = key_of(custom)
        uid = custom.metadata.uid
        if uid in self._deleted_uids:
            return False
        old = self._customs[key].get(uid)
        version = int(custom.metadata.resource_version)
        if old is not None and int(old.metadata.resource_version) >= version:
            return False
        self._customs[key][uid] = custom
        self._keys[key.namespace][key] = None
        return True

    def _share(self, custom: Custom) -> None:
        """Cache the informer's copy of a version in place of an equal one, so that there is one."""
        cached = self._customs.get(key_of(custom), {})
        old = cached.get(custom.metadata.uid)
        if old is not None and old.metadata.resource_version == custom.metadata.resource_version:
            cached[custom.metadata.uid] = custom


def to_cache(custom: Custom) -> Custom:
    """Return a custom resource with no more than is read of it."""
    return without_unused_templates(custom) if isinstance(custom, ElasticJob) else custom
