"""Decides by rules what to do about a failed pod.

The rules are the job's `restartRules`, then the cluster's, then the default rules. The first one
that matches decides. docs/failures.md has the table of the default rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import re2  # type: ignore[import-untyped]  # in linear time for every pattern: no job can stall the others
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, FailureAction, RestartRule
from elasticjob_api.last_words import MAX_MESSAGE

from elasticjob_operator.core.members.backoff import spread_seconds
from elasticjob_operator.core.members.pod_reports import (
    describe,
    failed_container,
    failed_terminated,
    signal_of,
)
from elasticjob_operator.core.model.pod import Pod, Terminated

_MAX_SUMMARY = 256
_SIGKILL = 137
_MAX_PATTERN_MEMORY = 1 << 20


@dataclass(frozen=True)
class Failure:
    """A failure of a pod: the action to take, and a description for messages.

    Attributes:
        action: the action by the first rule that matches.
        reason: exit code, reason and termination message.
        from_outside: the program did not end by itself.
        out_of_memory: it was killed for its memory, by a rule of the job or the default rules.
        least_delay: seconds that the restart waits at least, by a rule.
    """

    action: FailureAction
    reason: str
    from_outside: bool
    out_of_memory: bool
    least_delay: int = 0

    def from_lowered_memory(self) -> Failure:
        """Return the failure of a member whose memory was lowered: no rule counts its restart."""
        return replace(self, action="Ignore", from_outside=True)

    @property
    def summary(self) -> str:
        """The description in one line, without the last words that are not the cause."""
        return self.reason.partition("\n")[0][:_MAX_SUMMARY]


@dataclass(frozen=True)
class PodState:
    """A state of a pod that a RestartRule cannot express, and its name in the documentation."""

    name: str
    holds: Callable[[Pod], bool]


def _has_reported_nothing(pod: Pod) -> bool:
    return failed_terminated(pod) is None and not pod.status.reason


ANY_STATE = PodState("", lambda pod: True)
BEING_DELETED = PodState("a pod that is being deleted", lambda pod: pod.terminating)
NOTHING_REPORTED = PodState("no container has reported its end", _has_reported_nothing)


@dataclass(frozen=True)
class DefaultRule:
    """One row of the table; it applies to pods in `state` that match the rule."""

    rule: RestartRule
    explanation: str
    state: PodState = ANY_STATE


DEFAULT_RULES: tuple[DefaultRule, ...] = (
    DefaultRule(
        RestartRule(action="Restart", reasons=["Evicted"], message_pattern="exceed.* limit"),
        "The pod has used more storage than its own limits allow.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", pod_conditions=["DisruptionTarget"]),
        "Kubernetes reports that the pod was preempted or evicted, or that its node was drained "
        "or lost.",
    ),
    DefaultRule(
        RestartRule(
            action="Ignore",
            reasons=["Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"],
        ),
        "The node ran out of resources, was needed for other pods, shut down, or was lost.",
    ),
    DefaultRule(
        RestartRule(
            action="Ignore",
            reasons=[
                "OutOf*",
                "UnexpectedAdmissionError",
                "TopologyAffinityError",
                "NodeAffinity",
                "InvalidNodeInfo",
            ],
        ),
        "The node rejected the pod; the scheduler will choose another node.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", reasons=["ContainerStatusUnknown"]),
        "The node has lost the state of the container.",
    ),
    DefaultRule(
        RestartRule(action="RestartWithMoreMemory", reasons=["OOMKilled"]),
        "The kernel killed the container because it used too much memory.",
    ),
    DefaultRule(
        RestartRule(
            action="RestartWithMoreMemory",
            exit_codes=[_SIGKILL],
            message_pattern=names.KILLED_FOR_MEMORY,
        ),
        "The same, reported by the agent: about 1 in 90 such kills is not reported as OOMKilled.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", exit_codes=[_SIGKILL]),
        "The pod was deleted, and still ran when its grace period ended.",
        state=BEING_DELETED,
    ),
    DefaultRule(
        RestartRule(action="FailJob", reasons=["DeadlineExceeded"]),
        "The pod reached its template's activeDeadlineSeconds, as a new pod would.",
    ),
    DefaultRule(
        RestartRule(
            action="FailJob",
            reasons=[
                "SysctlForbidden",
                "AppArmor",
                "PodOSNotSupported",
                "PodOSSelector*",
                "PodFeatureUnsupported",
            ],
        ),
        "No node accepts such a pod.",
    ),
    DefaultRule(
        RestartRule(
            action="FailJob", reasons=["StartError", "ContainerCannotRun", "RunContainerError"]
        ),
        "The container cannot be started: a command, a mount or a user is wrong.",
    ),
    DefaultRule(
        RestartRule(action="FailJob", exit_codes=[126, 127, 128]),
        "The command cannot be executed or does not exist.",
    ),
    DefaultRule(
        RestartRule(action="FailJob", signals=[4, 8, 31]),
        "SIGILL, SIGFPE, SIGSYS: the program does not fit this machine, or would fail again in "
        "the same way.",
    ),
    DefaultRule(
        RestartRule(action="FailJob", exit_codes=[210]),
        "The program reports a permanent error by this code.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", exit_codes=[names.EXIT_DRAINED]),
        "SIGTERM: the program was terminated, or the member has drained.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", signals=[1, 2, 3]),
        "SIGHUP, SIGINT, SIGQUIT: the program was interrupted.",
    ),
    DefaultRule(
        RestartRule(action="Ignore", exit_codes=[200, names.EXIT_UNFIT]),
        "The program or its agent reports a temporary error by this code.",
    ),
    DefaultRule(
        RestartRule(action="Restart", exit_codes=[_SIGKILL]),
        "SIGKILL, and no reason is reported.",
    ),
    DefaultRule(
        RestartRule(action="Restart", signals=[6, 7, 11, 13]),
        "SIGABRT, SIGBUS, SIGSEGV, SIGPIPE: the cause is often a device or another member.",
    ),
    DefaultRule(
        RestartRule(action="Ignore"),
        "The node lost the pod before it reported an exit code or a reason.",
        state=NOTHING_REPORTED,
    ),
    DefaultRule(
        RestartRule(action="Restart"),
        "Any other end, such as exit code 1.",
    ),
)


def classify(pod: Pod, rules: Sequence[RestartRule] = ()) -> Failure:
    """Return what to do about a pod whose training has failed."""
    by_default = _default_action(pod)
    rule = next((rule for rule in rules if _matches(rule, pod)), None)
    action = rule.action if rule is not None else by_default
    delay = 0
    if rule is not None:
        delay = spread_seconds(rule.min_delay_seconds, rule.max_delay_seconds, pod.metadata.uid)
    terminated = failed_terminated(pod)
    killed = (
        terminated is not None
        and terminated.exit_code == _SIGKILL
        and action != "RestartWithMoreMemory"
    )
    out_of_memory = "RestartWithMoreMemory" in (action, by_default)
    return Failure(action, describe(pod), action == "Ignore" or killed, out_of_memory, delay)


def is_counted(job: ElasticJob, pod: Pod) -> bool:
    """Return whether the end of a member's or the master's pod counts against a limit."""
    if pod.role != names.ROLE_MASTER:
        return classify(pod, job.spec.replica_specs[pod.role].restart_rules).action != "Ignore"
    ended = pod.terminated
    if (
        ended is not None
        and ended.exit_code in (_SIGKILL, names.EXIT_DRAINED)
        and ended.reason != "OOMKilled"
    ):
        return False
    return pod.status.phase == "Succeeded" or classify(pod).action != "Ignore"


def restart_rules_error(job: ElasticJob) -> str | None:
    """Return the field of a restart rule whose pattern is invalid, and why.

    None if all are valid.
    """
    for role, spec in job.spec.replica_specs.items():
        for position, rule in enumerate(spec.restart_rules):
            if why := pattern_error(rule):
                return f"spec.replicaSpecs.{role}.restartRules[{position}].{why}"
    return None


def pattern_error(rule: RestartRule) -> str | None:
    """Return why the pattern of a rule is invalid, beginning with its field; None if it is not."""
    if rule.message_pattern is None:
        return None
    try:
        _compiled(rule.message_pattern)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        return f"messagePattern: {rule.message_pattern!r} is not a regular expression: {reason}"
    return None


def _default_action(pod: Pod) -> FailureAction:
    return next(
        row.rule.action for row in DEFAULT_RULES if row.state.holds(pod) and _matches(row.rule, pod)
    )


def _matches(rule: RestartRule, pod: Pod) -> bool:
    container = failed_container(pod)
    terminated = failed_terminated(pod)
    code = terminated.exit_code if terminated else None
    signal = signal_of(terminated) if terminated else None
    reasons = {pod.status.reason, terminated.reason if terminated else ""} - {""}
    return (
        (not rule.exit_codes or code in rule.exit_codes)
        and (not rule.signals or signal in rule.signals)
        and (
            not rule.reasons
            or any(
                _reason_matches(reason, pattern) for reason in reasons for pattern in rule.reasons
            )
        )
        and (
            rule.message_pattern is None or _message_matches(rule.message_pattern, pod, terminated)
        )
        and all(pod.condition(kind) for kind in rule.pod_conditions)
        and (not rule.containers or (container is not None and container.name in rule.containers))
    )


def _reason_matches(reason: str, pattern: str) -> bool:
    return reason.startswith(pattern[:-1]) if pattern.endswith("*") else reason == pattern


def _message_matches(pattern: str, pod: Pod, terminated: Terminated | None) -> bool:
    """Search the messages; an invalid pattern, from an edit of a running job, matches none."""
    messages = [
        text[-MAX_MESSAGE:]
        for text in (terminated.message if terminated else "", pod.status.message)
    ]
    try:
        return any(_compiled(pattern).search(text) is not None for text in messages if text)
    except re2.error:
        return False


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PATTERN_MEMORY
    return re2.compile(pattern, options)
