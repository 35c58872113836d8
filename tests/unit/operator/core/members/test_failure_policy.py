"""Tests that a failed pod is classified by its job's rules, then by the default rules.

docs/failures.md lists the default rules.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import BackOff, ElasticJob, ReplicaSpec, RestartRule
from elasticjob_api.times import format_time, parse_time
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.members.failure_policy import (
    DEFAULT_RULES,
    DefaultRule,
    classify,
    restart_rules_error,
)
from elasticjob_operator.core.members.more_memory import increased_memory
from elasticjob_operator.core.members.pod_reports import describe, why_pending
from elasticjob_operator.core.model.pod import ImageSource, Pod, PodSpec, Volume
from hypothesis import given
from hypothesis import strategies as st

DOC = Path(__file__).parents[5] / "docs" / "failures.md"


def pod(code: int | None = None, reason: str = "Error", **status: Any) -> Pod:
    """A failed pod, as a kubelet reports it.

    `why` is the pod's own reason, `conditions` those that are True.
    """
    words = status.pop("words", "the last words")
    state = (
        {}
        if code is None
        else {"terminated": {"exitCode": code, "reason": reason, "message": words}}
    )
    metadata = {
        "name": "p",
        "deletionTimestamp": "2026-01-01T00:00:00Z" if status.pop("leaving", False) else None,
    }
    conditions = [{"type": kind, "status": "True"} for kind in status.pop("conditions", ())]
    containers = [{"name": "sidecar"}, {"name": "train", "state": state}]
    failed = {"phase": "Failed", "reason": status.pop("why", ""), "conditions": conditions}
    body = {
        "metadata": metadata,
        "spec": {"containers": [{"name": "train"}]},
        "status": {"containerStatuses": containers, **failed, **status},
    }
    return msgspec.convert(body, Pod)


def test_the_master_knows_the_exit_codes_that_fail_the_job() -> None:
    failing = {code for code in range(1, 256) if classify(pod(code)).action == "FailJob"}
    assert failing == names.PERMANENT_FAILURES


EXAMPLES: list[tuple[str, list[Pod]]] = [
    (
        "Restart",
        [
            pod(
                137,
                why="Evicted",
                message="Container train exceeded its local ephemeral storage limit 1Gi.",
            )
        ],
    ),
    (
        "Ignore",
        [
            pod(1, conditions=["DisruptionTarget"]),
            pod(137, "OOMKilled", conditions=["DisruptionTarget"]),
        ],
    ),
    (
        "Ignore",
        [
            pod(137, why="Evicted", message="The node was low on resource: memory."),
            *(
                pod(why=why)
                for why in ("Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated")
            ),
        ],
    ),
    (
        "Ignore",
        [
            pod(why=why)
            for why in (
                "OutOfcpu",
                "OutOfpods",
                "OutOfnvidia.com/gpu",
                "UnexpectedAdmissionError",
                "TopologyAffinityError",
                "NodeAffinity",
                "InvalidNodeInfo",
            )
        ],
    ),
    ("Ignore", [pod(137, "ContainerStatusUnknown")]),
    (
        "RestartWithMoreMemory",
        [pod(137, "OOMKilled"), pod(1, "OOMKilled"), pod(137, "OOMKilled", leaving=True)],
    ),
    (
        "RestartWithMoreMemory",
        [pod(137, message=f"Bye\nelasticjob-agent: {names.KILLED_FOR_MEMORY}")],
    ),
    ("Ignore", [pod(137, leaving=True)]),
    ("FailJob", [pod(137, why="DeadlineExceeded")]),
    (
        "FailJob",
        [
            pod(why=why)
            for why in (
                "SysctlForbidden",
                "AppArmor",
                "PodOSNotSupported",
                "PodOSSelectorNodeLabelDoesNotMatch",
                "PodFeatureUnsupported",
            )
        ],
    ),
    (
        "FailJob",
        [pod(128, "StartError"), pod(1, "ContainerCannotRun"), pod(1, "RunContainerError")],
    ),
    ("FailJob", [pod(126), pod(127), pod(128)]),
    ("FailJob", [pod(132), pod(136), pod(159)]),
    ("FailJob", [pod(210)]),
    ("Ignore", [pod(143)]),
    ("Ignore", [pod(129), pod(130), pod(131)]),
    ("Ignore", [pod(200), pod(201), pod(names.EXIT_UNFIT)]),
    ("Restart", [pod(137)]),
    ("Restart", [pod(134), pod(135), pod(139), pod(141)]),
    ("Ignore", [pod()]),
    ("Restart", [pod(1), pod(2), pod(255), pod(250), pod(why="SomethingNew"), pod(0)]),
]
"""The action of each row of the default table, in its order, and pods that match the row."""


@pytest.mark.guarantee("uncounted-failures")
@pytest.mark.parametrize("row", range(len(DEFAULT_RULES)))
def test_every_row_of_the_default_table_decides_the_ends_that_it_matches(row: int) -> None:
    action, ends = EXAMPLES[row]
    assert DEFAULT_RULES[row].rule.action == action
    for end in ends:
        assert classify(end).action == action, describe(end)


def test_there_are_examples_for_every_row() -> None:
    assert len(EXAMPLES) == len(DEFAULT_RULES)


def _conditions_text(row: DefaultRule) -> str:
    """Return a row's conditions as text."""
    rule = row.rule
    parts = [
        f"reason {', '.join(f'`{reason}`' for reason in rule.reasons)}" if rule.reasons else "",
        f"message matches `{rule.message_pattern}`" if rule.message_pattern else "",
        f"condition {', '.join(f'`{kind}`' for kind in rule.pod_conditions)}"
        if rule.pod_conditions
        else "",
        f"exit code {', '.join(map(str, rule.exit_codes))}" if rule.exit_codes else "",
        f"signal {', '.join(f'{n} (exit code {128 + n})' for n in rule.signals)}"
        if rule.signals
        else "",
        row.state.name,
    ]
    return ", and ".join(part for part in parts if part) or "anything else"


