"""A job is shown to people."""

from __future__ import annotations

import json

import pytest
from elasticjob_api.v1 import agent_pb2, job_pb2, shards_pb2
from elasticjob_cli.common.formatting import format_bytes, format_duration
from elasticjob_cli.query.command import stack_lines
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic
from elasticjob_client.answers import StoredMaster
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shown import shown, shown_lines

STATUS = TOPIC_QUERIES[Topic.STATUS]


def member(
    index: int, *, state: agent_pb2.MemberState.ValueType = agent_pb2.MEMBER_STATE_TRAINING
) -> agent_pb2.Member:
    return agent_pb2.Member(
        pod_name=f"digits-worker-{index}", pod_uid=f"uid-{index}", role="worker", index=index,
        state=state, address=f"10.0.0.{index}", step=120,
        usage=agent_pb2.ResourceUsage(cpu_cores=0.5, memory_bytes=300 << 20),
    )  # fmt: skip


def snapshot() -> job_pb2.StoredAnswers:
    progress = job_pb2.Progress(
        step=120,
        total_steps=480,
        samples_per_second=1234.5,
        eta_seconds=83,
        last_report_time=1,
        metrics={"loss": 0.25},
    )
    ledger = shards_pb2.Ledger(dataset="train", total=480, done=120, leased=8, waiting=352)
    status = job_pb2.JobStatus(
        namespace="default", job_name="digits", phase=job_pb2.JOB_PHASE_TRAINING,
        round=3, world_size=2,
        progress=progress, datasets=[ledger], master_starts=2,
    )  # fmt: skip
    waiting = member(5, state=agent_pb2.MEMBER_STATE_WAITING)
    members = job_pb2.MemberList(members=[waiting, member(4), member(1)])
    return job_pb2.StoredAnswers(status=status, members=members, ranks={"uid-4": 0, "uid-1": 1})


def test_people_see_phase_world_progress_members_and_shards() -> None:
    lines = shown_lines(STATUS.render(snapshot()))
    for line in (
        "Phase Training",
        "World round 3, size 2",
        "Step 120/480 (25 %)",
        "Rate 1234.5 samples/s",
        "To go 1m 23s",
        "Master started 2 times",
        "worker 1 1 digits-worker-1 Training 10.0.0.1 120 0.50 300Mi",
        "worker 5 - digits-worker-5 Waiting 10.0.0.5 120 0.50 300Mi",
        "train 480 120 8 352 0 0",
    ):
        assert line in lines


def test_a_job_without_members_has_a_line_in_place_of_an_empty_table() -> None:
    status = job_pb2.JobStatus(namespace="default", job_name="digits")
    waiting = job_pb2.StoredAnswers(status=status)
    text = shown(STATUS.render(waiting))
    assert "no members now; `elasticjob describe digits` shows its pods" in text
    assert "ROLE" not in text


@pytest.mark.parametrize(
    ("is_last", "said", "job_phase"), [(True, "Succeeded", "Succeeded"), (False, "Finishing", "")]
)
async def test_a_job_without_a_master_has_the_phase_of_its_status(
    is_last: bool, said: str, job_phase: str
) -> None:
    stored = job_pb2.StoredAnswers(
        status=job_pb2.JobStatus(phase=job_pb2.JOB_PHASE_FINISHING),
        report=job_pb2.Report(outcome=job_pb2.Outcome(phase="Succeeded")),
    )
    found = await StoredMaster(stored, "it has ended", is_last=is_last).snapshot()
    assert f"Phase {said}" in shown_lines(STATUS.render(found))
    told = json.loads(STATUS.as_json(found))
    assert (told["jobPhase"], told["phase"]) == (job_phase, "JOB_PHASE_FINISHING")


def test_programs_see_ranks_and_zeros() -> None:
    found = json.loads(STATUS.as_json(snapshot()))
    assert [(entry["index"], entry["rank"]) for entry in found["members"]] == [
        (1, 1),
        (4, 0),
        (5, None),
    ]
    assert found["datasets"][0]["returned"] == "0"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (950, "950"), (1024, "1Ki"), (300 << 20, "300Mi"), (3 << 30, "3Gi")],
)
def test_sizes_are_written_as_quantities(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 2**63))
def test_every_size_is_short(count: int) -> None:
    assert len(format_bytes(count)) <= 6
    assert "e" not in format_bytes(count)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "-"), (12.4, "12s"), (200, "3m 20s"), (59.7, "1m 00s"), (7300, "2h 01m")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_stacks_have_the_programs_threads_only() -> None:
    names = ("elasticjob-read: recv < run", "loader: wait < run", "shards_renew: wait", "shards: x")
    group = job_pb2.StackGroup(ranks=[0], frames=["train"], other_threads=names)
    found = list(stack_lines(job_pb2.StackList(groups=[group])))
    assert [line for line in found if "thread" in line] == [
        "  thread loader: wait < run",
        "  thread shards: x",
    ]
