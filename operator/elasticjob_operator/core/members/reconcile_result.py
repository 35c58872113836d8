"""What members and master need, put together piece by piece within one decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, ReplicaStatus
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import CreatePod, DeletePod, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Pod

_TOLD = 10


@dataclass
class ReconcileResult:
    """What the members or the master need.

    Attributes:
        status: the job's status with the counters that must be stored before the pods are created.
        creates: pods to create.
        deletes: pods to delete.
        events: what to tell people.
        failure: why the job has failed; empty when it has not.
        requeue_after: seconds until something is due by itself.
    """

    status: ElasticJobStatus
    creates: list[CreatePod] = field(default_factory=list)
    deletes: list[DeletePod] = field(default_factory=list)
    events: list[EmitEvent] = field(default_factory=list)
    failure: str = ""
    requeue_after: float | None = None

    def set_replica_status(self, role: str, replica: ReplicaStatus) -> None:
        """Keep a role's status if it has changed."""
        if replica != self.status.replica_statuses[role]:
            self.status = replace(self.status, replica_statuses={**self.status.replica_statuses, role: replica})

    def delete(self, pod: Pod) -> None:
        """Delete a pod, with the time it has to end."""
        self.deletes.append(DeletePod(pod.name, pod.metadata.uid))

    def force_delete(self, pod: Pod, seconds: int | None, now: float) -> None:
        """Remove a pod that should have ended so many seconds ago, as one on a lost node never does; None: never."""
        metadata = pod.metadata
        if seconds is None or metadata.deletion_timestamp is None or metadata.deletion_grace_period_seconds == 0:
            return  # a grace period of 0: this has been done, and what still holds the pod is a finalizer
        wait = parse_time(metadata.deletion_timestamp) + seconds - now
        if wait > 0:
            self.requeue(wait)
        else:
            self.deletes.append(DeletePod(pod.name, metadata.uid, grace_seconds=0))

    def terminate(self, job: ElasticJob, pod: Pod, now: float) -> None:
        """Delete a pod of a job that shall have it no more, in the end by force where the job says so."""
        if not pod.terminating:
            self.delete(pod)
        elif pod.role == names.ROLE_MASTER:
            self.force_delete(pod, job.spec.master.pod_force_delete_seconds, now)
        elif pod.role in job.spec.replica_specs:
            self.force_delete(pod, job.spec.replica_specs[pod.role].pod_force_delete_seconds, now)

    def requeue(self, seconds: float) -> None:
        """Decide again after so many seconds although nothing has changed."""
        self.requeue_after = shortest_wait(self.requeue_after, seconds)

    def record_event(self, reason: str, notes: list[str], *, warning: bool = False) -> None:
        """Tell people of several things of one kind in one event."""
        if notes:
            rest = f"; and {len(notes) - _TOLD} more" if len(notes) > _TOLD else ""
            self.events.append(EmitEvent(reason, "; ".join(notes[:_TOLD]) + rest, warning=warning))