def test_the_documented_table_is_the_one_in_force() -> None:
    table = [
        f"| {_conditions_text(row)} | {row.rule.action} | {row.explanation} |"
        for row in DEFAULT_RULES
    ]
    lines = DOC.read_text().splitlines()
    begin = lines.index("| How the pod ended | Action | Why |")
    documented = [line for line in lines[begin + 2 :] if line.startswith("|")][: len(table)]
    assert documented == table, "docs/failures.md must have these rows:\n" + "\n".join(table)
    first = backoff.FIRST_DELAY_SECONDS
    from_outside = backoff.FIRST_DELAY_FROM_OUTSIDE_SECONDS
    resets = backoff.RESET_AFTER_SECONDS, backoff.RESET_AFTER_FROM_OUTSIDE_SECONDS
    numbers = first, from_outside, backoff.MAX_DELAY_SECONDS, *resets
    assert all(f"{number} s" in DOC.read_text() for number in numbers)


# --- the rules of a job


@pytest.mark.guarantee("first-matching-rule-decides")
def test_the_first_rule_of_the_job_that_matches_decides_before_the_default_table() -> None:
    rules = [
        RestartRule(action="FailJob", exit_codes=[3], message_pattern="never"),
        RestartRule(action="Ignore", exit_codes=[3], message_pattern="last w.rds"),
        RestartRule(action="Restart", reasons=["OutOf*"]),
        RestartRule(action="FailJob", exit_codes=[4]),
    ]
    assert classify(pod(3), rules).action == "Ignore"
    assert classify(pod(4), rules).action == "FailJob"
    assert classify(pod(why="OutOfcpu"), rules).action == "Restart"
    assert classify(pod(127), rules).action == "FailJob"


@pytest.mark.parametrize(
    ("rule", "matches", "does_not"),
    [
        (RestartRule(action="Ignore", signals=[9]), pod(137), pod(9)),
        (
            RestartRule(action="Ignore", reasons=["Evicted"]),
            pod(1, why="Evicted"),
            pod(1, why="EvictedX"),
        ),
        (
            RestartRule(action="Ignore", pod_conditions=["A", "B"]),
            pod(1, conditions=["A", "B"]),
            pod(1, conditions=["A"]),
        ),
        (
            RestartRule(action="Ignore", message_pattern="low on"),
            pod(1, message="was low on memory"),
            pod(1),
        ),
    ],
)
def test_every_condition_of_a_rule_must_hold(
    rule: RestartRule, matches: Pod, does_not: Pod
) -> None:
    assert classify(matches, [rule]).action == "Ignore"
    assert classify(does_not, [rule]).action != "Ignore"


def job_with(pattern: str) -> ElasticJob:
    rule = {"action": "Ignore", "messagePattern": pattern}
    worker = {"template": {}, "restartRules": [{"action": "Restart"}, rule]}
    spec = {"framework": "jax", "replicaSpecs": {"worker": worker}}
    return msgspec.convert({"metadata": {"name": "j"}, "spec": spec}, ElasticJob)


