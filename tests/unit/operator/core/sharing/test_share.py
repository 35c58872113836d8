"""What a pool decides, step by step, with jobs that take their time to shrink and to start."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from elasticjob_operator.core.sharing.model import Pool
from elasticjob_operator.core.sharing.share import share

from tests.support.shared_pool import Job, World


def pool(*capacity: int, policy: str = "Priority", **rules: float) -> Pool:
    """Return a pool of so many thousandths of each resource."""
    return Pool("p", policy, capacity, **{"cooldown_seconds": 60.0, **rules})  # type: ignore[arg-type]


def running(name: str, size: int, **fields: object) -> Job:
    """Return a job that has run at a size for long."""
    return Job(name, size, pods=size, **fields)  # type: ignore[arg-type]


def test_a_job_alone_gets_all_that_it_asks_for_and_is_left_alone() -> None:
    world = World(pool(8000), [Job("a", 8)])
    decisions = world.run(600)
    assert world.pods() == {"a": 8}
    assert not any(each.resizes or each.waiting for each in decisions[1:])


def test_the_lowest_priority_gives_members_until_the_higher_job_has_ended() -> None:
    a = running("a", 4)
    b = Job("b", 2, priority=10, since=1010.0)
    world = World(pool(4000), [a, b])
    world.run(100)
    assert world.pods() == {"a": 2, "b": 2}
    b.has_ended = True
    a.wanted = 4
    world.run(100)
    assert world.pods() == {"a": 4}


def test_a_plan_names_who_waits_and_what_it_costs() -> None:
    world = World(pool(4000), [running("a", 4), Job("b", 2, priority=10)])
    (plan,) = world.tick().resizes
    assert (plan.job, plan.size) == ("a", 2)
    assert "b (0 of 2 members, priority 10) waits" in plan.reason
    assert "a loses about 43% of its throughput" in plan.reason


def test_nobody_gets_members_before_those_that_leave_have_ended() -> None:
    world = World(pool(4000), [running("a", 4), Job("b", 2, priority=10)])
    world.tick()
    world.advance(5)
    assert world.tick().promised["b"] == 0
    world.advance(30)
    assert world.tick().promised["b"] == 2


def test_nothing_starts_and_nothing_is_taken_while_no_capacity_is_known() -> None:
    a = running("a", 4, wanted=6, member=(), fixed=())
    world = World(pool(), [a, Job("b", 2, priority=10, member=(), fixed=())])
    decisions = world.run(300)
    assert world.pods() == {"a": 4, "b": 0}
    assert not any(each.resizes for each in decisions)
    assert decisions[-1].waiting == {"b": "waits for room for 1 members in ElasticPool p"}


def test_a_job_of_equal_priority_waits_for_its_turn() -> None:
    world = World(pool(4000), [running("a", 4), Job("b", 2)])
    decisions = world.run(300)
    assert world.pods() == {"a": 4, "b": 0}
    assert not any(each.resizes for each in decisions)
    assert decisions[-1].waiting["b"] == "waits for room for 1 members in ElasticPool p"


def test_a_job_starts_with_what_is_free_and_gets_the_rest_later_without_a_plan() -> None:
    world = World(pool(6000), [running("a", 4), Job("b", 4)])
    decisions = world.run(60)
    assert world.pods() == {"a": 4, "b": 2}
    world.jobs["a"].has_ended = True
    decisions += world.run(60)
    assert world.pods() == {"b": 4}
    assert not any(each.resizes for each in decisions)


def test_what_the_first_of_two_jobs_leaves_free_goes_to_the_second_in_the_same_decision() -> None:
    jobs = [running("a", 5), running("b", 1, wanted=3), running("c", 1, wanted=3)]
    decision = World(pool(10_000, policy="Fair", reclaim_seconds=30.0), jobs).tick()
    assert decision.promised == {"a": 5, "b": 3, "c": 2}


def test_a_job_does_not_start_below_its_minimum() -> None:
    world = World(pool(6000), [running("a", 4), Job("b", 4, minimum=3)])
    world.run(60)
    assert world.pods()["b"] == 0


def test_a_large_job_gets_its_turn_although_small_ones_keep_coming() -> None:
    small = [Job(f"s{n:02}", 1, since=1002.0 + n) for n in range(20)]
    world = World(pool(4000), [running("a", 2), Job("big", 4, minimum=4, since=1001.0), *small])
    world.run(60)
    world.jobs["a"].has_ended = True
    world.run(60)
    assert world.pods()["big"] == 4


def test_a_job_that_never_fits_holds_nobody_up() -> None:
    world = World(pool(4000), [Job("huge", 9, minimum=9), Job("b", 2, since=1001.0)])
    world.run(60)
    assert world.pods() == {"huge": 0, "b": 2}


@pytest.mark.parametrize("policy", ["Priority", "Fair", "Throughput"])
def test_no_job_falls_below_its_minimum_for_any_number_of_others(policy: str) -> None:
    others = [Job(f"o{n}", 4, priority=10, since=1001.0 + n) for n in range(9)]
    world = World(pool(8000, policy=policy), [running("a", 8, minimum=3), *others])
    world.run(900)
    assert world.pods()["a"] == 3


def test_others_give_members_only_after_the_pool_s_patience() -> None:
    world = World(pool(4000, reclaim_seconds=100.0), [running("a", 4), Job("b", 2, priority=1)])
    assert not any(each.resizes for each in world.run(95))
    assert any(each.resizes for each in world.run(20))


def test_a_job_is_not_changed_twice_within_the_cooldown() -> None:
    world = World(
        pool(8000, cooldown_seconds=300.0),
        [running("a", 8), *(Job(f"b{n}", 1, priority=1, since=1000.0 + 30 * n) for n in range(7))],
    )
    changes = [
        world.now - 5
        for each in range(200)
        for sharing in [world.run(5)[0]]
        if any(resize.job == "a" for resize in sharing.resizes)
    ]
    assert len(changes) >= 2
    assert all(later - first >= 300 for first, later in pairwise(changes))


def test_a_job_that_is_nearly_done_is_left_alone_but_only_once() -> None:
    a = running("a", 4, left=90.0, ends_at=1090.0)
    world = World(pool(4000), [a, Job("b", 2, priority=1)])
    assert not any(each.resizes for each in world.run(200))  # it says so for ever
    assert any(each.resizes for each in world.run(60))


def test_a_pool_that_has_lost_nodes_takes_members_from_the_lowest_priority() -> None:
    world = World(pool(8000), [running("a", 4, priority=1), running("b", 4)])
    world.tick()
    world.pool = pool(6000)
    (plan,) = world.tick().resizes
    assert (plan.job, plan.size) == ("b", 2)
    assert "holds more than it has" in plan.reason


def test_fair_parts_follow_the_weights() -> None:
    jobs = [Job("a", 1, wanted=20, weight=3.0), Job("b", 1, wanted=20)]
    world = World(pool(12000, policy="Fair"), jobs)
    world.run(900)
    assert world.pods() == {"a": 9, "b": 3}


def test_fair_shares_change_only_if_that_is_worth_it() -> None:
    world = World(
        pool(21000, policy="Fair"), [running("a", 10, wanted=20), running("b", 10, wanted=20)]
    )
    assert not any(each.resizes for each in world.run(600))


def test_members_go_where_they_bring_most() -> None:
    flat = {1: 10.0, 4: 11.0}
    steep = {1: 10.0, 4: 40.0}
    jobs = [
        running("flat", 4, wanted=8, rates=flat, work=9000.0),
        running("steep", 4, wanted=8, rates=steep, work=9000.0),
    ]
    world = World(pool(8000, policy="Throughput"), jobs)
    world.run(900)
    assert world.pods()["steep"] > world.pods()["flat"] >= 2


def test_small_differences_move_nobody() -> None:
    jobs = [
        running("a", 4, wanted=8, rates={4: 40.0}, work=9000.0),
        running("b", 4, wanted=8, rates={4: 40.0}, work=11000.0),
    ]
    world = World(pool(8000, policy="Throughput"), jobs)
    assert not any(each.resizes for each in world.run(600))


def test_jobs_that_do_not_say_how_long_they_take_take_turns_at_nothing() -> None:
    """What is left does not seem to depend on the size, which would move members for ever."""
    jobs = [running(f"j{n}", n, minimum=1, wanted=2) for n in (1, 2)]
    world = World(pool(3000, policy="Throughput"), jobs)
    world.run(600)
    assert world.plans == 0


@pytest.mark.guarantee("pool-shares")
def test_a_job_that_lies_about_its_curve_and_its_end_takes_no_other_job_s_floor() -> None:
    liar = running("liar", 4, wanted=64, rates={1: 1.0, 4: 1e12}, left=1.0, ends_at=1e9)
    honest = [running(f"h{n}", 4, wanted=64, rates={4: 40.0}, work=20000.0) for n in range(3)]
    world = World(pool(16000, policy="Throughput"), [liar, *honest])
    world.run(1800)
    assert all(world.pods()[job.name] >= 2 for job in honest)


@pytest.mark.guarantee("pool-shares")
def test_what_a_job_says_of_its_end_counts_only_by_its_place_among_others() -> None:
    def sizes(first: float) -> list[int]:
        jobs = [running(f"j{n}", 4, wanted=16, rates={4: 40.0}, work=20000.0) for n in range(4)]
        jobs[0].work = first
        world = World(pool(16000, policy="Throughput"), jobs)
        world.run(1800)
        return [world.pods()[f"j{n}"] for n in range(4)]

    honest = sizes(19000.0)
    assert sizes(1.0) == honest
    assert max(honest) == honest[0] <= 8, "at most twice an equal part"


def test_a_job_that_claims_too_little_throughput_loses_only_its_own() -> None:
    def others(rates: dict[int, float]) -> list[int]:
        jobs = [running(f"j{n}", 4, wanted=16, rates={4: 40.0}, work=20000.0) for n in range(4)]
        jobs[0].rates = rates
        world = World(pool(16000, policy="Throughput"), jobs)
        world.run(1800)
        return [world.pods()[f"j{n}"] for n in range(1, 4)]

    honest = others({4: 40.0})
    liar = others({1: 40.0, 4: 40.0})
    assert all(more >= before for more, before in zip(liar, honest, strict=True))


def test_sizes_are_multiples_of_what_the_job_says() -> None:
    world = World(pool(15000, policy="Fair"), [Job("a", 4, wanted=16, step=4)])
    world.run(600)
    assert world.pods() == {"a": 12}


def test_every_resource_counts() -> None:
    jobs = [
        Job("cpu", 4, member=(1000, 0), fixed=(0, 0)),
        Job("both", 4, member=(1000, 2000), fixed=(0, 0), priority=-1),
    ]
    world = World(pool(8000, 5000), jobs)
    world.run(60)
    assert world.pods() == {"cpu": 4, "both": 2}


def test_masters_and_other_roles_count() -> None:
    world = World(pool(4000), [Job("a", 4, fixed=(500,))])
    world.run(60)
    assert world.pods() == {"a": 3}


def test_a_job_that_somebody_else_decides_about_is_not_touched() -> None:
    world = World(pool(4000), [running("a", 4), Job("b", 2, priority=1)])
    facts = world.facts()
    kept = [dataclasses.replace(facts[0], is_kept=True), facts[1]]
    assert not share(world.pool, kept, world.now).resizes
