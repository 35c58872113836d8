"""What the end of a pod means: whose fault it is, and what shall be done. `docs/failures.md` shows the table.

A job's `restartRules` and the default table are one kind of rule, tried in order; the first one that matches decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import re2  # type: ignore[import-untyped]  # linear whatever the pattern is: no job can hold up the others
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, RestartRule

from elasticjob_operator.core.model.observed import Pod, Terminated

Action = Literal["Ignore", "Restart", "RestartWithMoreMemory", "FailJob"]
_LONGEST_MESSAGE = 1024
_KILLED = 137
_MEMORY_OF_A_PATTERN = 1 << 20


@dataclass(frozen=True)
class Failure:
    """What shall be done about a failed pod, and why, in words for people."""

    action: Action
    reason: str


@dataclass(frozen=True)
class Default:
    """One row of the default table: the rule, why it is so, and what else must hold for it to match."""

    rule: RestartRule
    why: str
    only: Literal["", "a pod that is being deleted", "no container has reported its end"] = ""


DEFAULTS: tuple[Default, ...] = (
    Default(
        RestartRule(action="Restart", reasons=["Evicted"], message_pattern="exceed.* limit"),
        "The pod has used more storage than its own limits allow.",
    ),
    Default(
        RestartRule(action="Ignore", pod_conditions=["DisruptionTarget"]),
        "Preempted, evicted, drained from its node, or its node is lost: Kubernetes says so itself.",
    ),
    Default(
        RestartRule(
            action="Ignore",
            reasons=["Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"],
        ),
        "The node was short of resources, was needed for others, shut down or got lost.",
    ),
    Default(
        RestartRule(
            action="Ignore",
            reasons=["OutOf*", "UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "InvalidNodeInfo"],
        ),
        "The node has not taken the pod; the scheduler will find another place.",
    ),
    Default(
        RestartRule(action="Ignore", reasons=["ContainerStatusUnknown"]),
        "The node does not know any more what became of the container.",
    ),
    Default(
        RestartRule(action="RestartWithMoreMemory", reasons=["OOMKilled"]),
        "It was killed for the memory it used.",
    ),
    Default(
        RestartRule(action="RestartWithMoreMemory", exit_codes=[_KILLED], message_pattern=names.KILLED_FOR_MEMORY),
        "The same, as its agent has seen: about 1 in 90 such kills is not reported as OOMKilled.",
    ),
    Default(
        RestartRule(action="Ignore", exit_codes=[_KILLED]),
        "Somebody has deleted the pod, and it was not done when its grace period was over.",
        only="a pod that is being deleted",
    ),
    Default(
        RestartRule(action="FailJob", reasons=["DeadlineExceeded"]),
        "The template's own activeDeadlineSeconds is over; a new pod would run for as long again.",
    ),
    Default(
        RestartRule(
            action="FailJob",
            reasons=["SysctlForbidden", "AppArmor", "PodOSNotSupported", "PodOSSelector*", "PodFeatureUnsupported"],
        ),
        "No node will take such a pod.",
    ),
    Default(
        RestartRule(action="FailJob", reasons=["StartError", "ContainerCannotRun", "RunContainerError"]),
        "The container cannot be started: a command, a mount or a user is wrong.",
    ),
    Default(
        RestartRule(action="FailJob", exit_codes=[126, 127, 128]),
        "The command cannot be executed or does not exist.",
    ),
    Default(
        RestartRule(action="FailJob", signals=[4, 8, 31]),
        "SIGILL, SIGFPE, SIGSYS: the program is not made for this machine, or would do the same again.",
    ),
    Default(
        RestartRule(action="FailJob", exit_codes=[210]),
        "The program says so: an error that is there to stay.",
    ),
    Default(
        RestartRule(action="Ignore", exit_codes=[names.EXIT_DRAINED]),
        "SIGTERM: it was asked to leave, or has drained.",
    ),
    Default(
        RestartRule(action="Ignore", signals=[1, 2, 3]),
        "SIGHUP, SIGINT, SIGQUIT: somebody has interrupted it.",
    ),
    Default(
        RestartRule(action="Ignore", exit_codes=[200, 201]),
        "The program says so: an error that passes.",
    ),
    Default(
        RestartRule(action="Restart", exit_codes=[_KILLED]),
        "SIGKILL, and nobody says why.",
    ),
    Default(
        RestartRule(action="Restart", signals=[6, 7, 11, 13]),
        "SIGABRT, SIGBUS, SIGSEGV, SIGPIPE: often the fault of a device or of a peer.",
    ),
    Default(
        RestartRule(action="Ignore"),
        "The node lost the pod before it could tell anything, not even a reason.",
        only="no container has reported its end",
    ),
    Default(
        RestartRule(action="Restart"),
        "Any other end, such as exit code 1.",
    ),
)


def classify(pod: Pod, rules: Sequence[RestartRule] = ()) -> Failure:
    """Judge a pod whose training has not ended well: the first rule that matches, else the default table."""
    action = next((rule.action for rule in rules if _matches(rule, pod)), None)
    return Failure(action or _default(pod), describe(pod))


def describe(pod: Pod) -> str:
    """Return how a pod ended: exit code, reason and last words."""
    container, ended = _cause(pod)
    parts = [f"{container}exit code {ended.exit_code}"] if ended else []
    parts += [text for text in (ended.reason if ended else "", pod.status.reason) if text and text != "Error"]
    words = (ended.message if ended else "") or pod.status.message
    head = ", ".join(parts) or f"phase {pod.status.phase}"
    return f"{head}: {words.strip()[-_LONGEST_MESSAGE:]}" if words.strip() else head


def why_pending(pod: Pod) -> str:
    """Return why a pod does not start, in its own words; empty when it does not tell.

    That is what a container waits for, else what the scheduler says.
    """
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return ""


def restart_rules_error(job: ElasticJob) -> str | None:
    """Return which restart rule of a job can never be judged, and why; None if all can."""
    for role, spec in job.spec.replica_specs.items():
        for position, rule in enumerate(spec.restart_rules):
            if rule.message_pattern is None:
                continue
            try:
                _compiled(rule.message_pattern)
            except re2.error as error:
                field = f"spec.replicaSpecs.{role}.restartRules[{position}].messagePattern"
                why = error.args[0].decode(errors="replace")
                return f"{field}: {rule.message_pattern!r} is not a regular expression: {why}"
    return None


def _default(pod: Pod) -> Action:
    holds = {
        "": True,
        "a pod that is being deleted": pod.terminating,
        "no container has reported its end": _cause(pod)[1] is None and not pod.status.reason,
    }
    return next(row.rule.action for row in DEFAULTS if holds[row.only] and _matches(row.rule, pod))


def _cause(pod: Pod) -> tuple[str, Terminated | None]:
    """Return how the training container ended; if it never began, how the container did that kept it from beginning."""
    if pod.terminated is not None:
        return "", pod.terminated
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.state.terminated is not None and status.state.terminated.exit_code:
            return f"container {status.name}: ", status.state.terminated
    return "", None


def _matches(rule: RestartRule, pod: Pod) -> bool:
    _, ended = _cause(pod)
    code = ended.exit_code if ended else None
    signal = (ended.signal or (ended.exit_code - 128 if ended.exit_code > 128 else 0)) if ended else None
    reasons = {pod.status.reason, ended.reason if ended else ""} - {""}
    return (
        (not rule.exit_codes or code in rule.exit_codes)
        and (not rule.signals or signal in rule.signals)
        and (not rule.reasons or any(_is(reason, wanted) for reason in reasons for wanted in rule.reasons))
        and (rule.message_pattern is None or _found(rule.message_pattern, pod, ended))
        and all(pod.condition(kind) for kind in rule.pod_conditions)
    )


def _is(reason: str, wanted: str) -> bool:
    return reason.startswith(wanted[:-1]) if wanted.endswith("*") else reason == wanted


def _found(pattern: str, pod: Pod, ended: Terminated | None) -> bool:
    """Look for the pattern in the last words. One that is none was edited in after the job began; it finds nothing."""
    words = [text[-_LONGEST_MESSAGE:] for text in (ended.message if ended else "", pod.status.message)]
    try:
        return any(_compiled(pattern).search(text) is not None for text in words if text)
    except re2.error:
        return False


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_OF_A_PATTERN
    return re2.compile(pattern, options)
