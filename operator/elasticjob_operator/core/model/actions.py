"""Everything a decision can ask for. An action says what and on which object, with the version it was decided on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Mapping[str, Any]


@dataclass(frozen=True)
class PatchJobStatus:
    """Merge a difference into the job's status, only if nobody has changed the job since."""

    patch: Json


@dataclass(frozen=True)
class PatchStatus:
    """Merge a difference into the status of a ScalePlan, ScaleIn or ScaleOut, under the same condition."""

    kind: Literal["ScalePlan", "ScaleIn", "ScaleOut"]
    name: str
    uid: str
    resource_version: str
    patch: Json


@dataclass(frozen=True)
class Adopt:
    """Make the job an owner of a user's object, so that it goes when the job goes."""

    kind: Literal["ScalePlan", "ScaleIn", "ScaleOut"]
    name: str
    uid: str
    resource_version: str
    owner_references: tuple[Json, ...]


@dataclass(frozen=True)
class CreatePlan:
    """Create a ScalePlan; its name is derived, so that it is created once."""

    body: Json


@dataclass(frozen=True)
class DeletePlan:
    """Delete a ScalePlan: a finished one that is older than the history kept, or one that nobody wants any more."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeleteScaler:
    """Delete a ScaleIn or ScaleOut that ended long enough ago."""

    kind: Literal["ScaleIn", "ScaleOut"]
    name: str
    uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete a job that finished long enough ago."""


@dataclass(frozen=True)
class WriteBackReplicas:
    """Set `spec.replicaSpecs.<role>.replicas`, only if nobody has changed the job since."""

    role: str
    replicas: int


@dataclass(frozen=True)
class EnsureInfrastructure:
    """Make or correct Secret, Services, account, Role, state ConfigMap and PodGroup.

    `part` is what no pod can be created or start without (Secret, account, PodGroup), the rest of them, or all.
    """

    part: Literal["First", "Rest", "All"] = "All"


@dataclass(frozen=True)
class CreatePod:
    """Create a pod."""

    body: Json

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True)
class DeletePod:
    """Delete this very pod, not another of the same name. `grace_seconds` unset: the pod's own."""

    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True)
class ResizePod:
    """Change the resources of the container that trains, in place."""

    name: str
    uid: str
    resources: Json


@dataclass(frozen=True)
class EmitEvent:
    """Tell people what happened; never repeated, never waited for."""

    reason: str
    note: str
    action: str = "Reconcile"
    warning: bool = False


Action = (
    PatchJobStatus
    | PatchStatus
    | Adopt
    | CreatePlan
    | DeletePlan
    | DeleteScaler
    | DeleteJob
    | WriteBackReplicas
    | EnsureInfrastructure
    | CreatePod
    | DeletePod
    | ResizePod
    | EmitEvent
)


@dataclass(frozen=True)
class Decision:
    """What to do now, in this order, and when to look again although nothing has changed.

    Pod actions that stand next to each other may be carried out at the same time. If an action fails, those after it
    are not carried out; the next decision starts from what is then there. Only a refusal of pods hinders nothing that
    comes after it, so what needs a pod must not.
    """

    actions: tuple[Action, ...] = field(default=())
    requeue_after: float | None = None


def shortest_wait(*seconds: float | None) -> float | None:
    """Return the shortest of the waits that are set."""
    return min((s for s in seconds if s is not None), default=None)
