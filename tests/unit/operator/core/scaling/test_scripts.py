"""Tests the scripts of ScaleIns and ScaleOuts.

The launcher runs each once, and the request succeeds only if its script does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from tests.support.simulator.cluster import JOB, Cluster
from tests.support.simulator.nodes import Nodes

LAUNCHER = f"{JOB}-launcher-0"
CONTAINER = {
    "name": "train",
    "image": "train:1",
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
}
TIMEOUT = 100
REQUEST: dict[str, Any] = {
    "count": 1,
    "script": "save",
    "env": [{"name": "A", "value": "b"}],
    "timeoutSeconds": TIMEOUT,
}
ALLOWED = {"allowScripts": True}


async def started(*, run_policy: dict[str, Any] | None = None) -> Nodes:
    roles = {
        "launcher": {
            "template": {"spec": {"containers": [{**CONTAINER, "command": ["horovodrun"]}]}}
        },
        "worker": {
            "replicas": 3,
            "maxReplicas": 5,
            "template": {"spec": {"containers": [CONTAINER]}},
            "drainSeconds": 30,
        },
    }
    policy = ALLOWED if run_policy is None else run_policy
    nodes = Nodes(Cluster(framework="horovod", replicaSpecs=roles, runPolicy=policy))
    return await nodes.started()


def plan(nodes: Nodes) -> dict[str, Any]:
    [made] = nodes.plans()
    return made


def run_of(nodes: Nodes) -> dict[str, Any]:
    return next((made.get("status", {}).get("script", {}) for made in nodes.plans()), {})


def is_ordered(nodes: Nodes) -> bool:
    return bool(run_of(nodes))


def tell(nodes: Nodes, code: int, message: str = "", *, uid: str = "") -> None:
    """Write the script's end as the master does."""
    end = {"plan": uid or plan(nodes)["metadata"]["uid"], "exitCode": code, "message": message}
    nodes.cluster.kube.set_status(ELASTIC_JOBS, JOB, progress={"script": end})


def request(nodes: Nodes, resource: Resource) -> dict[str, Any]:
    status: dict[str, Any] = nodes.cluster.kube.objects[resource, "r"]["status"]
    return status


async def ordered(nodes: Nodes, resource: Resource) -> None:
    """Ask, and wait until the launcher is ordered to run the script."""
    await nodes.cluster.apply(resource, "r", **REQUEST)
    await nodes.until(partial(is_ordered, nodes))


async def test_the_script_of_a_scale_in_runs_while_all_are_at_work_and_then_members_leave() -> None:
    nodes = await started()
    await ordered(nodes, SCALE_INS)
    assert run_of(nodes)["pod"] == LAUNCHER
    assert (plan(nodes)["spec"]["script"], plan(nodes)["spec"]["env"]) == ("save", REQUEST["env"])
    for _ in range(5):
        await nodes.run_operator()
        nodes.run_pods()
    assert len(nodes.live_pods()) == 3
    assert not plan(nodes)["status"].get("drainingPods")
    tell(nodes, 0, "saved")
    await nodes.settle()
    assert nodes.live_pods() == [f"{JOB}-worker-0", f"{JOB}-worker-1"]
    status = request(nodes, SCALE_INS)
    assert (status["phase"], status["script"]["exitCode"], status["script"]["message"]) == (
        "ScaleSucceeded",
        0,
        "saved",
    )
    assert not plan(nodes)["status"].get("forcedPods"), (
        "leaving begins after the script, with all of its time"
    )
    nodes.cluster.check_final_state()


async def test_leaving_members_have_their_time_from_the_end_of_the_script_on() -> None:
    nodes = await started()
    nodes.agents = False
    await ordered(nodes, SCALE_INS)
    nodes.cluster.now += 60
    tell(nodes, 0)
    await nodes.until(lambda: bool(plan(nodes)["status"].get("drainingPods")))
    await nodes.run_operator()
    assert plan(nodes)["status"]["phase"] == "Draining"
    assert len(nodes.live_pods()) == 3


