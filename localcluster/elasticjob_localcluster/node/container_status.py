"""Computes the status of a pod's containers, with the kubelet's restart rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time

from elasticjob_localcluster.node.pod_model import Pod

_FIRST_BACKOFF_SECONDS = 10.0
_LONGEST_BACKOFF_SECONDS = 300.0
_RESET_BACKOFF_SECONDS = 600.0


class Waiting(msgspec.Struct, frozen=True):
    """Not started yet, or not restarted yet."""

    reason: str = "ContainerCreating"
    message: str = ""


class Running(msgspec.Struct, frozen=True, rename="camel"):
    """The process is running."""

    started_at: str


class Terminated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The process has ended, or could not be started."""

    exit_code: int
    reason: str = ""
    message: str = ""
    signal: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class _State(msgspec.Struct, omit_defaults=True):
    """A state in the form of the API: one of these."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


@dataclass(frozen=True)
class ContainerStatus:
    """One container of a pod: its present state, its last termination, and its resources."""

    name: str
    image: str = ""
    state: Waiting | Running | Terminated = field(default_factory=Waiting)
    last_terminated: Terminated | None = None
    restart_count: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""
    resources: Json = field(default_factory=dict)
    """The enforced resources, which differ from the spec during a resize."""

    @property
    def terminated(self) -> Terminated | None:
        """The present state, if it is Terminated."""
        return self.state if isinstance(self.state, Terminated) else None


@dataclass
class ContainerStatuses:
    """The statuses of a pod's containers, in the order of the spec."""

    init: list[ContainerStatus]
    main: list[ContainerStatus]

    def __iter__(self) -> Iterator[ContainerStatus]:
        return iter([*self.init, *self.main])

    def __getitem__(self, name: str) -> ContainerStatus:
        return next(status for status in self if status.name == name)

    def get(self, name: str) -> ContainerStatus | None:
        """Return the status of a container; None when the pod has none of this name."""
        return next((status for status in self if status.name == name), None)

    def put(self, status: ContainerStatus) -> None:
        """Replace the status of a container."""
        for statuses in (self.init, self.main):
            statuses[:] = [status if old.name == status.name else old for old in statuses]


def should_restart(terminated: Terminated, policy: str) -> bool:
    """Return whether a container that ended this way is restarted."""
    return policy == "Always" or (policy == "OnFailure" and terminated.exit_code != 0)


def init_restart_policy(policy: str) -> str:
    """Return the restart policy of init containers: they succeed once, also with `Always`."""
    return "Never" if policy == "Never" else "OnFailure"


def initialized(init: Iterable[ContainerStatus]) -> bool:
    """Return whether every init container has succeeded."""
    return all(
        status.terminated is not None and status.terminated.exit_code == 0 for status in init
    )


def container_status_json(status: ContainerStatus) -> Json:
    """Return the status in the form of the API."""
    return {
        "name": status.name,
        "image": status.image,
        "imageID": "",
        "containerID": status.container_id,
        "state": _state(status.state),
        "lastState": _state(status.last_terminated) if status.last_terminated else {},
        "restartCount": status.restart_count,
        "started": status.started,
        "ready": status.ready,
        "resources": status.resources,
        **(
            {"allocatedResources": requests}
            if (requests := status.resources.get("requests"))
            else {}
        ),
    }


def _state(state: Waiting | Running | Terminated) -> Json:
    return {type(state).__name__.lower(): msgspec.to_builtins(state)}


def last_known_status(pod: Pod, container: Json, *, now: float) -> ContainerStatus:
    """Return a container's status as the API has it, for a node that has just started.

    A container that was running ended with the node's earlier process, and its exit code is not
    known.
    """
    stored = [
        *(pod.status.get("initContainerStatuses") or ()),
        *(pod.status.get("containerStatuses") or ()),
    ]
    known = next((status for status in stored if status["name"] == container["name"]), None)
    status = ContainerStatus(
        name=container["name"],
        image=container.get("image", ""),
        resources=container.get("resources") or {},
    )
    if known is None:
        return replace(
            status, state=Waiting("PodInitializing" if pod.init_containers else "ContainerCreating")
        )
    state = msgspec.convert(known.get("state") or {}, _State)
    status = replace(
        status,
        state=state.terminated or state.waiting or Waiting(),
        last_terminated=msgspec.convert(known.get("lastState") or {}, _State).terminated,
        restart_count=known.get("restartCount", 0),
        container_id=known.get("containerID", ""),
        resources=known.get("resources") or status.resources,
    )
    if state.running is None:
        return status
    lost = Terminated(
        exit_code=137,
        reason="ContainerStatusUnknown",
        message="the process node was away when the container ended",
        started_at=state.running.started_at,
        finished_at=format_time(now),
        container_id=status.container_id,
    )
    return replace(status, state=lost)


@dataclass
class CrashLoopBackoff:
    """The kubelet's back-off: none the first time, then 10 s, doubling to 300 s.

    It is reset after a run of ten minutes.
    """

    delay: float = 0.0
    until: float = 0.0
    _next: float = 0.0

    def record_exit(self, now: float, *, ran_for: float) -> None:
        """Record that the container has ended at `now`, after running for `ran_for` seconds."""
        if ran_for > _RESET_BACKOFF_SECONDS:
            self._next = 0.0
        self.delay = self._next
        self.until = now + self.delay
        self._next = min(self._next * 2, _LONGEST_BACKOFF_SECONDS) or _FIRST_BACKOFF_SECONDS
