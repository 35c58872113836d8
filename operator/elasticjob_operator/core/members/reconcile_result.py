"""Collects the result of comparing the desired pods of members or master with the existing ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, ReplicaStatus
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import CreatePod, DeletePod, EmitEvent, shortest_wait
from elasticjob_operator.core.model.pod import Pod

_MAX_NOTES = 10


@dataclass(frozen=True)
class JobFailure:
    """Why a job has failed.

    Attributes:
        message: the reason, as users read it.
        kind: whether the failure would come again after a retry. Permanent: by a rule or the
            program. Deadline: the time of the job is over.
    """

    message: str
    kind: Literal["Permanent", "Deadline", "Unknown"] = "Unknown"


@dataclass
class ReconcileResult:
    """The actions on pods of members or master, and the new status.

    Attributes:
        status: the job's status with the counters that must be stored before the pods are created.
        creates: pods to create.
        created_bytes: the size of their templates as JSON.
        deletes: pods to delete.
        confirm: names of pods to look for before others can be created.
        events: events to emit.
        failure: why the job has failed; None when it has not.
        requeue_after: seconds after which to decide again without a change; None for never.
    """

    status: ElasticJobStatus
    creates: list[CreatePod] = field(default_factory=list)
    created_bytes: int = 0
    deletes: list[DeletePod] = field(default_factory=list)
    confirm: list[str] = field(default_factory=list)
    events: list[EmitEvent] = field(default_factory=list)
    failure: JobFailure | None = None
    requeue_after: float | None = None

    def set_replica_status(self, role: str, replica: ReplicaStatus) -> None:
        """Replace a role's status if it has changed."""
        if replica != self.status.replica_statuses[role]:
            self.status = replace(
                self.status, replica_statuses={**self.status.replica_statuses, role: replica}
            )

    def delete(self, pod: Pod) -> None:
        """Delete a pod, with its own grace period."""
        self.deletes.append(DeletePod(pod.name, pod.metadata.uid))

    def force_delete_if_stuck(self, pod: Pod, seconds: int | None, now: float) -> None:
        """Delete a pod without grace if its grace period ended `seconds` ago; None for never."""
        metadata = pod.metadata
        if (
            seconds is None
            or metadata.deletion_timestamp is None
            or metadata.deletion_grace_period_seconds == 0
        ):
            # With a grace period of 0 it is force-deleted already, and a finalizer keeps it.
            return
        wait = parse_time(metadata.deletion_timestamp) + seconds - now
        if wait > 0:
            self.requeue(wait)
        else:
            self.deletes.append(DeletePod(pod.name, metadata.uid, grace_seconds=0))

    def terminate(self, job: ElasticJob, pod: Pod, now: float) -> None:
        """Delete a pod that is not replaced; by force if it is stuck and the job allows that."""
        if not pod.terminating:
            self.delete(pod)
        elif pod.role == names.ROLE_MASTER:
            self.force_delete_if_stuck(pod, job.spec.master.pod_force_delete_seconds, now)
        elif pod.role in job.spec.replica_specs:
            self.force_delete_if_stuck(
                pod, job.spec.replica_specs[pod.role].pod_force_delete_seconds, now
            )

    def requeue(self, seconds: float) -> None:
        """Decide again after this number of seconds at the latest."""
        self.requeue_after = shortest_wait(self.requeue_after, seconds)

    def record_event(self, reason: str, notes: list[str], *, warning: bool = False) -> None:
        """Record one event with the first notes and the number of the others.

        None without notes.
        """
        if notes:
            rest = f"; and {len(notes) - _MAX_NOTES} more" if len(notes) > _MAX_NOTES else ""
            self.events.append(
                EmitEvent(reason, "; ".join(notes[:_MAX_NOTES]) + rest, warning=warning)
            )
