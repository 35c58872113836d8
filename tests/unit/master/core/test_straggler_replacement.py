"""Replacing stragglers: that a slow node's member is replaced, and that nothing else does harm."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from elasticjob_api.health import Health
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec
from elasticjob_master.core import straggler_replacement
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.straggler_replacement import ReplacementMemory, Straggler, judge
from elasticjob_master.core.stragglers import Slowness
from elasticjob_master.job_facts import ObservedPlan, PlanFacts
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.master.scaling_memories import memory_of
from tests.support.master.straggling_job import EPOCH, OwnSeconds, StragglingJob
from tests.support.thorough import examples

HOUR = 3600
_NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A history takes a second: a smaller one that fails would be looked for too long."""


def slow_nodes(*nodes: str) -> OwnSeconds:
    """Return the times of members that are slow on these nodes."""
    return lambda member, _rank: 2.4 if member.identity.node_name in nodes else 1.0


def test_the_member_of_a_slow_node_is_replaced_once_with_a_reason_in_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.train(300, slow_nodes("node-2"))
    assert job.replaced == [], "not before it has lasted"
    job.train(4 * HOUR, slow_nodes("node-2"))
    [(at, member, reason)] = job.replaced
    assert member.identity.node_name == "node-2"
    assert 360 <= at <= 420
    assert reason == (
        f"{member.identity.pod_name} needs 2.4 s for a step, the median of its role 1 s, for 5 "
        "min: a pod as fast as "
        "the others saves 35 min of the next 60 min, and the change costs 30 s; replacement 1 of 3"
    )
    assert "spare" in {each.identity.node_name for each in job.world()}


def test_without_replace_a_straggler_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StragglingJob(monkeypatch, 4, health=Health())
    job.train(HOUR, slow_nodes("node-2"))
    assert job.replaced == []
    assert job.controller.health_monitor.stragglers
    job.set_health()
    job.train(400, slow_nodes("node-2"))
    assert len(job.replaced) == 1, "set while the job runs"


@pytest.mark.guarantee("straggler-replaced")
def test_a_rank_that_is_as_slow_on_another_node_is_not_replaced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 8)
    job.train(6 * HOUR, lambda _member, rank: 3.0 if rank == 0 else 1.0)
    assert len(job.replaced) == 1
    assert (
        "on another node: it is the work, not the node" in job.controller.scaling.replacer.why_not
    )
    job.train(HOUR, lambda _member, _rank: 1.0)
    assert job.controller.scaling.replacer.why_not == "", "what is over is not told"


def test_an_index_that_is_as_slow_on_another_node_is_not_replaced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 8)
    job.train(6 * HOUR, lambda member, _rank: 3.0 if member.identity.index in (5, 8) else 1.0)
    [(_, member, _)] = job.replaced
    assert member.identity.index == 5
    assert job.controller.scaling.replacer.why_not.startswith("j-worker-8")


def test_a_replacement_on_the_same_node_may_be_replaced_after_a_pause_that_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.next_node = "node-2"
    job.train(8 * HOUR, slow_nodes("node-2"))
    times = [at for at, _, _ in job.replaced]
    assert len(times) == 3, "the default of maxStragglerReplacements"
    assert times[1] - times[0] >= 600
    assert times[2] - times[1] >= 1200
    assert (
        job.controller.scaling.replacer.why_not
        == "maxStragglerReplacements is 3, and so many were replaced"
    )
    job.set_health(max_straggler_replacements=4)
    job.train(400, slow_nodes("node-2"))
    assert len(job.replaced) == 4


def test_where_more_than_a_few_are_slow_none_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StragglingJob(monkeypatch, 7)
    job.train(HOUR, slow_nodes("node-2", "node-3"))
    assert job.replaced == []
    assert job.controller.scaling.replacer.why_not == (
        "2 of the role worker are slow at the same time, so it is not their nodes"
    )


@pytest.mark.guarantee("straggler-replaced")
def test_a_pod_that_cannot_be_had_costs_no_replacement_and_is_asked_for_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.next_node = ""
    job.train(12 * HOUR, slow_nodes("node-2"))
    assert 4 <= len(job.replaced) <= 7
    assert {reason.rpartition(";")[2] for _, _, reason in job.replaced} == {" replacement 1 of 3"}
    job.next_node = "spare"
    job.train(7 * HOUR, slow_nodes("node-2"))
    assert not job.controller.health_monitor.stragglers


