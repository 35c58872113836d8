"""Defines Kueue's queues and, of any Workload, what its quota needs, as far as a pool reads them.

Amounts are Kueue's own account of them: users' pod templates are not read.
"""

from __future__ import annotations

from decimal import Decimal

from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.quantity import parse_quantity


class ResourceQuota(Object, frozen=True):
    """How much of a resource a queue has."""

    name: str = ""
    nominal_quota: int | str = 0


class FlavorQuotas(Object, frozen=True):
    """What a queue has on one kind of nodes."""

    resources: list[ResourceQuota] = []


class ResourceGroup(Object, frozen=True):
    """Resources that come from the same kinds of nodes."""

    flavors: list[FlavorQuotas] = []


class QueueCondition(Object, frozen=True):
    """A condition of a queue or a Workload; nothing stores its texts."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ClusterQueueSpec(Object, frozen=True):
    """The quota of a queue."""

    resource_groups: list[ResourceGroup] = []
    cohort_name: str = ""


class ClusterQueueStatus(Object, frozen=True):
    """Whether a queue admits Workloads."""

    conditions: list[QueueCondition] = []


class ClusterQueue(Object, frozen=True):
    """A ClusterQueue of Kueue (v1beta2)."""

    metadata: ObjectMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()

    @property
    def inactive(self) -> str:
        """Why it admits nothing now; empty if it does."""
        active = next((each for each in self.status.conditions if each.type == "Active"), None)
        if active is None:
            return "it has no condition Active yet"
        return "" if active.status == "True" else active.message or active.reason

    @property
    def has_one_flavor(self) -> bool:
        """Whether each resource comes from one kind of nodes only."""
        return all(len(group.flavors) == 1 for group in self.spec.resource_groups)

    @property
    def nominal(self) -> dict[str, Decimal]:
        """What it has of each resource."""
        return {
            each.name: parse_quantity(each.nominal_quota)
            for group in self.spec.resource_groups
            for flavor in group.flavors
            for each in flavor.resources
        }


class LocalQueueSpec(Object, frozen=True):
    """Where a queue of a namespace leads to."""

    cluster_queue: str = ""
    stop_policy: str | None = None


class LocalQueue(Object, frozen=True):
    """A LocalQueue of Kueue (v1beta2)."""

    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()

    @property
    def is_stopped(self) -> bool:
        """Whether its Workloads wait for an administrator."""
        return self.spec.stop_policy not in (None, "None")


class CountedPods(Object, frozen=True):
    """The number of pods of a set, and the least with which it may be admitted."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None


class PriorityClassRef(Object, frozen=True):
    """The class that has given a Workload its priority."""

    name: str = ""


class QueuedSpec(Object, frozen=True):
    """What a Workload asks for."""

    pod_sets: list[CountedPods] = []
    queue_name: str = ""
    priority: int | None = None
    priority_class_ref: PriorityClassRef | None = None
    active: bool = True


class SetUsage(Object, frozen=True):
    """What the pods of a set take together, and how many they are; by Kueue."""

    name: str = "main"
    count: int | None = None
    resource_usage: dict[str, int | str] = {}


class SetRequest(Object, frozen=True):
    """What the pods of a set that waits need together, by Kueue."""

    name: str = "main"
    resources: dict[str, int | str] = {}


class QuotaGiven(Object, frozen=True):
    """Whose quota a Workload has, and how much."""

    cluster_queue: str = ""
    pod_set_assignments: list[SetUsage] = []


class ReclaimedPods(Object, frozen=True):
    """The number of pods of a set that have given their quota back."""

    name: str = "main"
    count: int = 0


class QueuedStatus(Object, frozen=True):
    """What Kueue has decided about a Workload."""

    conditions: list[QueueCondition] = []
    admission: QuotaGiven | None = None
    reclaimable_pods: list[ReclaimedPods] = []
    resource_requests: list[SetRequest] = []


class QueuedWorkload(Object, frozen=True):
    """Any Workload of Kueue (v1beta2), without its pod templates."""

    metadata: ObjectMeta
    spec: QueuedSpec = QueuedSpec()
    status: QueuedStatus = QueuedStatus()

    @property
    def reserved(self) -> QuotaGiven | None:
        """The quota that it holds; None if it holds none."""
        return self.status.admission if self._holds("QuotaReserved") else None

    @property
    def finished(self) -> bool:
        """Whether it needs no quota any more."""
        return self._holds("Finished")

    @property
    def lacks_quota(self) -> bool:
        """Whether Kueue says that unused quota is all that it lacks, and preempts nobody for it."""
        found = self._condition("QuotaReserved")
        if found is None or found.status == "True" or not self.spec.active:
            return False
        # The reason says it only with a feature gate that is off by default.
        said = found.reason == "WaitingForQuota" or "insufficient unused quota" in found.message
        return said and " the preemption of" not in found.message

    @property
    def priority_class(self) -> str:
        """The name of the class that has given it its priority; empty without one."""
        reference = self.spec.priority_class_ref
        return reference.name if reference else ""

    @property
    def controllers(self) -> list[str]:
        """The UIDs of what it belongs to."""
        return [owner.uid for owner in self.metadata.owner_references if owner.controller]

    def amounts_for_one(self) -> dict[str, tuple[int, dict[str, Decimal]]]:
        """Return the number of pods of each set, and what one takes or, without quota, needs."""
        reclaimed = {each.name: each.count for each in self.status.reclaimable_pods}
        left = {
            each.name: max(each.count - reclaimed.get(each.name, 0), 0)
            for each in self.spec.pod_sets
        }
        if (given := self.reserved) is not None:
            counted = {each.name: each.count for each in self.spec.pod_sets}
            found = [
                (each.name, each.count or counted.get(each.name, 0), each.resource_usage)
                for each in given.pod_set_assignments
            ]
        else:
            found = [
                (each.name, left.get(each.name, 0), each.resources)
                for each in self.status.resource_requests
            ]
        return {
            name: (
                min(count, left.get(name, 0)),
                {key: parse_quantity(total) / count for key, total in totals.items()},
            )
            for name, count, totals in found
            if count > 0
        }

    def amounts(self) -> dict[str, Decimal]:
        """Return what all its pods take or need together."""
        total: dict[str, Decimal] = {}
        for count, amounts in self.amounts_for_one().values():
            for name, amount in amounts.items():
                total[name] = total.get(name, Decimal(0)) + amount * count
        return total

    def _holds(self, kind: str) -> bool:
        found = self._condition(kind)
        return found is not None and found.status == "True"

    def _condition(self, kind: str) -> QueueCondition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)
