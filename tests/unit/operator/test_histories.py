"""Whole histories of a job against a cluster in memory: faults, requests, and an operator that dies at any write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.model.actions import CreatePlan
from elasticjob_operator.core.scaling.plan_manifests import plan_for_scaler
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulator.world import World, pick

Json = dict[str, Any]


def status(world: World, resource: Any, name: str) -> Json:
    found: Json = world.kube.objects[resource, name].get("status", {})
    return found


def pod_names(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.kube.pods()]


async def test_a_job_gets_its_master_and_its_workers_and_then_is_left_alone() -> None:
    world = World(replicas=3)
    await world.start()
    assert pod_names(world) == ["job-worker-0", "job-worker-1", "job-worker-2"]
    assert [pod["metadata"]["name"] for pod in world.kube.pods(names.ROLE_MASTER)] == ["job-master"]
    assert status(world, ELASTIC_JOBS, "job")["phase"] == "Running"
    writes = world.kube.writes
    await world.turn()
    await world.turn()
    assert world.kube.writes == writes, "writes at rest"


async def test_scale_out_adds_members_and_the_spec_follows() -> None:
    world = World(replicas=2)
    await world.start()
    await world.ask(SCALE_OUTS, "more", count=2)
    await world.settle()
    assert status(world, SCALE_OUTS, "more")["phase"] == "ScaleSucceeded"
    assert sorted(status(world, SCALE_OUTS, "more")["pods"]) == ["job-worker-2", "job-worker-3"]
    assert world.job().spec.replica_specs["worker"].replicas == 4
    world.check_at_rest()


async def test_scale_in_of_a_named_pod_drains_it_and_its_index_gets_a_new_name_later() -> None:
    world = World(replicas=3)
    await world.start()
    await world.ask(SCALE_INS, "less", podNames=["job-worker-1"])
    await world.settle()
    assert pod_names(world) == ["job-worker-0", "job-worker-2"]
    (plan,) = world.kube.of(SCALE_PLANS)
    assert plan["status"]["removedPods"] == ["job-worker-1"]
    assert "drainingPods" not in plan["status"], "only who is draining now"
    assert not plan["status"].get("forcedPods")
    await world.ask(SCALE_OUTS, "more", count=1)
    await world.settle()
    assert pod_names(world) == ["job-worker-0", "job-worker-1-1", "job-worker-2"]
    world.check_at_rest()


async def test_a_drain_that_is_not_confirmed_ends_at_its_deadline_and_is_recorded() -> None:
    world = World(replicas=2)
    await world.start()
    await world.ask(SCALE_INS, "less", count=1)
    for _ in range(20):
        await world.turn()
        for pod in world.kube.of(PODS):
            if "deletionTimestamp" in pod["metadata"]:
                world.kube.remove(PODS, pod["metadata"]["name"])
    (plan,) = world.kube.of(SCALE_PLANS)
    assert plan["status"]["forcedPods"] == ["job-worker-1"]
    assert status(world, SCALE_INS, "less")["phase"] == "ScaleSucceeded"


async def test_an_edit_of_replicas_is_a_plan_and_a_refused_edit_is_tried_once() -> None:
    world = World(replicas=2, autoscaling={"resourceLimits": {"cpu": "4"}})
    await world.start()
    world.kube.edit(ELASTIC_JOBS, "job", lambda spec: spec["replicaSpecs"]["worker"].update(replicas=4))
    await world.settle()
    assert len(pod_names(world)) == 4
    world.kube.edit(ELASTIC_JOBS, "job", lambda spec: spec["replicaSpecs"]["worker"].update(replicas=5))
    await world.settle()
    assert len(pod_names(world)) == 4
    assert [plan["status"]["phase"] for plan in world.kube.of(SCALE_PLANS)] == ["Succeeded", "Failed"]
    world.check_at_rest()


async def test_requests_are_carried_out_in_the_order_of_their_creation() -> None:
    world = World(replicas=2)
    await world.start()
    await world.ask(SCALE_OUTS, "a", count=4)
    await world.ask(SCALE_INS, "b", count=3)
    await world.ask(SCALE_OUTS, "c", count=4)
    await world.settle()
    assert status(world, SCALE_OUTS, "c")["message"].startswith("spec.count: 4 more than 3: 7")
    assert status(world, SCALE_OUTS, "a")["phase"] == status(world, SCALE_INS, "b")["phase"] == "ScaleSucceeded"
    assert world.job().spec.replica_specs["worker"].replicas == 3
    world.check_at_rest()


async def test_of_the_auto_plans_that_wait_only_the_newest_is_carried_out() -> None:
    world = World(replicas=1)
    await world.start()
    for number, size in enumerate((2, 3, 4)):
        await world.ask(
            SCALE_PLANS, f"auto-{number}", source="Auto", replicaResourceSpecs={"worker": {"replicas": size}}
        )
    await world.settle()
    assert [plan["status"]["phase"] for plan in world.kube.of(SCALE_PLANS)] == ["Superseded", "Superseded", "Succeeded"]
    assert len(pod_names(world)) == 4


async def test_a_plan_that_does_not_get_ready_in_time_is_rolled_back_if_it_says_so() -> None:
    world = World(replicas=1)
    await world.start()
    await world.ask(
        SCALE_PLANS, "p", timeoutSeconds=5, onTimeout="Rollback", replicaResourceSpecs={"worker": {"replicas": 3}}
    )
    for _ in range(12):
        await world.turn()
        for pod in world.kube.of(PODS):
            if "deletionTimestamp" in pod["metadata"]:
                world.kube.remove(PODS, pod["metadata"]["name"])
    told = status(world, SCALE_PLANS, "p")
    assert told["phase"] == "Failed"
    assert told["message"].startswith(
        "rolled back after timeoutSeconds 5: 2 of 2 new members are not ready: worker 1, worker 2"
    )
    assert pod_names(world) == ["job-worker-0"]
    assert world.job().spec.replica_specs["worker"].replicas == 1


async def test_cpu_and_memory_change_in_place() -> None:
    world = World(replicas=2)
    await world.start()
    await world.ask(SCALE_PLANS, "p", replicaResourceSpecs={"worker": {"resource": {"cpu": "1500m"}}})
    for _ in range(6):
        await world.turn()
    assert status(world, SCALE_PLANS, "p")["phase"] == "Executing", "not before the kubelet has reported it"
    for pod in world.kube.pods():
        container = pod["spec"]["containers"][0]
        assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
        reported = [{"name": "train", "resources": {"requests": {"cpu": "1.5", "memory": "1Gi"}}}]
        world.kube.change(PODS, pod["metadata"]["name"], containerStatuses=reported)
    await world.settle()
    assert status(world, SCALE_PLANS, "p")["resizedPods"] == ["job-worker-0", "job-worker-1"]
    world.kube.remove(PODS, "job-worker-0")
    await world.settle()
    replacement = world.kube.pods()[0]["spec"]["containers"][0]
    assert replacement["resources"]["requests"]["cpu"] == "1500m"


async def test_a_failure_is_counted_once_and_the_job_fails_when_the_limit_is_used_up() -> None:
    world = World(replicas=2, worker={"restartLimit": 1})
    await world.start()
    world.end("job-worker-1", 1)
    await world.settle()
    assert pod_names(world) == ["job-worker-0", "job-worker-1-1"]
    assert world.job().status.replica_statuses["worker"].restarts == 1
    world.end("job-worker-1-1", 3)
    await world.settle()
    job = world.job()
    assert job.status.phase == "Failed"
    assert "worker 1 failed and its restartLimit 1 is used up: exit code 3" in job.status.message
    assert world.kube.pods(names.ROLE_MASTER) == []


async def test_a_drained_or_deleted_pod_is_replaced_uncounted() -> None:
    world = World(replicas=2)
    await world.start()
    world.end("job-worker-0", names.EXIT_DRAINED)
    world.kube.remove(PODS, "job-worker-1")
    world.kube.remove(PODS, "job-master")
    await world.settle()
    assert pod_names(world) == ["job-worker-0-1", "job-worker-1-2"]
    assert world.kube.pods(names.ROLE_MASTER)[0]["metadata"]["name"] == "job-master-1"
    assert world.job().status.replica_statuses["worker"].restarts == 0
    world.check_at_rest()


async def test_a_member_killed_for_memory_comes_back_with_more() -> None:
    world = World(replicas=1)
    await world.start()
    world.end("job-worker-0", 137, "OOMKilled")
    await world.settle()
    assert world.kube.pods()[0]["spec"]["containers"][0]["resources"]["requests"]["memory"] == "2048Mi"


async def test_a_command_that_does_not_exist_fails_the_job_at_once() -> None:
    world = World(replicas=2)
    await world.start()
    world.end("job-worker-0", 127)
    await world.settle()
    assert world.job().status.phase == "Failed"
    assert "exit code 127" in world.job().status.message


async def test_the_job_succeeds_when_all_workers_have_and_what_still_waits_ends() -> None:
    world = World(replicas=2)
    await world.start()
    world.end("job-worker-0", 0)
    await world.settle()
    assert world.job().status.phase == "Running"
    world.end("job-worker-1", 0)
    await world.ask(SCALE_OUTS, "late", count=1)
    await world.settle()
    assert world.job().status.phase == "Succeeded"
    told = status(world, SCALE_OUTS, "late")
    assert told["phase"] == "ScaleFailed"
    assert "has ended (Succeeded)" in told["message"]
    assert world.kube.pods(names.ROLE_MASTER) == []
    assert pod_names(world) == ["job-worker-0", "job-worker-1"], "cleanPodPolicy Running keeps finished pods"


async def test_a_suspended_job_has_no_pods_and_comes_back() -> None:
    world = World(replicas=2)
    await world.start()
    world.kube.edit(ELASTIC_JOBS, "job", lambda spec: spec.setdefault("runPolicy", {}).update(suspend=True))
    await world.settle()
    assert world.kube.of(PODS) == []
    assert world.job().status.phase == "Suspended"
    world.kube.edit(ELASTIC_JOBS, "job", lambda spec: spec["runPolicy"].update(suspend=False))
    await world.settle()
    assert world.job().status.phase == "Running"
    world.check_at_rest()


async def test_finished_plans_are_kept_up_to_the_last_ten() -> None:
    world = World(replicas=1)
    await world.start()
    for number in range(13):
        await world.ask(
            SCALE_PLANS, f"p{number:02}", replicaResourceSpecs={"worker": {"replicas": 1 + (number + 1) % 2}}
        )
        await world.settle()
    assert len(world.kube.of(SCALE_PLANS)) == 10


async def test_a_plan_whose_scale_in_is_deleted_while_it_waits_is_never_begun() -> None:
    world = World(replicas=4)
    await world.start()
    await world.ask(SCALE_INS, "first", count=1)
    await world.ask(SCALE_INS, "second", count=1)
    await world.turn()
    assert status(world, SCALE_INS, "second")["phase"] == "Pending"
    world.kube.remove(SCALE_INS, "second")
    await world.settle()
    assert len(pod_names(world)) == 3


def resized(size: int) -> Callable[[Json], None]:
    """An edit of the number of workers."""
    return lambda spec: spec["replicaSpecs"]["worker"].update(replicas=size)


async def history(world: World, chance: random.Random, steps: int) -> None:
    """Faults, requests and crashes in a random order."""
    await world.start()
    for step in range(steps):
        event = chance.randrange(10)
        pods = [p["metadata"]["name"] for p in world.kube.of(PODS) if p["status"]["phase"] in ("Pending", "Running")]
        if event == 0:
            await world.ask(SCALE_OUTS, f"out{step}", count=chance.randrange(1, 4))
        elif event == 1:
            await world.ask(SCALE_INS, f"in{step}", count=chance.randrange(1, 3))
        elif event == 2 and pods:
            await world.ask(SCALE_INS, f"named{step}", podNames=[pick(chance, pods)])
        elif event == 3:
            size = chance.randrange(1, 7)
            source = pick(chance, ["Auto", "Manual"])
            await world.ask(
                SCALE_PLANS, f"plan{step}", source=source, replicaResourceSpecs={"worker": {"replicas": size}}
            )
        elif event == 4:
            size = chance.randrange(1, 7)
            world.kube.edit(ELASTIC_JOBS, "job", resized(size))
        elif event == 5 and pods:
            # Deleted by a user: gone at once, or for a while still there with its processes.
            (world.kube.remove if chance.random() < 0.5 else world.kube.leave)(PODS, pick(chance, pods))
        elif event == 6 and pods:
            name = pick(chance, pods)
            world.end(name, pick(chance, [143, 143, 1]))
        elif event == 7:
            world.kube.crash_in = chance.randrange(1, 12)
        await world.turn()
        if chance.random() < 0.7:
            world.live()
    world.kube.crash_in = None
    await world.settle()


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 6), steps=st.integers(1, 25))
def test_any_history_of_faults_ends_with_exactly_the_desired_pods(seed: int, size: int, steps: int) -> None:
    world = World(replicas=size, worker={"restartLimit": 100}, runPolicy={"backoffLimit": 1000})
    asyncio.run(history(world, random.Random(seed), steps))
    world.check_at_rest()
    spec, held = world.job().spec.replica_specs["worker"], world.job().status.replica_statuses["worker"]
    assert spec.replicas == held.desired


SCENARIO_WRITES = 45


@pytest.mark.parametrize("write", range(1, SCENARIO_WRITES))
async def test_an_operator_killed_before_any_write_is_carried_on_by_the_next(write: int) -> None:
    world = World(replicas=2)
    world.kube.crash_in = write
    await world.start()
    await world.ask(SCALE_OUTS, "more", count=2)
    await world.settle()
    await world.ask(SCALE_INS, "less", podNames=[world.kube.pods()[0]["metadata"]["name"]])
    await world.settle()
    world.check_at_rest()
    assert status(world, SCALE_OUTS, "more")["phase"] == status(world, SCALE_INS, "less")["phase"] == "ScaleSucceeded"
    assert world.job().status.replica_statuses["worker"].desired == 3


@pytest.mark.parametrize("write", range(1, SCENARIO_WRITES, 3))
async def test_a_lost_answer_changes_nothing(write: int) -> None:
    world = World(replicas=2)
    world.kube.lose_answer_in = write
    await world.start()
    await world.ask(SCALE_OUTS, "more", count=2)
    await world.settle()
    world.check_at_rest()
    assert world.job().status.replica_statuses["worker"].desired == 4


async def test_a_plan_whose_answer_was_lost_and_that_is_not_seen_yet_is_not_made_a_second_time() -> None:
    world = World(replicas=2)
    await world.start()
    await world.ask(SCALE_OUTS, "more", count=1)
    await world.operator.watch()
    observed = world.operator.store.observed(world.job())
    body = plan_for_scaler(observed, observed.scale_outs[0])
    for _ in range(2):
        await world.operator.executor.execute(observed.job, [CreatePlan(body)])
    assert len(world.kube.of(SCALE_PLANS)) == 1