@pytest.mark.guarantee("script-runs-once")
async def test_a_scale_in_whose_script_fails_removes_nothing() -> None:
    nodes = await started()
    await ordered(nodes, SCALE_INS)
    tell(nodes, 3, "no space left")
    await nodes.settle()
    assert len(nodes.live_pods()) == 3
    status = request(nodes, SCALE_INS)
    assert (status["phase"], status["script"]["exitCode"]) == ("ScaleFailed", 3)
    assert status["message"] == f"spec.script: ended with exit code 3 in {LAUNCHER}: no space left"
    assert nodes.cluster.job().spec.replica_specs["worker"].replicas == 3
    nodes.cluster.check_final_state()


async def test_the_script_of_a_scale_out_runs_when_the_new_members_are_ready() -> None:
    nodes = await started()
    stuck = True
    nodes.stuck = lambda pod: "no room" if stuck else ""
    await nodes.cluster.apply(SCALE_OUTS, "r", **REQUEST)
    await nodes.until(lambda: len(nodes.live_pods()) == 4)
    for _ in range(5):
        await nodes.run_operator()
        nodes.run_pods()
    assert run_of(nodes) == {}
    stuck = False
    await nodes.until(partial(is_ordered, nodes))
    tell(nodes, 0)
    await nodes.settle()
    assert request(nodes, SCALE_OUTS)["phase"] == "ScaleSucceeded"
    assert len(nodes.live_pods()) == 4
    nodes.cluster.check_final_state()


@pytest.mark.guarantee("script-runs-once")
async def test_a_scale_out_whose_script_fails_takes_the_new_members_back() -> None:
    nodes = await started()
    await ordered(nodes, SCALE_OUTS)
    tell(nodes, 1, "cannot reach them")
    await nodes.settle()
    status = request(nodes, SCALE_OUTS)
    assert (status["phase"], status["script"]["exitCode"]) == ("ScaleFailed", 1)
    assert (
        status["message"]
        == f"rolled back: spec.script: ended with exit code 1 in {LAUNCHER}: cannot reach them"
    )
    assert len(nodes.live_pods()) == 3
    assert nodes.cluster.job().spec.replica_specs["worker"].replicas == 3
    nodes.cluster.check_final_state()


@pytest.mark.guarantee("script-runs-once")
@pytest.mark.parametrize("resource", [SCALE_INS, SCALE_OUTS])
async def test_it_is_ordered_once_despite_a_crash_of_the_operator_at_any_write(
    resource: Resource,
) -> None:
    for write in range(1, 14):
        nodes = await started()
        await nodes.cluster.apply(resource, "r", **REQUEST)
        nodes.cluster.kube.crash_in = write
        await nodes.until(partial(is_ordered, nodes))
        first = run_of(nodes)
        tell(nodes, 0)
        await nodes.settle()
        last = request(nodes, resource)
        assert {name: last["script"][name] for name in first} == first
        assert last["phase"] == "ScaleSucceeded"
        nodes.cluster.check_final_state()


@pytest.mark.parametrize("resource", [SCALE_INS, SCALE_OUTS])
@pytest.mark.parametrize("code", [0, 1])
async def test_its_end_counts_once_despite_a_crash_of_the_operator_at_any_write(
    resource: Resource, code: int
) -> None:
    for write in range(1, 10):
        nodes = await started()
        await ordered(nodes, resource)
        tell(nodes, code)
        nodes.cluster.kube.crash_in = write
        await nodes.settle()
        nodes.cluster.kube.crash_in = None
        status = request(nodes, resource)
        assert (status["phase"], status["script"]["exitCode"]) == (
            "ScaleFailed" if code else "ScaleSucceeded",
            code,
        )
        assert len(nodes.live_pods()) == (3 if code else 2 if resource == SCALE_INS else 4)
        nodes.cluster.check_final_state()


