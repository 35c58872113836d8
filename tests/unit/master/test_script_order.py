"""Tests that a master orders each script once from one agent, and accepts only its result."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import format_time, parse_time
from elasticjob_master.cluster.job_spec import script_order
from elasticjob_master.cluster.progress_writer import progress_status
from elasticjob_master.core.progress import Progress
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.script_order import REPEAT_SECONDS, ScriptOrder, ScriptResult, Scripts

BEGUN = "2026-01-01T00:00:00Z"
START = parse_time(BEGUN)


def plan(**script: Any) -> ScalePlan:
    spec = {
        "jobName": "job",
        "script": "save",
        "env": [{"name": "A", "value": "b"}],
        "timeoutSeconds": 100,
        "removePods": [{"role": "worker", "index": 1}],
    }  # fmt: skip
    status = {
        "phase": "Executing", "before": {"worker": "0-2"}, "targets": {"worker": "0,2"},
        "script": {"startTime": BEGUN, **script},
    }  # fmt: skip
    return msgspec.convert(
        {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}, ScalePlan
    )


def member(role: str, index: int, slots: int = 1) -> Member:
    name = f"job-{role}-{index}"
    identity = Identity(name, f"uid-{name}", role, index, slots=slots)
    return Member(identity, 1, disconnected_since=None)


MEMBERS = [
    member("launcher", 0),
    member("worker", 2),
    member("worker", 1, slots=4),
    member("worker", 0),
]


def order() -> ScriptOrder:
    found = script_order([plan(pod="job-launcher-0")])
    assert found is not None
    return found


def test_only_a_script_whose_pod_is_stored_and_whose_end_is_not_known_is_ordered() -> None:
    assert order().until == START + 100
    assert script_order([plan()]) is None, "it was not run"
    assert script_order([plan(pod="job-launcher-0", completionTime=format_time(START + 5))]) is None
    assert script_order([]) is None


def test_the_order_goes_to_its_pod_with_the_changed_members_and_the_time_that_is_left() -> None:
    scripts = Scripts()
    scripts.set(order())
    sent = scripts.due(MEMBERS, 0.0, START + 40)
    assert sent is not None
    assert (sent.uid, sent.id, sent.pods) == ("uid-job-launcher-0", "u", "job-worker-1:4")
    assert (sent.script, sent.environment, sent.timeout_seconds) == ("save", (("A", "b"),), 60.0)


def test_it_is_repeated_until_there_is_a_result_or_its_time_is_over() -> None:
    scripts = Scripts()
    scripts.set(order())
    assert scripts.due(MEMBERS[1:], 0.0, START) is None, "its pod is not there"
    assert scripts.due(MEMBERS, 0.0, START) is not None
    assert scripts.due(MEMBERS, REPEAT_SECONDS - 1, START) is None
    assert scripts.due(MEMBERS, REPEAT_SECONDS, START) is not None
    assert scripts.due(MEMBERS, 9 * REPEAT_SECONDS, START + 100) is None
    scripts.ended(MEMBERS[0], "u", 0, "")
    assert scripts.due(MEMBERS, 99 * REPEAT_SECONDS, START) is None


def test_only_the_ordered_pod_sets_the_result_which_is_bounded_and_forgotten_with_the_order() -> (
    None
):
    scripts = Scripts()
    scripts.ended(MEMBERS[0], "u", 0, "")
    assert scripts.result is None, "nothing is ordered"
    scripts.set(order())
    scripts.ended(MEMBERS[1], "u", 0, "")
    scripts.ended(MEMBERS[0], "other", 0, "")
    assert scripts.result is None
    scripts.ended(MEMBERS[0], "u", -5, "x" * 9999)
    assert scripts.result == ScriptResult("u", 255, "x" * 2048)
    scripts.set(order())
    assert progress_status(Progress(), 0.0, script=scripts.result)["script"]["exitCode"] == 255
    scripts.set(None)
    assert scripts.result is None
