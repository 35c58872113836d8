"""The pods of all jobs as last observed.

A pod belongs to the member that its name contains, whatever its labels are. A pod that the watch
reports as deleted may only have lost the label that the watch selects by. So it counts as gone when
the API server has confirmed this (`ConfirmGone`). A pod that exists is kept here until then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from elasticjob_api import names
from elasticjob_api.pod_identity import MemberKey, member_of_name

from elasticjob_operator.core.model.actions import ResizePod
from elasticjob_operator.core.model.identity import (
    JobIdentity,
    controlling_job,
    restored,
    tampering,
)
from elasticjob_operator.core.model.observed import Uncreated
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods


@dataclass
class PodStore:
    """Pods by job and UID.

    Attributes:
        refused_resizes: the last resize that the API server refused, and why, by pod UID. A new
            operator process requests it once more.
    """

    _pods: dict[JobIdentity, Pods] = field(default_factory=dict)
    _cached: dict[str, Pod] = field(default_factory=dict)
    _by_operator: dict[JobIdentity, dict[str, dict[str, Pod]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _job_of: dict[str, JobIdentity] = field(default_factory=dict)
    _tampered: dict[JobIdentity, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _gone: dict[JobIdentity, dict[MemberKey, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _uncreated: dict[JobIdentity, dict[MemberKey, Uncreated]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _unconfirmed: dict[JobIdentity, set[str]] = field(default_factory=lambda: defaultdict(set))
    _kept: dict[JobIdentity, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    refused_resizes: dict[str, tuple[ResizePod, str]] = field(default_factory=dict)

    def update(self, before: Pod | None, after: Pod | None) -> JobIdentity | None:
        """Cache a pod that was added, changed or removed from the watch (`after` None).

        Return its job, if it has one. A pod keeps its job if its owner reference is removed later.
        """
        pod = after or before
        assert pod is not None
        uid = pod.metadata.uid
        job = self._job_of.get(uid) or controlling_job(pod)
        if job is None:
            return None
        member = member_of_name(job.name, pod.name)
        if member is None:
            return None
        if after is None:
            self._remove(job, pod)
            return job
        self._uncache(job, uid)
        self._job_of[uid] = job
        if why := tampering(after, job, member):
            self._tampered[job][uid] = why
            after = restored(after, job, member)
        if self._gone[job].get((member.role, member.index)) == after.name:
            del self._gone[job][member.role, member.index]
        self._cached[uid] = after
        self._pods.setdefault(job, Pods()).add(after)
        self._by_operator[job].setdefault(_lease(after), {})[uid] = after
        return job

    def _uncache(self, job: JobIdentity, uid: str) -> Pod | None:
        """Remove a pod; return it as it was cached, or None."""
        pod = self._cached.pop(uid, None)
        if pod is None:
            return None
        self._pods[job].remove(pod)
        self._tampered[job].pop(uid, None)
        del self._by_operator[job][_lease(pod)][uid]
        if not self._pods[job]:
            for kept in (self._pods, self._tampered, self._by_operator):
                kept.pop(job, None)
        return pod

    def _remove(self, job: JobIdentity, pod: Pod) -> None:
        uid = pod.metadata.uid
        last = self._uncache(job, uid) or pod
        self._job_of.pop(uid, None)
        self.refused_resizes.pop(uid, None)
        self._kept[job].pop(pod.name, None)
        member = member_of_name(job.name, pod.name)
        if last.finished or member is None:
            return
        if self._gone[job].get((member.role, member.index)) != pod.name:
            self._unconfirmed[job].add(pod.name)

    def claim(self, job: JobIdentity, uid: str) -> None:
        """Assign a pod to a job that it no longer names as its owner."""
        self._job_of[uid] = job

    def record_gone(self, job: JobIdentity, name: str) -> None:
        """Record that no pod of this name exists; no other pod of the job ever gets the name."""
        self._unconfirmed[job].discard(name)
        if (member := member_of_name(job.name, name)) is not None:
            self._gone[job][member.role, member.index] = name

    def record_uncreated(self, job: JobIdentity, name: str, why_invalid: str = "") -> None:
        """Record that certainly no pod of this name was created, so that the name is used again."""
        self.begin_to_create(job, name)
        if (member := member_of_name(job.name, name)) is not None:
            self._uncreated[job][member.role, member.index] = Uncreated(name, why_invalid)

    def begin_to_create(self, job: JobIdentity, name: str) -> None:
        """Record that a pod of this name may exist from now on."""
        if (member := member_of_name(job.name, name)) is not None:
            self._uncreated[job].pop((member.role, member.index), None)

    def record_found(self, job: JobIdentity, name: str, now: float, *, is_watched: bool) -> None:
        """Record that a pod of this name exists, and, if no watch reports it, the time."""
        self._unconfirmed[job].discard(name)
        if not is_watched:
            self._kept[job][name] = now

    def forget_job(self, job: JobIdentity) -> None:
        """Remove the records about the pod names of a deleted job."""
        for kept in (self._gone, self._uncreated, self._unconfirmed, self._kept):
            kept.pop(job, None)

    def of(self, job: JobIdentity) -> Pods:
        """Return the pods of a job, until the next change."""
        return self._pods.get(job) or Pods()

    def tampered(self, job: JobIdentity) -> Mapping[str, str]:
        """Return by UID of a job's pod, which edited labels or owners contradict the pod's name."""
        return self._tampered.get(job, {})

    def by_operator(self, job: JobIdentity) -> Mapping[str, Mapping[str, Pod]]:
        """Return by Lease of an operator the job's pods that it has created, by UID."""
        return self._by_operator.get(job, {})

    def gone(self, job: JobIdentity) -> Mapping[MemberKey, str]:
        """Return by member the name of its latest pod that is certainly deleted."""
        return self._gone.get(job, {})

    def uncreated(self, job: JobIdentity) -> Mapping[MemberKey, Uncreated]:
        """Return by member the name of its pod that the API server has refused to create."""
        return self._uncreated.get(job, {})

    def unconfirmed(self, job: JobIdentity) -> frozenset[str]:
        """Return the names of pods that ran when the watch reported them as deleted."""
        return frozenset(self._unconfirmed.get(job, ()))

    def kept(self, job: JobIdentity) -> Mapping[str, float]:
        """Return the names of pods that exist but no watch reports, and when they were read."""
        return self._kept.get(job, {})

    def on_node(self, node: str) -> Iterator[JobIdentity]:
        """Yield the jobs of the pods on a node."""
        for job, pods in self._pods.items():
            if node in pods.by_node:
                yield job


def _lease(pod: Pod) -> str:
    return pod.metadata.annotations.get(names.ANNOTATION_OPERATOR, "")
