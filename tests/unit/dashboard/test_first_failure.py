"""Checks which process is named as the one whose failure ended the job."""

from __future__ import annotations

import pytest
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_dashboard.first_failure import first_failure

END = 1000.0


def failed(*failures: tuple[float, str, str], phase: str = "Failed") -> pb.StoredAnswers:
    """Return the answers of a job whose pods have failed: time, pod and reason, the last first."""
    answers = pb.StoredAnswers()
    outcome = answers.report.outcome
    outcome.phase = phase
    outcome.completed = END
    for time, pod, reason in failures:
        outcome.failures.add(time=time, pod=pod, reason=reason, message=f"words of {pod}")
    return answers


def add(answers: pb.StoredAnswers, *events: tuple[float, str, str]) -> None:
    for time, reason, message in events:
        answers.history.events.add(time=time, reason=reason, message=message)


@pytest.mark.guarantee("page-shows-the-job")
def test_the_first_process_in_the_order_of_the_master_is_named_not_the_first_pod_to_end() -> None:
    answers = failed((END - 1, "w-1", "exit code 7"), (END - 2, "w-0", "exit code 1"))
    add(
        answers,
        (END - 9, "ProcessFailed", "w-5 (rank 5) in round 1: exit code 3"),
        (END - 8, "WorldFormed", "round 2 with 3 members"),
        (END - 3, "ProcessFailed", "w-1 (rank 2) in round 2: exit code 7"),
        (END - 3, "ProcessFailed", "w-0 (rank 0) in round 2: exit code 1"),
        (END - 2, "WorldFormed", "round 3 with 1 members"),
    )
    assert first_failure(answers) == {
        "pod": "w-1",
        "how": "(rank 2) in round 2: exit code 7",
        "message": "words of w-1",
    }


@pytest.mark.guarantee("page-shows-the-job")
def test_a_pod_that_was_killed_with_its_agent_is_named_by_its_own_failure() -> None:
    answers = failed(
        (END - 1, "w-1", "exit code 1"),
        (END - 2, "w-0", "OOMKilled, exit code 137 (SIGKILL)"),
        (END - 900, "w-2", "exit code 1"),
    )
    add(answers, (END - 900, "ProcessFailed", "w-2 (rank 2) in round 1: exit code 1"))
    assert first_failure(answers) == {
        "pod": "w-0",
        "how": "OOMKilled, exit code 137 (SIGKILL)",
        "message": "words of w-0",
    }


@pytest.mark.guarantee("page-shows-the-job")
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(failed(), id="no pod has failed"),
        pytest.param(failed((END - 61, "w-0", "exit code 1")), id="failed for another reason"),
        pytest.param(failed((END - 1, "w-0", "exit code 1"), phase="Stopped"), id="stopped"),
        pytest.param(failed((END - 1, "w-0", "exit code 1"), phase="Running"), id="goes on"),
    ],
)
def test_no_process_is_named_where_none_has_ended_the_job(answers: pb.StoredAnswers) -> None:
    assert first_failure(answers) is None
