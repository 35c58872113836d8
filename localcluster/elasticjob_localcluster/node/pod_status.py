"""Computes a pod's status from the statuses of its containers. Pure.

The rules are the kubelet's: the phase follows from the containers' states and the restart policy,
and the time of each of the four conditions changes only with its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from elasticjob_api.meta import Json
from elasticjob_api.times import format_time

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.container_status import (
    ContainerStatus,
    Terminated,
    Waiting,
    container_status_json,
    init_restart_policy,
    initialized,
    should_restart,
)
from elasticjob_localcluster.node.pod_model import Pod

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True)
class PodFailure:
    """The failure of a pod as a whole, in spite of its containers' states."""

    reason: str
    message: str


def pod_phase(policy: str, init: list[ContainerStatus], main: list[ContainerStatus]) -> Phase:
    """Return a pod's phase, as its restart policy and the states of its containers determine it."""
    if any(
        end.exit_code and not should_restart(end, init_restart_policy(policy))
        for end in _terminations(init)
    ):
        return "Failed"
    if not initialized(init):
        return "Pending"
    ends = _terminations(main)
    if len(ends) == len(main) and not any(should_restart(end, policy) for end in ends):
        return "Failed" if any(end.exit_code for end in ends) else "Succeeded"
    if any(isinstance(status.state, Waiting) and status.last_terminated is None for status in main):
        return "Pending"
    return "Running"


def _terminations(statuses: list[ContainerStatus]) -> list[Terminated]:
    return [status.terminated for status in statuses if status.terminated is not None]


def pod_status(
    pod: Pod,
    init: list[ContainerStatus],
    main: list[ContainerStatus],
    *,
    now: float,
    address: str,
    mounted: bool,
    started_at: str,
    known: Mapping[str, Json] | None = None,
    failure: PodFailure | None = None,
    resize: Mapping[str, tuple[str, str]] | None = None,
) -> Json:
    """Return the whole status, as a strategic merge patch.

    Args:
        pod: as last observed; its conditions' times are kept where nothing changed.
        init: the init containers, in order.
        main: the containers, in order.
        now: seconds since the epoch.
        address: the pod's address; empty when it has none.
        mounted: its volumes are prepared, so its containers can be created.
        started_at: when the node first observed the pod.
        known: the conditions that this node computed last, by type; they override those of `pod`.
        failure: set when the pod failed as a whole.
        resize: conditions of a resize under way: type to (reason, message).
    """
    phase: Phase = "Failed" if failure else pod_phase(pod.restart_policy, init, main)
    answer: Json = {
        "phase": phase,
        "observedGeneration": pod.metadata.generation or None,
        "reason": failure.reason if failure else None,
        "message": failure.message if failure else None,
        "startTime": started_at,
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "conditions": _conditions(
            pod,
            init,
            main,
            phase,
            now=now,
            sandboxed=bool(address) and mounted,
            known=known or {},
            resize=resize or {},
        ),
        "initContainerStatuses": [container_status_json(status) for status in init],
        "containerStatuses": [container_status_json(status) for status in main],
    }
    if address:
        answer |= {"podIP": address, "podIPs": [{"ip": address}]}
    return answer


def _conditions(
    pod: Pod,
    init: list[ContainerStatus],
    main: list[ContainerStatus],
    phase: Phase,
    *,
    now: float,
    sandboxed: bool,
    known: Mapping[str, Json],
    resize: Mapping[str, tuple[str, str]],
) -> list[Json]:
    finished = phase in ("Succeeded", "Failed")
    finished_reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    incomplete = [status.name for status in init if not initialized([status])]
    unready = [status.name for status in main if not status.ready]
    gates = [gate["conditionType"] for gate in pod.spec.get("readinessGates") or ()]
    before = {condition["type"]: condition for condition in pod.status.get("conditions") or ()}
    before |= known
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]

    conditions: list[tuple[str, bool, str, str]] = [
        ("PodReadyToStartContainers", sandboxed and not finished, "", "")
    ]
    if phase == "Succeeded" or not incomplete:
        conditions.append(("Initialized", True, "PodCompleted" if phase == "Succeeded" else "", ""))
    else:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        conditions.append(("Initialized", False, "ContainersNotInitialized", message))
    message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    containers = ("", "") if not unready and not finished else ("ContainersNotReady", message)
    if finished:
        containers = (finished_reason, "")
    all_ready = not unready and not finished
    conditions.append(("ContainersReady", all_ready, *containers))
    if all_ready and closed:
        conditions.append(
            ("Ready", False, "ReadinessGatesNotReady", f"conditions not true: [{' '.join(closed)}]")
        )
    else:
        conditions.append(("Ready", all_ready, *containers))
    conditions += ((kind, True, reason, message) for kind, (reason, message) in resize.items())
    answer = [
        _condition(before.get(kind), kind, *rest, pod=pod, now=now)  # type: ignore[arg-type]
        for kind, *rest in conditions
    ]
    removed = [
        kind
        for kind in ("PodResizePending", "PodResizeInProgress")
        if kind in before and kind not in resize
    ]
    return answer + [{"$patch": "delete", "type": kind} for kind in removed]


def _condition(
    before: Json | None, kind: str, holds: bool, reason: str, message: str, *, pod: Pod, now: float
) -> Json:
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
