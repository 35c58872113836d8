"""Jobs in a queue of Kueue give members for Workloads that wait, and only for those."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticpool import Policy
from elasticjob_operator.core.model.cluster_queue import LocalQueue
from elasticjob_operator.core.model.workload import REPLACEMENT_FOR
from elasticjob_operator.core.sharing.cluster_queue import QueueUse, use_of, waiter, why_not_shared
from elasticjob_operator.core.sharing.facts import Memory
from elasticjob_operator.core.sharing.model import Pool
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shared_queue import (
    BEGIN,
    LOCAL_QUEUES,
    QUEUE,
    Elastic,
    Foreign,
    QueueWorld,
    cluster_queue_of,
    workload_of,
)

HALF_AN_HOUR = 1800.0


def world(
    *others: Foreign, jobs: tuple[Elastic, ...] = (), cpu: int = 8, policy: Policy = "Priority"
) -> QueueWorld:
    """Return a queue of 8 CPUs in which a job with 8 members may have one."""
    elastic = list(jobs) or [Elastic("low", 8)]
    return QueueWorld(Pool("p", policy, (), cooldown_seconds=60), cpu, elastic, list(others))


def urgent(cpu: int, **fields: Any) -> Foreign:
    return Foreign("urgent", cpu, priority=1, **fields)


def sizes(found: QueueWorld) -> dict[str, int]:
    return {name: job.desired for name, job in found.jobs.items()}


def test_a_job_gives_what_is_missing_and_gets_it_back_when_nobody_waits() -> None:
    found = world(urgent(3))
    found.run(120)
    assert sizes(found) == {"low": 5}
    assert found.others[0].admitted
    found.others[0].has_ended = True
    found.run(120)
    assert sizes(found) == {"low": 8}
    assert len(found.plans) == 2


@pytest.mark.parametrize("waits", [Foreign("equal", 3), urgent(8), urgent(9)])
def test_nobody_gives_for_a_workload_of_equal_priority_or_that_would_not_fit(
    waits: Foreign,
) -> None:
    found = world(waits)
    found.run(300)
    assert sizes(found) == {"low": 8}
    assert found.plans == []


def test_a_workload_that_vanishes_while_members_leave_costs_one_plan_each_way() -> None:
    found = world(urgent(3))
    found.run(10)
    found.others[0].has_ended = True
    found.run(HALF_AN_HOUR)
    assert sizes(found) == {"low": 8}
    assert len(found.plans) == 2


def test_a_workload_that_lacked_something_else_is_given_for_twice_an_hour_at_most() -> None:
    found = world(urgent(3, is_picky=True))
    found.run(300)
    assert sizes(found) == {"low": 8}, "its quota is not kept for it"
    found.run(2 * HALF_AN_HOUR)
    assert len(found.plans) <= 6


def test_two_workloads_get_what_they_need_together() -> None:
    found = world(urgent(2), Foreign("second", 3, priority=1, created=BEGIN + 60))
    found.run(300)
    assert [each.admitted for each in found.others] == [True, True]
    assert sizes(found) == {"low": 3}


def test_a_plan_that_grows_is_withdrawn_when_another_workload_comes() -> None:
    found = world(urgent(3, created=BEGIN + 5), jobs=(Elastic("low", 8, desired=4),))
    found.jobs["low"].requested = 8
    found.jobs["low"].requested_at = BEGIN
    found.cpu = 6
    found.run(300)
    assert found.others[0].admitted
    assert sizes(found) == {"low": 3}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cohortName": "c"}, "is in cohort 'c'"),
        ({"resourceGroups": [{"flavors": [{}, {}]}]}, "has several flavors for a resource"),
    ],
)
def test_a_queue_whose_free_quota_is_not_known_is_refused(change: Any, why: str) -> None:
    assert why in why_not_shared(QUEUE, cluster_queue_of(8, **change))
    assert why_not_shared(QUEUE, cluster_queue_of(8)) == ""
    assert "does not exist" in why_not_shared(QUEUE, None)


def test_nothing_changes_while_more_is_held_than_the_queue_has() -> None:
    found = world(urgent(3))
    found.cpu = 6
    assert found.decide().resizes == ()


def test_a_workload_in_a_queue_that_is_stopped_does_not_wait_for_quota() -> None:
    spec = {"clusterQueue": QUEUE, "stopPolicy": "Hold"}
    stopped = msgspec.convert({"metadata": {"name": "team"}, "spec": spec}, LocalQueue)
    queues = {("ns", "team"): stopped}
    found = use_of(cluster_queue_of(8), [workload_of("waits", 1)], queues, (), ())
    assert found.waiting == ()


def use(*workloads: Any, running: tuple[str, ...] = ()) -> QueueUse:
    return use_of(cluster_queue_of(8), workloads, LOCAL_QUEUES, running, ())


def test_only_a_workload_that_lacks_quota_of_this_queue_waits() -> None:
    said = "insufficient unused quota for cpu. Pending the preemption of 1 workload(s)"
    controller = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    found = use(
        workload_of("waits", 1),
        workload_of("preempts", 1, message=said),
        workload_of("waits-for-nodes", 1, message="untolerated taint"),
        workload_of("deactivated", 1, active=False),
        workload_of("elsewhere", 1, queueName="other"),
        workload_of("growth", 1, metadata={"annotations": {REPLACEMENT_FOR: "ns/a"}}),
        workload_of("own", 1, metadata={"ownerReferences": [controller]}),
        running=("j",),
    )
    assert [each.metadata.name for each in found.waiting] == ["waits"]


def test_a_workload_and_the_one_that_it_replaces_are_counted_once() -> None:
    larger = {"annotations": {REPLACEMENT_FOR: "ns/before"}}
    found = use(
        workload_of("before", 2, admitted=True),
        workload_of("after", 3, admitted=True, metadata=larger),
    )
    assert found.others == (3000,)


def test_texts_do_not_name_workloads_of_other_namespaces() -> None:
    found = waiter(workload_of("secret", 1, namespace="b"), Memory(), ("cpu",), "a", {})
    assert "secret" not in found.name.replace("uid-of-s", "")
    assert waiter(workload_of("known", 1), Memory(), ("cpu",), "ns", {}).name == "Workload known"


def test_a_workload_that_may_be_admitted_in_part_waits_for_its_least_pods() -> None:
    sets = [{"name": "main", "count": 4, "minCount": 2}]
    found = waiter(workload_of("w", 8, podSets=sets), Memory(), ("cpu",), "ns", {})
    assert (found.minimum, found.wanted, found.member, found.fixed) == (2, 4, (2000,), (0,))


@st.composite
def worlds(draw: st.DrawFn) -> QueueWorld:
    """Return a queue with elastic jobs and Workloads that come, stay and end."""
    cpu = draw(st.integers(2, 16))
    jobs = []
    left = cpu
    for position in range(draw(st.integers(1, 3))):
        if left:
            size = draw(st.integers(1, left))
            left -= size
            least = draw(st.integers(1, size))
            jobs.append(Elastic(f"j{position}", size, least, draw(st.integers(0, 2))))
    others = [
        Foreign(
            f"w{position}",
            draw(st.integers(1, 8)),
            draw(st.integers(0, 2)),
            BEGIN + draw(st.integers(0, 600)),
            is_picky=draw(st.sampled_from([False, False, True])),
        )
        for position in range(draw(st.integers(0, 4)))
    ]
    policy: Policy = draw(st.sampled_from(["Priority", "Fair", "Throughput"]))
    pool = Pool("p", policy, (), cooldown_seconds=draw(st.sampled_from([20.0, 60.0])))
    return QueueWorld(pool, cpu, jobs, others)


@pytest.mark.guarantee("queue-shares")
@given(worlds(), st.randoms(use_true_random=False))
def test_no_job_gets_less_than_its_minimum_and_what_matters_is_given_back(
    found: QueueWorld, chance: Any
) -> None:
    for _ in range(4):
        found.run(150)
        for each in found.others:
            each.has_ended |= chance.random() < 0.2
    for each in found.others:
        each.has_ended = True
    found.run(400)
    # A fifth of its size is worth a change of a job.
    assert all(job.wanted < 1.2 * job.desired for job in found.jobs.values())


@given(worlds())
def test_a_queue_in_which_nothing_happens_comes_to_rest(found: QueueWorld) -> None:
    for each in found.others:
        each.is_picky = False
    found.run(900)
    before = len(found.plans)
    found.run(600)
    assert len(found.plans) == before


def test_jobs_that_were_created_together_keep_what_they_have() -> None:
    jobs = (Elastic("a", 4, 1, 1), Elastic("b", 7, 4), Elastic("c", 1, 1, 2))
    found = world(Foreign("w", 2, 2, BEGIN + 522), jobs=jobs, cpu=12, policy="Throughput")
    found.pool = Pool("p", "Throughput", (), cooldown_seconds=20)
    found.run(900)
    before = len(found.plans)
    found.run(600)
    assert len(found.plans) == before


@given(worlds())
def test_a_workload_of_the_highest_priority_gets_quota_if_all_could_give_enough(
    found: QueueWorld,
) -> None:
    found.pool = Pool("p", "Priority", (), cooldown_seconds=20)
    least = sum(job.minimum for job in found.jobs.values())
    found.others = [Foreign("first", found.cpu - least, priority=3)] if found.cpu > least else []
    found.run(200)
    assert all(each.admitted for each in found.others)
    freed = sum(job.wanted - job.desired for job in found.jobs.values())
    unused = found.cpu - sum(job.wanted for job in found.jobs.values())
    assert freed == sum(max(0, each.cpu - unused) for each in found.others)
