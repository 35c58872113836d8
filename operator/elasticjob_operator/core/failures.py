"""What the end of a member's pod means: whose fault it is, and what shall be done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elasticjob_api import names
from elasticjob_api.elasticjob import RestartRule

from elasticjob_operator.core.observed import Pod

Action = Literal["Ignore", "Restart", "RestartWithMoreMemory", "FailJob"]

_NOBODYS_FAULT = frozenset(
    {
        "Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity",
        "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods",
    }
)  # fmt: skip
_CANNOT_RUN = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_COMMAND_NOT_FOUND = (126, 127, 128)
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True)
class Failure:
    """What shall be done about a failed pod, and why, in words for people."""

    action: Action
    reason: str


def classify(pod: Pod, rules: Sequence[RestartRule] = ()) -> Failure:
    """Judge a pod in phase Failed: the first rule that matches, else the default table."""
    reason = describe(pod)
    for rule in rules:
        if _matches(rule, pod):
            return Failure(rule.action, reason)
    return Failure(_default(pod), reason)


def describe(pod: Pod) -> str:
    """Return how a pod ended: exit code, reason and last words."""
    ended = pod.terminated
    parts = [f"exit code {ended.exit_code}"] if ended else []
    parts += [text for text in (ended.reason if ended else "", pod.status.reason) if text and text != "Error"]
    words = (ended.message if ended else "") or pod.status.message
    head = ", ".join(parts) or f"phase {pod.status.phase}"
    return f"{head}: {words.strip()[-_LONGEST_MESSAGE:]}" if words.strip() else head


def _default(pod: Pod) -> Action:
    ended = pod.terminated
    if pod.condition("DisruptionTarget") or pod.status.reason in _NOBODYS_FAULT:
        return "Ignore"
    if ended is None:
        # Not one container has reported its end: the node lost the pod.
        return "Restart" if pod.status.reason else "Ignore"
    if ended.reason == "OOMKilled":
        return "RestartWithMoreMemory"
    if ended.reason in _CANNOT_RUN or ended.exit_code in _COMMAND_NOT_FOUND:
        return "FailJob"
    return "Ignore" if ended.exit_code == names.EXIT_DRAINED else "Restart"


def _matches(rule: RestartRule, pod: Pod) -> bool:
    ended = pod.terminated
    code = ended.exit_code if ended else None
    signal = (ended.signal or (ended.exit_code - 128 if ended.exit_code > 128 else 0)) if ended else None
    reasons = {pod.status.reason, ended.reason if ended else ""} - {""}
    words = (ended.message if ended else pod.status.message)[-_LONGEST_MESSAGE:]
    return (
        (not rule.exit_codes or code in rule.exit_codes)
        and (not rule.signals or signal in rule.signals)
        and (not rule.reasons or bool(reasons & set(rule.reasons)))
        and (rule.message_pattern is None or _found(rule.message_pattern, words))
        and all(pod.condition(kind) for kind in rule.pod_conditions)
    )


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False
