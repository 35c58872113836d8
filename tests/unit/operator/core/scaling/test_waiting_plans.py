"""Tests that a running plan reports why it waits, in few writes for any number of members."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.scaleplan import MAX_WAITING_FOR_CHARACTERS
from elasticjob_kube.resources import SCALE_INS, SCALE_OUTS, SCALE_PLANS

from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes, index_of, limit_pods


async def started(**options: Any) -> Nodes:
    return await Nodes(Cluster(**options)).started()


def waits_for(nodes: Nodes) -> str:
    """Return what the only plan waits for; it is empty when the plan has ended."""
    (plan,) = nodes.plans()
    status = plan.get("status", {})
    text: str = status.get("waitingFor", "")
    assert bool(text) == (status.get("phase") in ("Draining", "Executing")), status
    return text


async def texts(nodes: Nodes, *, turns: int = 60) -> list[str]:
    """Run the only plan to its end; return its messages while it waited, in their order."""
    found: list[str] = []
    for _ in range(turns):
        await nodes.run_operator()
        if nodes.plans() and (text := waits_for(nodes)) not in found[-1:]:
            found.append(text)
        nodes.run_pods()
        if found[-1:] == [""]:
            return found[:-1]
    raise AssertionError(f"no end; it waits for {found[-1:]}")


async def test_a_plan_waits_for_its_new_members_by_index_until_all_are_ready() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_OUTS, "more", count=2)
    assert await texts(nodes) == ["new members to be ready: worker 2, worker 3"]


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_a_plan_says_why_a_new_member_is_not_ready() -> None:
    nodes = await started(replicas=1)
    nodes.stuck = lambda pod: "0/3 nodes are available" if index_of(pod) == 2 else ""
    await nodes.cluster.apply(SCALE_OUTS, "more", count=2)
    text = "new members to be ready: worker 2 (Unschedulable: 0/3 nodes are available)"
    await nodes.until(lambda: bool(nodes.plans()) and waits_for(nodes) == text)
    nodes.stuck = lambda _: ""
    await nodes.settle()
    assert waits_for(nodes) == ""


async def test_a_plan_says_that_its_pods_are_refused() -> None:
    nodes = await started(replicas=1)
    limit_pods(nodes.cluster, 1)
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.until(lambda: bool(nodes.plans()) and "exceeded quota" in waits_for(nodes))
    assert waits_for(nodes).startswith("new members to be ready: worker 1 (")


async def test_a_plan_waits_for_pods_that_drain_and_for_how_long_at_most() -> None:
    nodes = await started(replicas=3)
    nodes.agents = False
    await nodes.cluster.apply(SCALE_INS, "fewer", count=1)
    found = await texts(nodes)
    assert found[0] == "pods to end their training, within 30 s: job-worker-2"
    assert all(text.startswith("removed pods to be gone: job-worker-2") for text in found[1:])


async def test_a_plan_waits_for_replacements() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "plan", migratePods=[{"name": "job-worker-0"}])
    found = await texts(nodes)
    assert "replacements to be ready: worker 2 for 0" in found
    assert "pods to end their training, within 30 s: job-worker-0" in found


async def test_a_plan_waits_for_resizes_in_place() -> None:
    nodes = await started(replicas=2)
    nodes.resizes = "Silent"
    resources = {"replicaResourceSpecs": {"worker": {"resource": {"cpu": "2"}}}}
    await nodes.cluster.apply(SCALE_PLANS, "plan", **resources)
    text = "pods to be resized in place: job-worker-0, job-worker-1"
    await nodes.until(lambda: waits_for(nodes) == text)


async def test_a_plan_that_ends_early_or_is_cancelled_waits_for_nothing() -> None:
    nodes = await started(replicas=1)
    nodes.stuck = lambda pod: "no room" if index_of(pod) == 1 else ""
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1, timeoutSeconds=10)
    await nodes.settle()
    assert waits_for(nodes) == ""
    assert nodes.plans()[0]["status"]["phase"] == "Failed"


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_what_a_plan_for_many_members_waits_for_is_written_a_few_times_only() -> None:
    nodes = await started(replicas=1, most=100)
    ready: set[int] = {0}
    nodes.stuck = lambda pod: (
        "" if index_of(pod) in ready else f"no node for {pod['metadata']['name']}"
    )
    await nodes.cluster.apply(SCALE_OUTS, "more", count=80)
    found: list[str] = []
    for index in range(80):
        await nodes.run_operator()
        await nodes.run_operator()
        if (text := waits_for(nodes)) not in found[-1:]:
            found.append(text)
        ready.add(index + 1)
        nodes.run_pods()
        nodes.run_pods()
    many = [f"{number} or more new members to be ready" for number in (80, 40, 20, 10)]
    assert found[:4] == many
    assert all(text.startswith("new members to be ready: worker") for text in found[4:])
    assert len(found) <= 4 + 10


@pytest.mark.parametrize("message", ["x" * 40_000])
async def test_a_long_reason_is_cut(message: str) -> None:
    nodes = await started(replicas=1)
    nodes.stuck = lambda pod: message if index_of(pod) == 1 else ""
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.until(
        lambda: bool(nodes.plans()) and len(waits_for(nodes)) == MAX_WAITING_FOR_CHARACTERS
    )