@pytest.mark.parametrize("pattern", ["(", r"a\1", "(?=a)", "[z-a]", "a{9999}", "*"])
def test_a_pattern_that_is_no_regular_expression_is_refused_with_its_field(pattern: str) -> None:
    problem = restart_rules_error(job_with(pattern))
    assert problem is not None
    field = (
        f"spec.replicaSpecs.worker.restartRules[1].messagePattern: {pattern!r} "
        "is not a regular expression: "
    )
    assert problem.startswith(field)
    assert problem.removeprefix(field)
    assert (
        classify(pod(1), [RestartRule(action="FailJob", message_pattern=pattern)]).action
        == "Restart"
    )


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a*)*" * 50 + "b", ".*.*.*.*.*.*.*.*=", "(x+x+)+y"]
)
def test_no_pattern_can_block_the_operator(pattern: str) -> None:
    assert restart_rules_error(job_with(pattern)) is None
    hostile = pod(1, message=("a" * 600 + "x" * 600) + "!")
    began = time.process_time()
    for _ in range(100):
        classify(hostile, [RestartRule(action="Ignore", message_pattern=pattern)])
    # A backtracking search would take longer than the universe is old; this is no measurement.
    assert time.process_time() - began < 30


@given(st.text(max_size=256), st.text(max_size=40))
def test_any_text_is_a_pattern_or_is_refused(pattern: str, message: str) -> None:
    restart_rules_error(job_with(pattern))
    assert classify(
        pod(1, message=message), [RestartRule(action="Ignore", message_pattern=pattern)]
    ).action


# --- messages for people


def test_the_termination_message_of_the_container_is_shown() -> None:
    assert describe(pod(3)) == "exit code 3: the last words"
    assert describe(pod(137, "OOMKilled")) == "exit code 137, OOMKilled: the last words"
    assert describe(pod(why="Evicted", message="low on memory")) == "Evicted: low on memory"
    assert describe(pod()) == "phase Failed"


@pytest.mark.guarantee("cause-comes-first")
def test_a_failure_begins_with_the_signal_and_the_exception_of_the_program() -> None:
    warning = "[W socket.cpp:697] [c10d] The client socket has failed to connect"
    agent = "elasticjob-agent: no connection to the master, retrying (UNAVAILABLE)"
    killed = pod(137, words=f"{agent}\nrank 1/2 from step 91\n{warning}")
    assert classify(killed).summary == "exit code 137 (SIGKILL): rank 1/2 from step 91"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad'
    failed = pod(1, words=f"{agent}\n{trace}\n{warning}")
    assert classify(failed).summary == "exit code 1: ValueError: bad"
    assert describe(failed).startswith("exit code 1: ValueError: bad\n")
    assert describe(failed).endswith(warning)


def test_an_init_container_that_fails_is_the_cause() -> None:
    terminated = {"exitCode": 127, "reason": "Error", "message": "sh: prepare: not found"}
    failed = pod(initContainerStatuses=[{"name": "prepare", "state": {"terminated": terminated}}])
    assert classify(failed).action == "FailJob"
    assert describe(failed) == "container prepare: exit code 127: sh: prepare: not found"


MISSING = 'exec: "/elasticjob/agent/bin/elasticjob-agent": no such file or directory'
REMEDY = "submit the job again with InitContainer"


def test_a_container_whose_image_volume_has_no_agent_says_what_to_set() -> None:
    waiting = {"reason": "CreateContainerError", "message": "failed to generate spec"}
    status = {"name": "train", "state": {"waiting": waiting}}
    mounted = PodSpec(volumes=[Volume(name=names.AGENT, image=ImageSource("m:1"))])
    waits = msgspec.structs.replace(pod(containerStatuses=[status]), spec=mounted)
    assert why_pending(waits).endswith(REMEDY)
    assert why_pending(pod(containerStatuses=[status])).endswith("failed to generate spec"), (
        "the volume of another source is not the cause"
    )
    dropped = pod(128, "StartError", words=MISSING)
    assert describe(dropped).startswith(f"exit code 128, StartError: {MISSING}; ")
    assert describe(dropped).endswith(REMEDY), "an API server without the feature drops the volume"
    assert classify(dropped).action == "FailJob"
    copied = {"name": names.AGENT, "state": {"terminated": {"exitCode": 0}}}
    shadowed = pod(128, "StartError", words=MISSING, initContainerStatuses=[copied])
    assert describe(shadowed).endswith(MISSING)


