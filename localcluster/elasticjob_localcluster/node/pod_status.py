"""What a pod's status says, computed from what is known about its containers. Pure.

The rules are the kubelet's: phase from the containers' states and the restart policy, four conditions whose times
move only when they change, and for each container its present and its previous state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from elasticjob_api.times import format_time

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.pod_model import Json, Pod

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class Waiting:
    """Not running yet, or not again yet."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True)
class Running:
    """A process lives."""

    started_at: str


@dataclass(frozen=True)
class Terminated:
    """The process has ended, or could not be started."""

    exit_code: int
    reason: str
    message: str = ""
    signal: int = 0
    started_at: str = ""
    finished_at: str = ""
    container_id: str = ""


@dataclass(frozen=True)
class Record:
    """All that is known about one container of a pod."""

    name: str
    image: str = ""
    state: Waiting | Running | Terminated = Waiting()
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""
    resources: Json = field(default_factory=dict)
    """As enforced now; differs from the spec while a resize is under way."""

    @property
    def ended(self) -> Terminated | None:
        """How the container ended, if it is not running."""
        return self.state if isinstance(self.state, Terminated) else None


@dataclass(frozen=True)
class Verdict:
    """Why a pod failed as a whole, whatever its containers did."""

    reason: str
    message: str


def restarts(record: Terminated, policy: str) -> bool:
    """Say whether a container that ended this way is started again."""
    return policy == "Always" or (policy == "OnFailure" and record.exit_code != 0)


def init_policy(policy: str) -> str:
    """Return the restart policy of init containers: they must succeed once, so `Always` means `OnFailure`."""
    return "Never" if policy == "Never" else "OnFailure"


def initialized(init: Iterable[Record]) -> bool:
    """Say whether every init container has succeeded."""
    return all(record.ended is not None and record.ended.exit_code == 0 for record in init)


def phase(policy: str, init: list[Record], main: list[Record]) -> Phase:
    """Return where in its life a pod is."""
    if any(end.exit_code and not restarts(end, init_policy(policy)) for end in _ends(init)):
        return "Failed"
    if not initialized(init):
        return "Pending"
    ends = _ends(main)
    if len(ends) == len(main) and not any(restarts(end, policy) for end in ends):
        return "Failed" if any(end.exit_code for end in ends) else "Succeeded"
    if any(isinstance(record.state, Waiting) and record.last is None for record in main):
        return "Pending"
    return "Running"


def _ends(records: list[Record]) -> list[Terminated]:
    return [record.ended for record in records if record.ended is not None]


def pod_status(
    pod: Pod,
    init: list[Record],
    main: list[Record],
    *,
    now: float,
    address: str,
    started_at: str,
    known: Mapping[str, Json] | None = None,
    verdict: Verdict | None = None,
    resize: Mapping[str, tuple[str, str]] | None = None,
) -> Json:
    """Return the whole status.

    Args:
        pod: as last seen; its conditions' times are kept where nothing changed.
        init: the init containers, in order.
        main: the containers, in order.
        now: seconds since the epoch.
        address: the pod's address; empty when it has none.
        started_at: when the node first saw the pod.
        known: this node's own conditions as last computed, ahead of those of `pod`.
        verdict: set when the pod failed as a whole.
        resize: conditions of a resize under way: type to (reason, message).
    """
    at = "Failed" if verdict else phase(pod.restart_policy, init, main)
    answer: Json = {
        "phase": at,
        "observedGeneration": pod.metadata.generation or None,
        "reason": verdict.reason if verdict else None,
        "message": verdict.message if verdict else None,
        "startTime": started_at,
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "conditions": _conditions(
            pod, init, main, at, now=now, networked=bool(address), known=known or {}, resize=resize or {}
        ),
        "initContainerStatuses": [_container_status(record) for record in init],
        "containerStatuses": [_container_status(record) for record in main],
    }
    if address:
        answer |= {"podIP": address, "podIPs": [{"ip": address}]}
    return answer