@pytest.mark.guarantee("script-runs-once")
@pytest.mark.parametrize("resource", [SCALE_INS, SCALE_OUTS])
async def test_when_the_launchers_pod_ends_no_other_pod_runs_the_script_again(
    resource: Resource,
) -> None:
    nodes = await started()
    await ordered(nodes, resource)
    nodes.cluster.end(LAUNCHER, 137, "Error")
    await nodes.settle()
    status = request(nodes, resource)
    assert status["phase"] == "ScaleFailed"
    assert f"pod {LAUNCHER} has ended before the end of the script was known" in status["message"]
    assert status["script"]["pod"] == LAUNCHER
    assert "exitCode" not in status["script"] or status["script"]["exitCode"] is None
    assert len(nodes.live_pods()) == 3


async def test_a_silent_launcher_is_waited_for_as_long_as_the_request_says() -> None:
    nodes = await started()
    await ordered(nodes, SCALE_INS)
    nodes.cluster.now += TIMEOUT
    await nodes.run_operator()
    assert (
        "phase" not in request(nodes, SCALE_INS) or request(nodes, SCALE_INS)["phase"] == "Scaling"
    )
    nodes.cluster.now += 40
    await nodes.settle()
    assert (
        "the launcher's agent has not reported its end in time"
        in request(nodes, SCALE_INS)["message"]
    )
    assert len(nodes.live_pods()) == 3


async def test_without_a_ready_launcher_the_script_is_not_run_and_nothing_is_removed() -> None:
    nodes = await started()
    nodes.cluster.kube.set_status(PODS, LAUNCHER, conditions=[])
    await nodes.cluster.apply(SCALE_INS, "r", **REQUEST)
    await nodes.until(
        lambda: (
            "launcher to be ready"
            in next(iter(nodes.plans()), {}).get("status", {}).get("waitingFor", "")
        )
    )
    nodes.cluster.now += TIMEOUT
    await nodes.settle()
    assert "no launcher was ready in time" in request(nodes, SCALE_INS)["message"]
    assert len(nodes.live_pods()) == 3


async def test_the_end_of_another_plans_script_is_not_taken_for_this_ones() -> None:
    nodes = await started()
    await ordered(nodes, SCALE_INS)
    tell(nodes, 0, uid="another")
    for _ in range(3):
        await nodes.run_operator()
    assert plan(nodes)["status"]["script"].get("completionTime") is None
    assert len(nodes.live_pods()) == 3


@pytest.mark.parametrize("resource", [SCALE_INS, SCALE_OUTS])
async def test_a_job_that_is_suspended_while_the_script_runs_is_resumed_with_its_old_size(
    resource: Resource,
) -> None:
    nodes = await started()
    await ordered(nodes, resource)
    nodes.cluster.kube.edit(
        ELASTIC_JOBS, JOB, lambda spec: spec.update(runPolicy={**ALLOWED, "suspend": True})
    )
    await nodes.settle()
    assert request(nodes, resource)["phase"] == "ScaleFailed"
    nodes.cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec.update(runPolicy=ALLOWED))
    await nodes.settle()
    assert len(nodes.live_pods()) == 3


@pytest.mark.guarantee("script-runs-once")
async def test_a_job_that_does_not_allow_scripts_refuses_them() -> None:
    nodes = await started(run_policy={})
    await nodes.cluster.apply(SCALE_INS, "r", **REQUEST)
    plan_body = {"removePods": [{"role": "worker", "index": 2}], "script": "save"}
    await nodes.cluster.apply(SCALE_PLANS, "p", **plan_body)
    await nodes.settle()
    for status in (request(nodes, SCALE_INS), nodes.plan("p")):
        assert status["phase"] in ("ScaleFailed", "Failed")
        assert (
            f"spec.script: ElasticJob {JOB!r} has runPolicy.allowScripts false" in status["message"]
        )
    assert len(nodes.live_pods()) == 3


async def test_a_job_without_a_launcher_refuses_scripts() -> None:
    nodes = Nodes(Cluster(replicas=3, runPolicy=ALLOWED))
    await nodes.started()
    await nodes.cluster.apply(SCALE_OUTS, "r", **REQUEST)
    await nodes.settle()
    assert (
        "spec.script: a script is run by the launcher's agent"
        in request(nodes, SCALE_OUTS)["message"]
    )
    assert len(nodes.live_pods()) == 3