def test_a_restarted_master_knows_earlier_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.next_node = "node-2"
    for _ in range(20):
        job.train(HOUR, slow_nodes("node-2"))
        job.restart_master()
    assert len(job.replaced) == 3


def test_a_plan_whose_maker_was_killed_before_it_remembered_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(
        monkeypatch, 4, health=Health(on_straggler="Replace", max_straggler_replacements=1)
    )
    pod = job.world()[2].identity.pod_name
    plan = ScalePlan(metadata=ObjectMeta(name="p"), spec=ScalePlanSpec(job_name="j"))
    found = ObservedPlan(plan, 1, replaced_pod=pod)
    job.controller.scaling.observe(job.controller, PlanFacts((found,)))
    job.train(HOUR, slow_nodes("node-2"))
    assert job.replaced == []
    memory = job.controller.scaling.replacer.memory
    assert [(each.plan, each.pod, each.index) for each in memory.replaced] == [(1, pod, 2)]


@pytest.mark.guarantee("straggler-replaced")
def test_what_was_measured_with_a_straggler_is_forgotten_when_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    scaling = job.controller.scaling
    scaling.job_scaling = JobScaling("worker", 4, Bounds(1, 8), indices=frozenset(range(4)))
    rates = {2: 60.0, 4: 50.0}
    times = {2: EPOCH + 10, 4: EPOCH + 300}
    scaling.autoscaler.memory = memory_of(rates=rates, times=times, asked=4, settled=4, moves=3)
    job.train(200, lambda _member, _rank: 1.0)
    job.train(600, slow_nodes("node-2"))
    assert len(job.replaced) == 1
    memory = scaling.autoscaler.memory
    assert list(memory.rates.by_size) == [2], "this was measured before"
    assert (memory.search.settled_size, memory.search.plans) == (None, 0), "the search begins anew"


def test_a_failed_replacement_is_no_failed_plan_of_the_auto_scaler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.next_node = ""
    before = job.controller.scaling.autoscaler.memory
    job.train(HOUR, slow_nodes("node-2"))
    assert job.replaced
    assert job.controller.scaling.autoscaler.memory == before


def test_no_member_is_replaced_while_another_plan_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    job.observe_plan(1, "Executing")
    job.train(HOUR, slow_nodes("node-2"))
    assert job.replaced == []
    job.observe_plan(1, "Succeeded")
    job.train(8, slow_nodes("node-2"))
    assert len(job.replaced) == 1


def test_a_member_that_holds_what_others_save_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4, kept=True)
    job.train(HOUR, slow_nodes("node-2"))
    assert job.replaced == []
    assert "onWorldChange Keep" in job.controller.scaling.replacer.why_not


def slow_at(begin: int, end: int, every: int) -> Callable[[int], bool]:
    """Return whether a second lies between two others of each period."""
    return lambda second: begin <= second % every < end


def test_a_slow_checkpoint_of_rank_0_or_slow_storage_causes_no_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = StragglingJob(monkeypatch, 4)
    saves = slow_at(0, 200, 1200)
    storage = slow_at(600, 1200, 3000)

    def own(_member: Member, rank: int) -> float:
        return (20.0 if rank == 0 and saves(job.second) else 1.0) + (
            5.0 if storage(job.second) else 0.0
        )

    job.train(8 * HOUR, own)
    assert job.replaced == []


@pytest.mark.guarantee("straggler-replaced")
@settings(deadline=None, max_examples=examples(25), phases=_NO_SHRINKING)
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(3, 12),
    noise=st.floats(0, 0.5),
    burst=st.integers(0, 200),
)
def test_in_no_history_of_healthy_members_is_one_replaced(
    seed: int, members: int, noise: float, burst: int
) -> None:
    drawn = random.Random(seed)
    with pytest.MonkeyPatch.context() as monkeypatch:
        job = StragglingJob(monkeypatch, members)
        bursts = [drawn.randrange(600, 1200) for _ in range(members)]

        def own(_member: Member, rank: int) -> float:
            slow = job.second % bursts[rank] < burst
            return drawn.lognormvariate(0, noise) * (6.0 if slow else 1.0)

        job.train(2 * HOUR, own)
        assert job.replaced == []


