"""Tests a master's stored last answers: their size is bounded, and invalid ones do no harm."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from elasticjob_api import answers as stored
from elasticjob_api.answers import (
    MOST_BYTES,
    MOST_MEMBERS,
    MOST_TEXT,
    UnreadableAnswers,
    outcome,
    pack,
    unpack,
)
from elasticjob_api.elasticjob import ElasticJobStatus, Failure
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_dashboard.data import page_data
from hypothesis import given
from hypothesis import strategies as st


def full(rng: random.Random) -> pb.StoredAnswers:
    """Return the largest answers of a master, with texts that are incompressible when shortened."""

    def text(length: int) -> str:
        drawn = "".join(map(chr, rng.choices(range(33, 0x2FFF), k=min(length, 400))))
        return (drawn * (1 + length // 400))[:length]

    answers = pb.StoredAnswers(
        job_uid="u", time=5.0, status=pb.JobStatus(namespace="ns", job_name="job")
    )
    for number in range(MOST_MEMBERS):
        answers.members.members.add(
            pod_name=text(63), pod_uid=text(36), node_name=text(253), check_problem=text(5000)
        )
        answers.ranks[answers.members.members[-1].pod_uid] = number
    answers.member_counts["training"] = MOST_MEMBERS
    for number in range(240):
        metrics = {text(64): rng.random() for _ in range(8)}
        answers.history.samples.add(time=number, samples_per_second=rng.random(), metrics=metrics)
    for number in range(200):
        answers.history.events.add(time=number, reason=text(40), message=text(200))
    for _ in range(50):
        answers.plans.plans.add(name=text(63), reason=text(30_000), message=text(30_000))
    answers.status.progress.stragglers.extend(text(63) for _ in range(10_000))
    answers.status.progress.metrics.update({text(64): rng.random() for _ in range(64)})
    for _ in range(64):
        answers.status.datasets.add(dataset=text(64), total=10**9, done=10**9)
    answers.report.outcome.CopyFrom(
        outcome(
            ElasticJobStatus(
                phase="Failed", message=text(32_000), failures=[Failure(pod=text(63))] * 10
            )
        )
    )
    return answers


@pytest.mark.guarantee("answers-after-the-end")
def test_answers_of_any_size_fit_and_always_have_the_report() -> None:
    answers = full(random.Random(1))
    data = pack(answers)
    assert len(data) <= MOST_BYTES
    read = unpack(data)
    assert read.left_out == ["members", "metrics over time"]
    assert len(read.history.events) == 200
    assert read.report.outcome.phase == "Failed"
    assert read.member_counts["training"] == MOST_MEMBERS
    assert read.plans.plans[0].reason.endswith("…")
    smallest = pack(answers, most_bytes=1)
    least = unpack(smallest)
    assert least.left_out == ["members", "metrics over time", "events", "samples"]
    assert least.report == read.report
    assert len(smallest) <= MOST_BYTES, "so the rest always fits"
    assert len(answers.members.members) == MOST_MEMBERS, "what was given is left as it was"


def test_ordinary_answers_are_unpacked_unchanged() -> None:
    answers = pb.StoredAnswers(
        job_uid="u", time=5.25, ranks={"a": 1}, member_counts={"training": 1}
    )
    answers.status.progress.step = 7
    answers.members.members.add(
        pod_uid="a", state=agent_pb2.MEMBER_STATE_TRAINING, usage={"memory_bytes": 2**50}
    )
    answers.history.samples.add(
        time=4.5, step=2**53, metrics={"loss": 0.25, "huge": 1e300, "negative": -2.0}
    )
    answers.report.goodput = -1.0
    assert unpack(pack(answers)) == answers
    assert pack(answers) == pack(answers)
    some = pb.StoredAnswers(time=5.25, report=answers.report)
    assert unpack(pack(answers), only=("time", "report", "plans")) == some


def test_a_failed_pod_has_its_reason() -> None:
    failures = [
        Failure(
            pod="w-1",
            reason="OOMKilled",
            exit_code=137,
            finished_at="2026-01-01T00:00:00Z",
            message="bye",
        ),
        Failure(pod="w-0", exit_code=3, finished_at="no time"),
    ]
    status = ElasticJobStatus(
        phase="Running", restarts=2, completion_time="2026-01-01T00:01:00Z", failures=failures
    )
    told = outcome(status)
    assert [(each.pod, each.reason, each.time) for each in told.failures] == [
        ("w-1", "OOMKilled, exit code 137 (SIGKILL)", 1767225600.0),
        ("w-0", "exit code 3", 0.0),
    ]
    assert (told.phase, told.restarts, told.completed) == ("Running", 2, 1767225660.0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "damaged", id="nothing"),
        pytest.param(b"not gzip", "damaged", id="no archive"),
        pytest.param(gzip.compress(b"{}")[:-9], "damaged", id="cut"),
        pytest.param(gzip.compress(b"1"), "damaged", id="a number"),
        pytest.param(gzip.compress(b"\xff\xfe"), "damaged", id="no text"),
        pytest.param(gzip.compress(b'{"time": "a"}'), "damaged", id="another type"),
        pytest.param(gzip.compress(b'{"x":' * 2000), "damaged", id="deep"),
        pytest.param(gzip.compress(b" " * (MOST_TEXT + 1)), "longer than", id="long"),
        pytest.param(
            gzip.compress(random.Random(1).randbytes(MOST_BYTES + 1)),
            "a master writes at most",
            id="large",
        ),
    ],
)
def test_invalid_answers_are_refused_with_a_reason(data: bytes, why: str) -> None:
    for only in ((), ("time",)):
        with pytest.raises(UnreadableAnswers, match=why):
            unpack(data, only=only)


@pytest.mark.guarantee("answers-after-the-end")
def test_answers_of_another_writer_move_no_cursor_and_break_no_table() -> None:
    hostile = {
        "jobUid": "u\x1b[2J",
        "time": 1e300,
        "status": {
            "phase": 99,
            "progress": {"metrics": {"a\nb": 1, "loss": "NaN"}, "stragglers": ["\x07"]},
        },
        "members": {
            "members": [{"podName": "w\r0", "state": 77, "usage": {"cpuCores": "Infinity"}}]
        },
        "history": {"events": [{"time": -5, "reason": "A\tB", "message": "\x9b31m"}]},
        "fromLater": {"versions": 1},
    }
    read = unpack(gzip.compress(json.dumps(hostile).encode()))
    assert read.job_uid == "u [2J"
    assert read.time == stored._LAST_SECOND
    assert dict(read.status.progress.metrics) == {"loss": 0.0}
    assert list(read.status.progress.stragglers) == [" "]
    assert (
        read.status.phase,
        read.members.members[0].state,
        read.members.members[0].usage.cpu_cores,
    ) == (0, 0, 0.0)
    assert (read.history.events[0].time, read.history.events[0].reason) == (0.0, "A B")
    json.loads(page_data(read, ended=True))


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_names = st.sampled_from(
    ["time", "status", "members", "ranks", "memberCounts", "history", "plans", "report", "leftOut"]
)


@pytest.mark.guarantee("answers-after-the-end")
@given(st.dictionaries(_names, _json, max_size=4))
def test_any_json_is_read_or_refused(content: dict[str, object]) -> None:
    data = gzip.compress(json.dumps(content).encode())
    try:
        answers = unpack(data)
    except UnreadableAnswers:
        return
    assert unpack(data, only=("report",)) == pb.StoredAnswers(
        report=answers.report if answers.HasField("report") else None
    )
    json.loads(page_data(answers, ended=True))
