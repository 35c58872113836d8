"""What `elasticjob top` shows, in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus, Progress
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.v1 import agent_pb2, job_pb2
from elasticjob_cli.query.top import MOST_MEMBERS, bar, job_view, jobs_view, sparkline
from rich.console import RenderableType

from tests.support.shown import shown


def lines(view: RenderableType) -> list[str]:
    return shown(view, width=80).splitlines()


@pytest.mark.parametrize(
    ("done", "shown"),
    [(0.0, "░░░░"), (0.5, "██░░"), (0.53, "██▏░"), (1.0, "████"), (1.5, "████"), (-1.0, "░░░░")],
)
def test_a_bar_is_filled_by_eighths(done: float, shown: str) -> None:
    assert bar(done, 4) == shown


def test_a_sparkline_has_the_last_values_relative_to_the_largest() -> None:
    assert sparkline([9.0, 0.0, 4.0, 8.0], 3) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


def member(rank: int, **more: object) -> agent_pb2.Member:
    usage = agent_pb2.ResourceUsage(
        cpu_cores=1.5, memory_bytes=3 << 30, gpu_percent=87, gpu_memory_bytes=1
    )
    return agent_pb2.Member(
        pod_uid=str(rank), role="worker", index=100 + rank,
        state=agent_pb2.MEMBER_STATE_TRAINING, step=500,
        step_seconds=0.25, usage=usage, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def answers(count: int, rates: Sequence[float] = ()) -> job_pb2.StoredAnswers:
    members = [member(rank) for rank in range(count)]
    progress = job_pb2.Progress(
        step=500, total_steps=1000, samples_per_second=1234.5, eta_seconds=3700
    )
    status = job_pb2.JobStatus(
        namespace="team",
        job_name="digits",
        phase=job_pb2.JOB_PHASE_TRAINING,
        world_size=count,
        progress=progress,
    )
    history = job_pb2.History(samples=[job_pb2.Sample(samples_per_second=rate) for rate in rates])
    return job_pb2.StoredAnswers(
        status=status,
        members=job_pb2.MemberList(members=reversed(members)),
        ranks={member.pod_uid: rank for rank, member in enumerate(members)},
        history=history,
    )


def test_a_job_is_shown_with_progress_rate_and_its_members_by_rank() -> None:
    found = lines(job_view(answers(2, rates=(600.0, 1200.0))))
    assert found[0] == "team/digits  Training, world of 2"
    assert found[1] == f"{'█' * 15}{'░' * 15}  500/1000 (50 %)  1h 01m to go"
    assert found[2] == "▅█  1234.5 samples/s, at most 1234.5"
    assert [" ".join(line.split()) for line in found[3:]] == [
        "RANK MEMBER STATE STEP STEP TIME CPU MEMORY GPU",
        "0 worker-100 Training 500 0.25 s 1.50 3Gi 87 %",
        "1 worker-101 Training 500 0.25 s 1.50 3Gi 87 %",
    ]


def test_a_job_of_many_members_is_shown_with_the_first_ranks() -> None:
    found = lines(job_view(answers(MOST_MEMBERS + 70)))
    assert found[-1] == "and 70 more members"
    assert len(found) == MOST_MEMBERS + 4


def test_all_jobs_are_shown_with_their_latest_rates() -> None:
    progress = Progress(step=500, total_steps=1000, samples_per_second=10.0)
    jobs = [
        ElasticJob(
            metadata=ObjectMeta(name="digits", uid="1"),
            spec=ElasticJobSpec(framework="custom", replica_specs={}),
            status=ElasticJobStatus(phase="Running", progress=progress),
        )
    ]
    [_, row] = lines(jobs_view(jobs, {"1": [5.0, 10.0]}))
    assert row.split()[:2] == ["digits", "Running"]
    assert "█████░░░░░" in row
    assert "▅█" in row
