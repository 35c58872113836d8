"""Reads from a pod how it has ended, or why it does not start, in words for messages.

The last failures are kept in the status of the job, which outlives the pods.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import (
    MAX_FAILURES,
    MAX_INT32,
    ElasticJobStatus,
    Failure,
    FailureAction,
)
from elasticjob_api.last_words import MAX_MESSAGE, cause, cause_first, exit_text
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.manifests.agent_files import INSTALLED_AGENT
from elasticjob_operator.core.members.backoff import run_times
from elasticjob_operator.core.model.pod import ContainerStatus, Pod, Terminated

_MAX_CHARACTERS = 256
_MAX_SIGNAL = 255
_MAX_MOUNTS = 5
_CREATE_IT = "create what does not exist, or delete the job and submit it again"
_NO_AGENT = (
    "spec.agent.source is ImageVolume: that needs Kubernetes 1.35 or newer, a container runtime on "
    "the node that mounts images, such as containerd 2.1, and the folder /agent in the agent's "
    "image; without them, submit the job again with InitContainer"
)
_NOT_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError")
"""Reasons of a container that the runtime could not create or start."""


def describe(pod: Pod) -> str:
    """Return how a pod ended: exit code, reason and, with its cause first, the last words."""
    terminated = failed_terminated(pod)
    failed = failed_container(pod)
    container = ""
    if failed is not None and pod.terminated is None:
        container = f"container {failed.name}: "
    reasons = (terminated.reason if terminated else "", pod.status.reason)
    parts = [text for text in reasons if text and text != "Error"]
    code = terminated.exit_code if terminated else None
    if code is not None:
        # A reason such as OOMKilled says more than the signal.
        parts.insert(0, f"{container}exit code {code}" if parts else container + exit_text(code))
    head = ", ".join(parts) or f"phase {pod.status.phase}"
    message = cause_first(last_words(pod), MAX_MESSAGE, code)
    hint = _agent_hint(pod, terminated.reason if terminated else "", message)
    return f"{head}: {message}{hint}" if message else head


def last_words(pod: Pod) -> str:
    """Return the termination message of the failed container, else the message of the pod."""
    terminated = failed_terminated(pod)
    return ((terminated.message if terminated else "") or pod.status.message).strip()


def failed_container(pod: Pod) -> ContainerStatus | None:
    """Return the training container if it has ended, else the first container that has failed."""
    statuses = pod.status.container_statuses
    for status in statuses:
        if status.name == pod.container.name and status.state.terminated is not None:
            return status
    for status in (*pod.status.init_container_statuses, *statuses):
        if status.state.terminated is not None and status.state.terminated.exit_code:
            return status
    return None


def failed_terminated(pod: Pod) -> Terminated | None:
    """Return how that container ended; None if none has reported its end."""
    container = failed_container(pod)
    return container.state.terminated if container is not None else None


def signal_of(terminated: Terminated) -> int:
    """Return the signal that ended a container, also by an exit code above 128; 0 for none."""
    return terminated.signal or max(terminated.exit_code - 128, 0)


def why_pending(pod: Pod) -> str:
    """Return why a pod does not start, by a waiting container, the scheduler or its volumes.

    Empty if unknown. The kubelet reports an object that a variable names on the container. It
    reports an object that a volume names by an event only; until all volumes are mounted, the pod
    has the condition PodReadyToStartContainers with the status False.
    """
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in (
            "",
            "ContainerCreating",
            "PodInitializing",
        ):
            hint = f"; {_CREATE_IT}" if waiting.reason == "CreateContainerConfigError" else ""
            hint = hint or _agent_hint(pod, waiting.reason, waiting.message)
            return f"{waiting.reason}: {waiting.message}{hint}"
    absent = {each.type: each for each in pod.status.conditions if each.status == "False"}
    if scheduled := absent.get("PodScheduled"):
        return f"{scheduled.reason}: {scheduled.message}"
    if pod.status.phase == "Pending" and "PodReadyToStartContainers" in absent:
        mounts = [mount for volume in pod.spec.volumes if (mount := volume.must_exist)]
        if mounts:
            more = f" and {len(mounts) - _MAX_MOUNTS} more" if len(mounts) > _MAX_MOUNTS else ""
            return f"it mounts {', '.join(mounts[:_MAX_MOUNTS])}{more}; {_CREATE_IT}"
    return ""


def _agent_hint(pod: Pod, reason: str, message: str) -> str:
    """Return what to do if a container has not started because its image volume has no agent.

    An API server without image volumes drops the volume: then the agent's program does not exist,
    and no init container has copied it.
    """
    if reason not in _NOT_STARTED:
        return ""
    has_volume = any(each.name == names.AGENT and each.image for each in pod.spec.volumes)
    was_copied = any(each.name == names.AGENT for each in pod.status.init_container_statuses)
    is_dropped = not was_copied and f"{INSTALLED_AGENT}/" in message
    return f"; {_NO_AGENT}" if has_volume or is_dropped else ""


def with_failure(
    status: ElasticJobStatus, pod: Pod, action: FailureAction, now: float
) -> ElasticJobStatus:
    """Return the status with one more failure, the newest first, within the bound."""
    return replace(status, failures=[failure_of(pod, action, now), *status.failures][:MAX_FAILURES])


def unfit_nodes(status: ElasticJobStatus) -> tuple[str, ...]:
    """Return the nodes on which members among the last failures ended because a node is unfit."""
    found = (each.node for each in status.failures if each.exit_code == names.EXIT_UNFIT)
    return tuple(dict.fromkeys(filter(None, found)))


def failure_of(pod: Pod, action: FailureAction, now: float) -> Failure:
    """Return how a pod has failed, cut to the bounds of the status."""
    container = failed_container(pod)
    terminated = container.state.terminated if container is not None else None
    began, ended = run_times(pod)
    reasons = [terminated.reason if terminated else "", pod.status.reason]
    known = sorted(filter(None, reasons), key=lambda reason: reason == "Error")
    reason = known[0] if known else ""
    return Failure(
        role=pod.role,
        index=None if pod.role == names.ROLE_MASTER else pod.index,
        attempt=min(pod.restarts + pod.uncounted_restarts, MAX_COUNTER),
        pod=pod.name,
        node=pod.spec.node_name,
        container=container.name if container is not None else "",
        exit_code=None
        if terminated is None
        else max(-MAX_INT32, min(terminated.exit_code, MAX_INT32)),
        signal=None if terminated is None else min(signal_of(terminated), _MAX_SIGNAL) or None,
        reason=reason[:_MAX_CHARACTERS],
        message=cause(last_words(pod), terminated.exit_code if terminated else None)[
            :_MAX_CHARACTERS
        ],
        action=action,
        started_at=format_time(began) if began is not None else None,
        finished_at=format_time(now if ended is None else ended),
    )
