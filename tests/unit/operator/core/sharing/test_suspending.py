"""A pool that may suspends jobs of lower priority, as the last resort for one that cannot start."""

from __future__ import annotations

import pytest
from elasticjob_api.elasticpool import Policy
from elasticjob_operator.core.sharing.model import Pool
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shared_pool import Job, World


def world(*jobs: Job, policy: Policy = "Priority", suspends: bool = True, cpu: int = 4) -> World:
    """Return a pool with so many CPUs."""
    return World(
        Pool("p", policy, (cpu * 1000,), cooldown_seconds=60, suspends=suspends), list(jobs)
    )


def running(name: str, size: int, minimum: int = 1, priority: int = 0, since: float = 0.0) -> Job:
    return Job(name, size, minimum, priority=priority, since=since, pods=size)


def urgent(size: int) -> Job:
    return Job("urgent", size, size, priority=9, since=1001.0)


def test_a_job_is_suspended_for_one_that_cannot_start_otherwise_and_resumes_first() -> None:
    found = world(running("low", 4, 2), urgent(3))
    found.run(60)
    assert found.pods() == {"low": 0, "urgent": 3}
    found.jobs["later"] = Job("later", 4, since=found.now)
    found.run(60)
    assert found.pods()["later"] == 0, "nobody of its rank passes it"
    found.jobs["urgent"].has_ended = True
    found.run(60)
    assert found.pods()["low"] >= 2


def test_its_reason_says_for_whom() -> None:
    found = world(running("low", 4, 2), urgent(3))
    found.advance()
    sharing = found.tick()
    assert sharing.suspended == {"low": "for urgent (0 of 3 members, priority 9)"}
    assert sharing.resizes == ()


@pytest.mark.parametrize(
    "found",
    [
        world(running("low", 4, 2), urgent(3), suspends=False),
        world(running("low", 4, 2), urgent(2)),
        world(running("equal", 4, 2, priority=9), urgent(3)),
        world(running("low", 4, 2), urgent(5)),
    ],
    ids=["not allowed", "shrinking is enough", "equal priority", "not even then"],
)
def test_nobody_is_suspended_without_need(found: World) -> None:
    assert not any(each.suspended for each in found.run(120))


def test_a_job_that_has_just_been_changed_is_not_suspended() -> None:
    low = running("low", 4, 2)
    low.changed = 1000.0
    found = world(low, urgent(3))
    assert not any(each.suspended for each in found.run(55))
    assert any(each.suspended for each in found.run(60))


def test_the_lowest_are_suspended_and_no_more_than_necessary() -> None:
    found = world(
        running("mid", 2, 2, priority=5),
        running("small", 1, priority=1),
        running("lowest", 3, 3, priority=0),
        urgent(3),
        cpu=6,
    )
    found.run(120)
    assert found.pods() == {"mid": 2, "small": 1, "lowest": 0, "urgent": 3}


def test_a_small_job_runs_on_if_another_one_must_be_suspended_anyway() -> None:
    small = running("small", 1)
    found = world(small, running("large", 3, 3, priority=1), urgent(3))
    found.run(120)
    assert found.pods() == {"small": 1, "large": 0, "urgent": 3}


def test_a_pool_that_has_lost_room_suspends_nobody_for_one_that_has_not_waited_long_enough() -> (
    None
):
    found = world(running("low", 4, 2), urgent(3), cpu=3)
    found.pool = Pool("p", "Priority", (3000,), reclaim_seconds=600, suspends=True)
    found.advance()
    sharing = found.tick()
    assert sharing.suspended == {}
    assert [(each.job, each.size) for each in sharing.resizes] == [("low", 3)]


@st.composite
def full_pools(draw: st.DrawFn) -> World:
    """Return a full pool, and jobs that arrive."""
    jobs = []
    cpu = 0
    for position in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        cpu += size
        jobs.append(
            running(f"j{position}", size, draw(st.integers(1, size)), draw(st.integers(0, 2)))
        )
    for position in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 6))
        since = 1000.0 + draw(st.integers(0, 200))
        jobs.append(
            Job(f"late-{position}", size, size, priority=draw(st.integers(0, 3)), since=since)
        )
    return world(*jobs, cpu=cpu)


@pytest.mark.guarantee("pool-shares")
@given(full_pools())
def test_only_jobs_of_lower_priority_than_one_that_waits_are_suspended(found: World) -> None:
    for _ in range(60):
        ranks = {job.name: job.priority for job in found.facts()}
        sharing = found.tick()
        waiting = [ranks[name] for name in sharing.waiting if name not in sharing.suspended]
        started = [ranks[name] for name, size in sharing.promised.items() if size]
        for name in sharing.suspended:
            assert ranks[name] < max(waiting + started)
        found.check()
        found.advance(10)
        found.check()


@given(full_pools())
def test_suspended_jobs_resume_when_those_for_which_they_were_have_ended(found: World) -> None:
    found.run(300)
    late = [job for job in found.jobs.values() if job.name.startswith("late")]
    for job in late:
        job.has_ended = True
    found.run(200)
    assert all(job.pods >= job.minimum for job in found.jobs.values() if job not in late)
