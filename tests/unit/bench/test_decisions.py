"""What an event costs the operator does not depend on the members that it does not concern."""

from __future__ import annotations

import pytest

from bench import decisions
from bench.job_events import RunningJob
from tests.support.work import steps


def steps_of(event: decisions.Event, members: int) -> float:
    """Return the steps of the operator for the second such event, which finds every cache full."""
    job = RunningJob(members)
    event(job, 0)
    job.measure = steps
    job.cost = 0.0
    event(job, 2)
    return job.cost


@pytest.mark.guarantee("very-large-jobs")
@pytest.mark.parametrize(
    "event", [decisions.lost_member, decisions.nothing_new], ids=lambda event: event.__name__
)
def test_an_event_takes_as_many_steps_with_ten_thousand_members_as_with_a_hundred(
    event: decisions.Event,
) -> None:
    assert steps_of(event, 10_000) <= 1.5 * steps_of(event, 100)


@pytest.mark.guarantee("very-large-jobs")
def test_a_plan_of_a_few_members_takes_as_many_steps_with_ten_thousand_members() -> None:
    assert steps_of(decisions.plan, 9_000) <= 1.5 * steps_of(decisions.plan, 100)
