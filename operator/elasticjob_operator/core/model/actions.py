"""Defines the actions of a decision; each names its object and the version or UID it relies on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticjob_api import names
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.pod_identity import MemberKey

ScalingKind = Literal["ScalePlan", "ScaleIn", "ScaleOut"]


@dataclass(frozen=True)
class PatchJobStatus:
    """Merge-patch the job's status, with the observed resourceVersion as a precondition."""

    patch: Mapping[str, Any]


@dataclass(frozen=True)
class PatchStatus:
    """Merge-patch the status of a plan or request, with its resourceVersion as a precondition."""

    kind: ScalingKind
    name: str
    uid: str
    resource_version: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class Adopt:
    """Make the job an owner of a user's plan or request, so that it is deleted with the job."""

    kind: ScalingKind
    name: str
    uid: str
    resource_version: str
    owner_references: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class CreatePlan:
    """Create a ScalePlan; its name derives from its cause, so a repeated creation has no effect."""

    body: Mapping[str, Any]


@dataclass(frozen=True)
class DeleteScaling:
    """Delete a plan beyond the history limit or without its request, or an expired request."""

    kind: ScalingKind
    name: str
    uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete a job whose `ttlSecondsAfterFinished` has passed."""


@dataclass(frozen=True)
class WriteBackReplicas:
    """Set `spec.replicaSpecs.<role>.replicas`, with the job's resourceVersion as a precondition."""

    role: str
    replicas: int


Part = Literal["First", "Members", "Rest", "All"]


@dataclass(frozen=True)
class EnsureInfrastructure:
    """Make or correct Secret, Services, account, Role, state ConfigMap and PodGroup.

    For a new job in three parts, so that its pods wait for no more than they need: `First` before
    any pod (Secret, account, PodGroup, NetworkPolicy), `Members` before those of members (the
    master's Service), and the `Rest`.
    """

    part: Part = "All"


@dataclass(frozen=True)
class CreatePod:
    """Create a pod, and before it the volume claims that do not exist yet."""

    body: Mapping[str, Any]
    claims: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def role(self) -> str:
        """The member's role, or master."""
        return str(self.body["metadata"]["labels"][names.LABEL_ROLE])

    @property
    def member(self) -> MemberKey:
        """Role and index of a member's pod; the master's index is -1."""
        return self.role, int(self.body["metadata"]["labels"].get(names.LABEL_INDEX, -1))


@dataclass(frozen=True)
class DeletePod:
    """Delete the pod with this UID, not another of the same name.

    If `grace_seconds` is None, the pod has its own grace period.
    """

    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True)
class ConfirmGone:
    """Read the pods with these names, which no watch reports; keep those of this job that exist.

    Attributes:
        names: the names of the pods.
        at: when this was decided, in seconds since the epoch.
    """

    names: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class ResizePod:
    """Change the resources of the training container in place.

    Attributes:
        at: when this was decided, in seconds since the epoch; a repetition is the same request.
    """

    name: str
    uid: str
    resources: Mapping[str, Any]
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class CreateWorkload:
    """Create a Workload of Kueue; its name contains its number, so a repetition has no effect."""

    body: Mapping[str, Any]


@dataclass(frozen=True)
class PatchWorkload:
    """Merge-patch the status of a Workload, with its resourceVersion as a precondition."""

    name: str
    uid: str
    resource_version: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class DeleteWorkload:
    """Delete the Workload with this UID, which frees its quota."""

    name: str
    uid: str


@dataclass(frozen=True)
class EmitEvent:
    """Emit a Kubernetes event about the job; it is sent once, without a retry.

    Attributes:
        reason: the kind of event, in one word.
        note: the text for people.
        action: the operation during which it happened.
        warning: whether its type is Warning.
        plan: a ScalePlan that gets the same event.
    """

    reason: str
    note: str
    action: str = "Reconcile"
    warning: bool = False
    plan: ObjectMeta | None = None


Action = (
    PatchJobStatus
    | PatchStatus
    | Adopt
    | CreatePlan
    | DeleteScaling
    | DeleteJob
    | WriteBackReplicas
    | EnsureInfrastructure
    | CreatePod
    | DeletePod
    | ConfirmGone
    | ResizePod
    | CreateWorkload
    | PatchWorkload
    | DeleteWorkload
    | EmitEvent
)


@dataclass(frozen=True)
class Decision:
    """The actions to execute now, in this order, and the seconds until the next decision.

    Adjacent pod actions may be executed concurrently. If an action fails, the ones after it are
    skipped, and the next decision starts from the state that is then observed. The one exception:
    when the API server refuses a pod, the actions after it are still executed, so none of them may
    depend on that pod.
    """

    actions: tuple[Action, ...] = field(default=())
    requeue_after: float | None = None


def shortest_wait(*seconds: float | None) -> float | None:
    """Return the shortest of the waits that are set."""
    return min((s for s in seconds if s is not None), default=None)