def _conditions(
    pod: Pod,
    init: list[Record],
    main: list[Record],
    at: Phase,
    *,
    now: float,
    networked: bool,
    known: Mapping[str, Json],
    resize: Mapping[str, tuple[str, str]],
) -> list[Json]:
    over = at in ("Succeeded", "Failed")
    over_reason = "PodCompleted" if at == "Succeeded" else "PodFailed"
    incomplete = [record.name for record in init if not initialized([record])]
    unready = [record.name for record in main if not record.ready]
    gates = [gate["conditionType"] for gate in pod.spec.get("readinessGates") or ()]
    before = {condition["type"]: condition for condition in pod.status.get("conditions") or ()}
    before |= known
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]

    found: list[tuple[str, bool, str, str]] = [("PodReadyToStartContainers", networked and not over, "", "")]
    if at == "Succeeded" or not incomplete:
        found.append(("Initialized", True, "PodCompleted" if at == "Succeeded" else "", ""))
    else:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        found.append(("Initialized", False, "ContainersNotInitialized", message))
    message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    containers = ("", "") if not unready and not over else ("ContainersNotReady", message)
    if over:
        containers = (over_reason, "")
    all_ready = not unready and not over
    found.append(("ContainersReady", all_ready, *containers))
    if all_ready and closed:
        found.append(("Ready", False, "ReadinessGatesNotReady", f"conditions not true: [{' '.join(closed)}]"))
    else:
        found.append(("Ready", all_ready, *containers))
    found += ((kind, True, reason, message) for kind, (reason, message) in resize.items())
    answer = [_condition(before.get(kind), kind, *rest, pod=pod, now=now) for kind, *rest in found]  # type: ignore[arg-type]
    gone = [kind for kind in ("PodResizePending", "PodResizeInProgress") if kind in before and kind not in resize]
    return answer + [{"$patch": "delete", "type": kind} for kind in gone]


def _condition(before: Json | None, kind: str, holds: bool, reason: str, message: str, *, pod: Pod, now: float) -> Json:
    value = str(holds)
    same = before is not None and before.get("status") == value
    return {
        "type": kind,
        "status": value,
        "reason": reason or None,
        "message": message or None,
        "lastProbeTime": None,
        "lastTransitionTime": before["lastTransitionTime"] if before and same else format_time(now),
        "observedGeneration": pod.metadata.generation or None,
    }


def _container_status(record: Record) -> Json:
    return {
        "name": record.name,
        "image": record.image,
        "imageID": "",
        "containerID": record.container_id,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last else {},
        "restartCount": record.restarts,
        "started": record.started,
        "ready": record.ready,
        "resources": record.resources,
        **({"allocatedResources": requests} if (requests := record.resources.get("requests")) else {}),
    }


def _state(state: Waiting | Running | Terminated) -> Json:
    if isinstance(state, Running):
        return {"running": {"startedAt": state.started_at}}
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason} | ({"message": state.message} if state.message else {})}
    answer: Json = {"exitCode": state.exit_code, "reason": state.reason, "containerID": state.container_id}
    answer |= {"startedAt": state.started_at or None, "finishedAt": state.finished_at or None}
    if state.signal:
        answer["signal"] = state.signal
    if state.message:
        answer["message"] = state.message
    return {"terminated": answer}


def remembered(pod: Pod, container: Json, *, now: float) -> Record:
    """Return what the API remembers about a container, for a node that has just started.

    Whatever was running has ended with the node's earlier life, and nobody saw how.
    """
    everyone = [*(pod.status.get("initContainerStatuses") or ()), *(pod.status.get("containerStatuses") or ())]
    status = next((status for status in everyone if status["name"] == container["name"]), None)
    record = Record(
        name=container["name"], image=container.get("image", ""), resources=container.get("resources") or {}
    )
    if status is None:
        return replace(record, state=Waiting("PodInitializing" if pod.init_containers else "ContainerCreating"))
    record = replace(
        record,
        last=_terminated(status.get("lastState")),
        restarts=status.get("restartCount", 0),
        container_id=status.get("containerID", ""),
        resources=status.get("resources") or record.resources,
    )
    state = status.get("state") or {}
    if ended := _terminated(state):
        return replace(record, state=ended)
    if "running" in state:
        lost = Terminated(
            exit_code=137,
            reason="ContainerStatusUnknown",
            message="the process node was away when the container ended",
            started_at=state["running"].get("startedAt", format_time(now)),
            finished_at=format_time(now),
            container_id=record.container_id,
        )
        return replace(record, state=lost)
    waiting = state.get("waiting") or {}
    return replace(record, state=Waiting(waiting.get("reason", "ContainerCreating"), waiting.get("message", "")))


def _terminated(state: Json | None) -> Terminated | None:
    ended = (state or {}).get("terminated")
    if not ended:
        return None
    return Terminated(
        exit_code=ended["exitCode"],
        reason=ended.get("reason", ""),
        message=ended.get("message", ""),
        signal=ended.get("signal", 0),
        started_at=ended.get("startedAt") or "",
        finished_at=ended.get("finishedAt") or "",
        container_id=ended.get("containerID", ""),
    )
