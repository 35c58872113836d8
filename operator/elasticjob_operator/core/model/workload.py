"""Defines Kueue's Workload, as far as this operator reads it, and the quota of one job.

Other programs can write Workloads. So only those count that the job controls and that have a name
of this operator, and their contents affect the job only.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.ownership import names_owner

REPLACEMENT_FOR = "kueue.x-k8s.io/workload-slice-replacement-for"
"""Kueue's annotation on a Workload: the one that it replaces, by namespace and name, whose quota
counts for it.
"""
ELASTIC = "kueue.x-k8s.io/elastic-job"
_MAX_NAME_CHARACTERS = 180


class WorkloadCondition(Object, frozen=True):
    """A condition of a Workload.

    Unlike in a job's, the texts have no bounds here, as nothing stores them.
    """

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class PodSet(Object, frozen=True):
    """A number of pods of one template."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: dict[str, Any] = {}


class PodSetAssignment(Object, frozen=True):
    """The ResourceFlavor that a pod set got, by resource, and for how many pods."""

    name: str = "main"
    flavors: dict[str, str] = {}
    count: int | None = None


class Admission(Object, frozen=True):
    """Whose quota a Workload has."""

    cluster_queue: str = ""
    pod_set_assignments: list[PodSetAssignment] = []


class PodSetUpdate(Object, frozen=True):
    """The fields that an admission check adds to the pods of a set."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []


class AdmissionCheck(Object, frozen=True):
    """The state of one admission check."""

    pod_set_updates: list[PodSetUpdate] = []


class ReclaimablePod(Object, frozen=True):
    """The number of pods of a set that no longer need their quota."""

    name: str
    count: int = 0


class WorkloadSpec(Object, frozen=True):
    """The request of a Workload."""

    pod_sets: list[PodSet] = []
    queue_name: str = ""
    active: bool = True


class WorkloadStatus(Object, frozen=True):
    """The decision of Kueue."""

    conditions: list[WorkloadCondition] = []
    admission: Admission | None = None
    admission_checks: list[AdmissionCheck] = []
    reclaimable_pods: list[ReclaimablePod] = []


class Workload(Object, frozen=True):
    """A Workload of Kueue (v1beta2)."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def number(self) -> int:
        """Its number among the Workloads of its job, at the end of its name; -1 for none."""
        digits = self.metadata.name.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 9 else -1

    @property
    def reserved(self) -> bool:
        """Return whether it has quota, also while it is being evicted."""
        return self.holds("QuotaReserved")

    @property
    def evicted(self) -> bool:
        """Return whether its pods have to end."""
        return self.holds("Evicted")

    @property
    def finished(self) -> bool:
        """Return whether it has ended, because its job has or because it was replaced."""
        return self.holds("Finished")

    @property
    def admitted(self) -> bool:
        """Return whether its pods may run."""
        return (
            self.holds("Admitted")
            and self.status.admission is not None
            and not (self.evicted or self.finished)
        )

    def holds(self, kind: str) -> bool:
        """Return whether it has a condition of this type that is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    def condition(self, kind: str) -> WorkloadCondition | None:
        """Return its condition of this type, if it has one."""
        return next((each for each in self.status.conditions if each.type == kind), None)

    @property
    def assignments(self) -> list[PodSetAssignment]:
        """The flavors that its pod sets got."""
        return self.status.admission.pod_set_assignments if self.status.admission else []

    def reclaimed(self) -> dict[str, int]:
        """Return the number of pods of each set that have given their quota back."""
        return {each.name: each.count for each in self.status.reclaimable_pods}

    def counts(self) -> dict[str, int]:
        """Return the number of pods of each set for which it has quota, or else requests it."""
        reclaimed = self.reclaimed()
        requested = {
            each.name: max(each.count - reclaimed.get(each.name, 0), 0)
            for each in self.spec.pod_sets
        }
        return requested | {name: min(requested[name], most) for name, most in self._less().items()}

    def most_pods(self, name: str) -> int | None:
        """Return for how many pods it was admitted; None if for as many as it requests."""
        return self.counts()[name] if name in self._less() else None

    def _less(self) -> dict[str, int]:
        """Return the pod sets that were admitted with fewer pods than requested."""
        requested = {each.name: each.count for each in self.spec.pod_sets}
        return {
            each.name: each.count
            for each in (self.assignments if self.admitted else ())
            if each.count is not None and each.count < requested.get(each.name, 0)
        }


class FlavorSpec(Object, frozen=True):
    """Where the pods of a flavor run."""

    node_labels: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []


class Flavor(Object, frozen=True):
    """A ResourceFlavor of Kueue: a kind of nodes."""

    metadata: ObjectMeta
    spec: FlavorSpec = FlavorSpec()


@dataclass(frozen=True)
class Quota:
    """The quota of a job that Kueue queues.

    Attributes:
        queue: its LocalQueue; empty for a job that has lost its label.
        workloads: its Workloads, by number.
        flavors: the nodes of ResourceFlavors, by name.
    """

    queue: str
    workloads: tuple[Workload, ...] = ()
    flavors: Mapping[str, FlavorSpec] = dataclasses.field(default_factory=dict)

    @property
    def live(self) -> tuple[Workload, ...]:
        """Its Workloads that have not finished and are not being deleted."""
        return tuple(
            each
            for each in self.workloads
            if not each.finished and not each.metadata.deletion_timestamp
        )

    @property
    def current(self) -> Workload | None:
        """The latest one that is admitted: the pods run with its quota."""
        return next((each for each in reversed(self.live) if each.admitted), None)


def workload_name(job: ElasticJob, number: int) -> str:
    """Return the name of a Workload of the job, which depends on the job's UID."""
    digest = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:10]
    return f"{job.metadata.name[:_MAX_NAME_CHARACTERS].rstrip('-.')}-{digest}-{number}"


def is_workload_of(workload: Workload, job: ElasticJob) -> bool:
    """Return whether this operator created it for the job, by namespace, controller and name."""
    metadata = workload.metadata
    return (
        metadata.namespace == job.metadata.namespace
        and metadata.name == workload_name(job, workload.number)
        and any(
            owner.controller
            and names_owner(owner, "ElasticJob", job.metadata.name, job.metadata.uid)
            for owner in metadata.owner_references
        )
    )