def test_a_pod_that_waits_says_why() -> None:
    waiting = {
        "name": "train",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }
    assert why_pending(pod(containerStatuses=[waiting])) == "ImagePullBackOff: no such image"
    assert (
        why_pending(
            pod(
                containerStatuses=[
                    {"name": "train", "state": {"waiting": {"reason": "PodInitializing"}}}
                ]
            )
        )
        == ""
    )


# --- back-off


def test_the_first_restart_is_at_once_and_later_ones_wait_ever_longer() -> None:
    assert [backoff.delay_seconds(n, from_outside=False) for n in range(1, 9)] == [
        0,
        10,
        20,
        40,
        80,
        160,
        300,
        300,
    ]
    assert [backoff.delay_seconds(n, from_outside=True) for n in range(1, 8)] == [
        0,
        1,
        2,
        4,
        8,
        16,
        32,
    ]
    assert (
        backoff.delay_seconds(10_000, from_outside=False)
        == backoff.delay_seconds(10_000, from_outside=True)
        == 300
    )


@pytest.mark.parametrize(
    ("end", "from_outside"),
    [
        (pod(137), True),
        (pod(143), True),
        (pod(200), True),
        (pod(1), False),
        (pod(139), False),
        (pod(137, "OOMKilled"), False),
    ],
)
def test_only_what_the_program_does_by_itself_waits_long(end: Pod, from_outside: bool) -> None:
    assert classify(end).from_outside == from_outside


def ended(*, ran: float, at: float) -> Pod:
    terminated = {"exitCode": 1, "startedAt": format_time(at - ran), "finishedAt": format_time(at)}
    return pod(containerStatuses=[{"name": "train", "state": {"terminated": terminated}}])


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_only_a_long_run_resets_the_row_of_failures(runs: list[int]) -> None:
    before = None
    row = 0
    now = 1_800_000_000.0
    for ran in runs:
        now += ran
        row = 1 if ran >= backoff.RESET_AFTER_SECONDS else row + 1
        before, _ = backoff.after_termination(
            before, ended(ran=ran, at=now), now + 5, from_outside=False
        )
        assert before.failures == row
        assert parse_time(before.until) == now + backoff.delay_seconds(row, from_outside=False), (
            "counted from the end, not from when it was seen"
        )
        assert backoff.seconds_left(before, now + 1000) == 0


def test_the_end_of_a_pod_that_has_vanished_is_when_it_is_missed() -> None:
    first, _ = backoff.after_termination(None, None, 1000, from_outside=True)
    assert first == BackOff(failures=1, until=format_time(1000))
    soon, _ = backoff.after_termination(first, None, 1009, from_outside=True)
    assert soon == BackOff(failures=2, until=format_time(1010))
    late, _ = backoff.after_termination(first, None, 1010, from_outside=True)
    assert late == BackOff(failures=1, until=format_time(1010))


def test_a_kubelet_whose_clock_is_ahead_does_not_lengthen_a_wait() -> None:
    found, _ = backoff.after_termination(None, ended(ran=5, at=99_000), 1000, from_outside=False)
    assert found.until == format_time(1000)


# --- memory


@pytest.mark.parametrize(
    ("template", "most", "has", "memory", "text"),
    [
        (
            {"limits": {"memory": "1Gi"}},
            None,
            {"limits": {"memory": "1Gi"}},
            "2048Mi",
            "2048Mi of memory instead of 1024Mi",
        ),
        (
            {"requests": {"memory": "1Gi"}},
            None,
            {"requests": {"memory": "2Gi"}},
            "4096Mi",
            "maxMemory 4096Mi",
        ),
        (
            {"limits": {"memory": "1Gi"}},
            None,
            {"limits": {"memory": "4Gi"}},
            None,
            "all that maxMemory 4096Mi allows",
        ),
        (
            {"limits": {"memory": "1Gi"}},
            "1536Mi",
            {"limits": {"memory": "1Gi"}},
            "1536Mi",
            "maxMemory 1536Mi",
        ),
        (
            {"limits": {"memory": "1Gi"}},
            "512Mi",
            {"limits": {"memory": "1Gi"}},
            None,
            "with the same memory",
        ),
        ({}, None, {}, None, "it was the node"),
    ],
)
def test_memory_is_doubled_up_to_its_limit(
    template: dict[str, Any], most: str | None, has: dict[str, Any], memory: str | None, text: str
) -> None:
    body = {
        "template": {"spec": {"containers": [{"name": "train", "resources": template}]}},
        "maxMemory": most,
    }
    killed = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "train", "resources": has}]},
    }
    increased, note = increased_memory(
        msgspec.convert(body, ReplicaSpec), msgspec.convert(killed, Pod)
    )
    assert increased.get("memory") == memory
    assert text in note
