"""A job whose decisions are long waits for its turn, and the metrics name it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_operator.decision_costs import LONGEST_PAUSE_SECONDS, MAX_SERIES, DecisionCosts
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import WorkQueue

from tests.support.job_cluster import end_training, new_cluster, pod_names
from tests.support.master.virtual_time import VirtualLoop
from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster

pytestmark = pytest.mark.guarantee("one-job-delays-no-other")
CHEAP = JobKey("ns", "cheap")
DEAR = JobKey("ns", "dear")
CPU_SECONDS = {CHEAP: 0.01, DEAR: 2.0}


class Clock:
    """A clock that advances by `step` whenever it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def decided(costs: DecisionCosts, cpu: Clock, key: JobKey, seconds: float) -> None:
    with costs.measured(key):
        cpu.now += seconds


def test_a_job_with_long_decisions_gets_a_fifth_of_the_operator_whatever_adds_it() -> None:
    loop = VirtualLoop()
    costs = DecisionCosts(clock=loop.time, cpu_clock=loop.time)
    turns: Counter[JobKey] = Counter()

    async def decide(key: JobKey) -> float | None:
        with costs.measured(key):
            loop._now += CPU_SECONDS[key]  # nothing else runs meanwhile
        turns[key] += 1
        if key == DEAR:
            queue.add(key)  # as by a user who changes the job all the time
        return None

    queue = WorkQueue(decide, rest=costs.pause)

    async def main() -> None:
        queue.add(DEAR)
        for _ in range(500):
            queue.add(CHEAP)
            queue.add(DEAR)
            await asyncio.sleep(0.99)
        await queue.close()

    began = loop.time()
    loop.run(main())
    share = turns[DEAR] * CPU_SECONDS[DEAR] / (loop.time() - began)
    assert 0.15 < share <= 0.21
    assert turns[CHEAP] == 500


def cluster_with(costs: DecisionCosts) -> Cluster:
    cluster = new_cluster(replicas=2)
    cluster.operator.reconciler = replace(cluster.operator.reconciler, costs=costs)
    return cluster


async def test_other_jobs_have_their_turn_after_one_long_decision() -> None:
    costs = DecisionCosts(clock=Clock(), cpu_clock=Clock(step=2.0))
    cluster = cluster_with(costs)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await cluster.operator.watch()
    key = JobKey(NAMESPACE, JOB)
    assert await cluster.operator.reconciler.reconcile(key) == 0.0
    assert costs.by_job[key].count == 1
    assert costs.pause(key) == 7.5


async def test_a_lost_worker_of_an_ordinary_job_is_replaced_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = DecisionCosts(clock=Clock(), cpu_clock=Clock(step=0.01))
    cluster = cluster_with(costs)
    monkeypatch.setattr("time.time", lambda: cluster.now)
    await cluster.start()
    end_training(cluster, "job-worker-1", 1)
    key = JobKey(NAMESPACE, JOB)
    for _ in range(10):
        cluster.now += 5.0
        await cluster.operator.watch()
        await cluster.operator.reconciler.reconcile(key)
    assert "job-worker-1-1" in pod_names(cluster)
    assert costs.by_job[key].count > 10
    assert costs.pause(key) == 0.0


def test_the_pause_is_bounded_and_what_is_free_does_not_add_up() -> None:
    clock = Clock()
    cpu = Clock()
    costs = DecisionCosts(clock=clock, cpu_clock=cpu)
    decided(costs, cpu, DEAR, 100.0)
    assert costs.pause(DEAR) == LONGEST_PAUSE_SECONDS
    clock.now += 1000.0
    decided(costs, cpu, DEAR, 1.0)
    assert costs.pause(DEAR) == 2.5


def test_many_cheap_jobs_do_not_hide_an_expensive_one_from_the_metrics() -> None:
    cpu = Clock()
    costs = DecisionCosts(clock=Clock(), cpu_clock=cpu)
    for number in range(MAX_SERIES + 10):
        decided(costs, cpu, JobKey("ns", f"job-{number}"), 0.5)
    assert (len(costs.by_job), costs.of_others.count) == (MAX_SERIES, 10)
    decided(costs, cpu, DEAR, 1.0)
    assert (len(costs.by_job), costs.of_others.count) == (MAX_SERIES, 11)
    assert (costs.by_job[DEAR].seconds, costs.of_others.seconds) == (1.0, 5.5)


async def test_a_deleted_job_has_no_series() -> None:
    costs = DecisionCosts()
    cluster = cluster_with(costs)
    await cluster.start()
    key = JobKey(NAMESPACE, JOB)
    with costs.measured(key):
        pass
    await cluster.kube.delete(ELASTIC_JOBS, NAMESPACE, JOB)
    await cluster.operator.watch()
    await cluster.operator.reconciler.reconcile(key)
    assert costs.by_job == {}
