"""What holds of a pool for any jobs, arrivals, ends and losses, and wherever the operator dies."""

from __future__ import annotations

import random
from typing import Any

import pytest
from elasticjob_api.elasticpool import Policy
from elasticjob_operator.core.sharing.model import Pool
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shared_pool import Job, World

POLICIES: st.SearchStrategy[Policy] = st.sampled_from(["Priority", "Fair", "Throughput"])


@st.composite
def jobs(draw: st.DrawFn, position: int) -> Job:
    """Return a job that arrives in the first minutes, with bounds and claims of any kind."""
    minimum = draw(st.integers(1, 4))
    desired = draw(st.integers(minimum, 10))
    return Job(
        f"j{position}",
        desired,
        minimum=minimum,
        wanted=draw(st.integers(desired, 16)),
        member=(draw(st.integers(1, 3)) * 1000, draw(st.integers(0, 4)) * 1000),
        fixed=(draw(st.integers(0, 500)), 0),
        priority=draw(st.integers(0, 2)),
        since=1000.0 + draw(st.integers(0, 300)),
        step=draw(st.sampled_from([1, 1, 2, 4])),
        weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
        rates=draw(st.dictionaries(st.integers(1, 16), st.floats(1e-3, 1e12), max_size=4)),
        left=draw(st.none() | st.floats(0, 1e9)),
        ends_at=draw(st.none() | st.floats(0, 1e5)),
        work=draw(st.none() | st.floats(1, 1e6)),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Return a pool and jobs that arrive."""
    policy = draw(POLICIES)
    pool = Pool(
        "p",
        policy,
        (draw(st.integers(4, 30)) * 1000, draw(st.integers(4, 60)) * 1000),
        reclaim_seconds=draw(st.sampled_from([0.0, 30.0])),
        cooldown_seconds=draw(st.sampled_from([20.0, 60.0])),
        suspends=policy == "Priority" and draw(st.booleans()),
    )
    return World(pool, [draw(jobs(position)) for position in range(draw(st.integers(1, 8)))])


@pytest.mark.guarantee("pool-shares")
@given(worlds(), st.randoms(use_true_random=False), st.booleans())
def test_a_pool_never_holds_more_than_there_is_wherever_its_operator_dies(
    world: World, chance: random.Random, dies: bool
) -> None:
    for _ in range(60):
        killed = chance.randrange(3) if dies and chance.random() < 0.3 else None
        world.tick(killed_after=killed)
        world.check()
        world.advance(chance.choice([1.0, 5.0, 20.0]))
        world.check()
        ended = [job for job in world.jobs.values() if job.pods and chance.random() < 0.02]
        for job in ended:
            job.has_ended = True


@given(worlds())
def test_a_pool_comes_to_rest_and_stays_there(world: World) -> None:
    world.run(600)
    for job in world.jobs.values():
        job.work = None if job.work is None else max(job.work, 1e6)
    world.run(900)
    before = world.pods()
    plans = world.plans
    world.run(300)
    assert world.pods() == before
    assert world.plans == plans


@given(worlds())
def test_the_same_state_decided_again_changes_nothing_more(world: World) -> None:
    world.run(150)
    world.tick()
    again = world.tick()
    assert not again.resizes
    assert dict(again.promised) == world.promised


@given(worlds())
def test_a_job_alone_is_never_touched(world: World) -> None:
    first = next(iter(world.jobs.values()))
    first.since = 0.0
    first.wanted = first.desired
    alone = World(world.pool, [first])
    decisions = alone.run(300)
    assert not any(each.resizes for each in decisions)


def test_ten_thousand_jobs_are_decided_at_once() -> None:
    chance = random.Random(1)
    world = World(Pool("p", "Fair", (60_000_000,)), [_small(chance, n) for n in range(10_000)])
    sharing = world.tick()
    assert sum(sharing.promised.values()) <= 60_000


def _small(chance: random.Random, number: int) -> Job:
    size = chance.randint(1, 16)
    fields: dict[str, Any] = {"priority": chance.randint(0, 2), "wanted": 16}
    return Job(f"j{number}", size, pods=chance.choice([0, 4]), **fields)


@pytest.mark.parametrize("policy", ["Priority", "Fair", "Throughput"])
def test_a_job_that_waits_always_starts_when_enough_others_have_ended(policy: str) -> None:
    pool = Pool("p", policy, (8000,))  # type: ignore[arg-type]
    others = [Job(f"o{n}", 4, pods=4, priority=5) for n in range(2)]
    world = World(pool, [*others, Job("late", 3, minimum=3, since=1001.0)])
    world.run(60)
    for other in others:
        other.has_ended = True
    world.run(60)
    assert world.pods()["late"] >= 3