@pytest.mark.guarantee("straggler-replaced")
@settings(deadline=None, max_examples=examples(10), phases=_NO_SHRINKING)
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(3, 12),
    nodes=st.sets(st.integers(0, 20), max_size=4),
    rank=st.integers(0, 20),
    most=st.integers(1, 5),
)
def test_in_no_history_are_more_replaced_than_allowed_or_one_that_is_not_slow(
    seed: int, members: int, nodes: set[int], rank: int, most: int
) -> None:
    drawn = random.Random(seed)
    slow_ones = {f"node-{number}" for number in nodes}
    with pytest.MonkeyPatch.context() as monkeypatch:
        health = Health(on_straggler="Replace", max_straggler_replacements=most)
        job = StragglingJob(monkeypatch, members, health=health)
        # By second and member, because a plan may fail, and the member then trains with a new rank.
        was_slow: dict[tuple[float, str], bool] = {}

        def own(member: Member, its: int) -> float:
            slow = its == rank or member.identity.node_name in slow_ones
            was_slow[job.second, member.uid] = slow
            return drawn.lognormvariate(0, 0.1) * (4.0 if slow else 1.0)

        for _ in range(10):
            job.next_node = drawn.choice(
                ("", "node-0", *(f"node-{number}" for number in range(20)))
            )
            job.train(HOUR // 2, own)
            if drawn.random() < 0.2:
                job.restart_master()
        assert all(was_slow[at, member.uid] for at, member, _ in job.replaced)
        times = [at for at, _, _ in job.replaced]
        assert all(after - before >= 600 for before, after in pairwise(times))
        memory = job.controller.scaling.replacer.memory
        assert len(memory.replaced) <= most
        assert memory.plans == len(job.replaced)
        # A pod that came to the same node says nothing about the work, and is replaced, too.
        of_rank = {each.node for each in memory.replaced if each.rank == rank}
        assert len(of_rank - slow_ones) <= 1


# --- the rules alone


def straggler(own: float, *, other: float = 1.0, waits: bool = True) -> Straggler:
    """Return a straggler of eight; the slowest other member takes `other` for a step."""
    member = Member(Identity("p", "u", "worker", 3, node_name="n"), 1, disconnected_since=None)
    times = member.step_times
    times.steps = 1.0
    times.seconds = own
    times.own_work = waits
    times.straggler = True
    return Straggler(Slowness(member, 1.0, other, 1, 8), rank=3, seconds=300.0, since=0.0)


@pytest.mark.parametrize(
    ("found", "horizon", "replaced"),
    [
        (straggler(2.0), 3600.0, True),
        (straggler(2.0), 119.0, False),
        (straggler(2.0), 121.0, True),
        (straggler(2.0, other=1.95), 2000.0, False),
        (straggler(2.0, waits=False), 900.0, False),
        (straggler(2.0, waits=False), 1000.0, True),
    ],
)
def test_one_is_replaced_only_if_the_time_saved_is_twice_the_cost(
    found: Straggler, horizon: float, replaced: bool
) -> None:
    verdict = judge(ReplacementMemory(), [found], most=3, cost=30.0, horizon=horizon, wall=0.0)
    assert (verdict.replace is found) == replaced
    if not replaced:
        assert (
            verdict.reason
            == "the training time saved until the end would not be worth a change of the world"
        )


def test_of_several_the_slowest_is_replaced_first() -> None:
    slow = straggler(2.5)
    slower = straggler(4.0)
    assert (
        judge(ReplacementMemory(), [slow, slower], most=3, cost=1.0, horizon=1e4, wall=0.0).replace
        is slower
    )


def test_what_is_said_of_several_does_not_change_with_who_is_the_slowest_at_present() -> None:
    memory = ReplacementMemory(next_at=1e9)
    reasons = set()
    said = ""
    for own in (3.0, 5.0, 3.0, 5.0):
        found = [straggler(own, waits=False), straggler(4.0)]
        said = judge(
            memory, found, most=3, cost=200.0, horizon=2000.0, wall=0.0, last_refusal=said
        ).reason
        reasons.add(said)
    assert len(reasons) == 1


def test_where_a_node_is_not_known_the_work_may_be_the_cause() -> None:
    found = straggler(3.0)
    earlier = straggler_replacement.Replaced(1, "q", "worker", 7, rank=3)
    memory = straggler_replacement.ended(
        straggler_replacement.created(ReplacementMemory(), earlier, 0.0), 8, 0.0
    )
    assert judge(memory, [found], most=3, cost=1.0, horizon=1e4, wall=1e6).replace is None
