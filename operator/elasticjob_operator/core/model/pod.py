"""Defines a pod, as far as decisions read it."""

from __future__ import annotations

from functools import cached_property

from elasticjob_api import names
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.meta import Object, ObjectMeta
from msgspec import field


class Terminated(Object, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Waiting(Object, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class ContainerState(Object, frozen=True):
    """Running, waiting or ended."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerResources(Object, frozen=True):
    """Requests and limits."""

    requests: dict[str, int | str] = {}
    limits: dict[str, int | str] = {}


class ContainerStatus(Object, frozen=True):
    """A container as the kubelet reports it."""

    name: str = ""
    state: ContainerState = ContainerState()
    resources: ContainerResources | None = None


class Container(Object, frozen=True):
    """A container as it was asked for."""

    name: str = ""
    resources: ContainerResources = ContainerResources()


class PodCondition(Object, frozen=True):
    """A condition of a pod."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class VolumeSource(Object, frozen=True):
    """The object that a volume is mounted from."""

    name: str = ""
    secret_name: str = ""
    claim_name: str = ""
    optional: bool | None = None


class ImageSource(Object, frozen=True):
    """The image that a volume shows."""

    reference: str = ""


class Volume(Object, frozen=True):
    """A volume, by the object that must exist before the kubelet can mount it, or its image."""

    name: str = ""
    image: ImageSource | None = None
    config_map: VolumeSource | None = None
    secret: VolumeSource | None = None
    persistent_volume_claim: VolumeSource | None = None

    @property
    def must_exist(self) -> str:
        """Kind and name of that object; empty if the volume needs none."""
        sources = {
            "ConfigMap": self.config_map,
            "Secret": self.secret,
            "PersistentVolumeClaim": self.persistent_volume_claim,
        }
        for kind, source in sources.items():
            if source is not None and not source.optional:
                return f"{kind} {source.name or source.secret_name or source.claim_name}"
        return ""


class PodSpec(Object, frozen=True):
    """The part of a pod's spec that decisions need."""

    containers: list[Container] = []
    volumes: list[Volume] = []
    node_name: str = ""


class PodStatus(Object, frozen=True):
    """The part of a pod's status that decisions need."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Object, frozen=True, dict=True):
    """A pod of a job; its labels are parsed once, because decisions read them many times."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @cached_property
    def role(self) -> str:
        """Its role in the job; empty when the label is missing."""
        return self.metadata.labels.get(names.LABEL_ROLE, "")

    @cached_property
    def index(self) -> int:
        """Its index in the role; -1 for the master."""
        if self.role == names.ROLE_MASTER:
            return -1
        return _number(self.metadata.labels.get(names.LABEL_INDEX), -1)

    @cached_property
    def incarnation(self) -> int:
        """Its number among the replacement pods of the role; 0 for the first pod of an index."""
        return _number(self.metadata.labels.get(names.LABEL_INCARNATION), 0)

    @property
    def restarts(self) -> int:
        """Restarts of its index that counted against the restart limit when it was created."""
        return _number(self.metadata.annotations.get(names.ANNOTATION_RESTARTS), 0)

    @property
    def uncounted_restarts(self) -> int:
        """Restarts of its index that did not count against the limit when it was created."""
        return _number(self.metadata.annotations.get(names.ANNOTATION_UNCOUNTED), 0)

    @property
    def finished(self) -> bool:
        """Return whether its phase is final: all of its containers have ended and none restarts."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def failed(self) -> bool:
        """Return whether all containers have ended with a failure.

        The phase follows a moment later.
        """
        if self.finished or not self.spec.containers:
            return self.status.phase == "Failed"
        ended = {status.name: status.state.terminated for status in self.status.container_statuses}
        return not self.training_succeeded and all(
            ended.get(each.name) for each in self.spec.containers
        )

    @property
    def terminating(self) -> bool:
        """Return whether it is being deleted; its processes may still run."""
        return self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        """Return whether it has the condition Ready and is not being deleted."""
        return not self.terminating and self.condition("Ready") is not None

    @cached_property
    def container(self) -> Container:
        """The training container, or the master's; one without a name if the pod has none."""
        by_name = {each.name: each for each in self.spec.containers}
        return by_name.get(self.metadata.main_container(list(by_name)), Container())

    @property
    def terminated(self) -> Terminated | None:
        """The end of the training container; None while it runs."""
        for status in self.status.container_statuses:
            if status.name == self.container.name:
                return status.state.terminated
        return None

    @property
    def training_ended(self) -> bool:
        """Return whether the training container has ended.

        So an agent confirms that it has drained.
        """
        return self.finished or self.terminated is not None

    @property
    def training_succeeded(self) -> bool:
        """Return whether the training container ended with exit code 0."""
        if self.terminated is not None:
            return self.terminated.exit_code == 0
        return self.status.phase == "Succeeded"

    def condition(self, kind: str) -> PodCondition | None:
        """Return the condition of this type if it is True."""
        return next(
            (c for c in self.status.conditions if c.type == kind and c.status == "True"), None
        )


def _number(text: str | None, default: int) -> int:
    """Return the number in a label, which users can edit; `default` if it is not a number."""
    if (
        text is None
        or not (text.isascii() and text.isdecimal())
        or len(text) > len(str(MAX_COUNTER))
    ):
        return default
    return min(int(text), MAX_COUNTER)
