"""Tests that members are replaced if a plan names them or cannot resize them in place."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import PODS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.manifests.placement import AvoidedNodes, avoiding
from elasticjob_operator.core.scaling import resize

from tests.support.job_cluster import end_training, new_cluster, reconcile_now
from tests.support.simulator import nodes as fake_nodes
from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes, Resizes, index_of, refuse_resizes

MORE_CPU = {"replicaResourceSpecs": {"worker": {"resource": {"cpu": "2"}}}}


def size_and_indices(cluster: Cluster) -> tuple[int, str]:
    replica = cluster.job().status.replica_statuses["worker"]
    return replica.desired, replica.indices


async def started(**options: Any) -> Nodes:
    return await Nodes(Cluster(**options)).started()


async def test_a_migrated_member_leaves_when_its_replacement_is_ready() -> None:
    nodes = await started(replicas=2)
    cluster = nodes.cluster
    await cluster.apply(
        SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0", "resource": {"cpu": "2"}}]
    )
    await nodes.until(lambda: len(cluster.kube.pods()) == 3)
    assert nodes.plan("m")["migrations"][0] | {"since": ""} == {
        "role": "worker", "index": 0, "replacement": 2, "phase": "Starting", "since": "",
    }  # fmt: skip
    assert size_and_indices(cluster) == (2, "0-2"), "the surplus pod is a member, and not counted"
    assert not nodes.plan("m").get("drainingPods"), "nobody leaves before the replacement is ready"
    await nodes.until(lambda: nodes.plan("m").get("drainingPods") == ["job-worker-0"])
    assert nodes.plan("m")["phase"] == "Draining"
    await nodes.settle()
    status = nodes.plan("m")
    assert status["phase"] == "Succeeded"
    assert status["migrations"][0]["phase"] == "Done"
    assert (status["createdPods"], status["removedPods"]) == (["job-worker-2"], ["job-worker-0"])
    assert "forcedPods" not in status
    assert "drainingPods" not in status
    assert nodes.requests("cpu") == {"job-worker-1": "1", "job-worker-2": "2"}
    assert size_and_indices(cluster) == (2, "1-2")
    assert cluster.job().spec.replica_specs["worker"].replicas == 2
    cluster.check_final_state()
    cluster.kube.remove(PODS, "job-worker-2")
    await nodes.settle()
    assert nodes.requests("cpu") == {"job-worker-1": "1", "job-worker-2-1": "2"}, (
        "its resources are remembered"
    )


@pytest.mark.guarantee("straggler-replaced")
async def test_a_replacement_prefers_another_node_if_the_plan_says_so() -> None:
    nodes = await started(replicas=3)
    kube = nodes.cluster.kube
    for index in range(3):
        kube.objects[PODS, f"job-worker-{index}"]["spec"]["nodeName"] = f"node-{index}"
        kube.set_status(PODS, f"job-worker-{index}")
    moves = [{"name": "job-worker-0"}, {"role": "worker", "index": 2, "avoidNode": True}]
    await nodes.cluster.apply(SCALE_PLANS, "m", migratePods=moves)
    await nodes.settle()
    affinities = {
        pod["metadata"]["name"]: pod["spec"].get("affinity")
        for pod in nodes.cluster.kube.all(PODS)
        if index_of(pod) >= 0
    }
    others = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}]}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": others}]
    }
    assert affinities == {
        "job-worker-1": None,
        "job-worker-3": None,
        "job-worker-4": {"nodeAffinity": preferred},
    }


@pytest.mark.guarantee("broken-node")
async def test_new_pods_prefer_other_nodes_than_those_on_which_a_member_was_not_fit() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    for index, code in ((0, names.EXIT_UNFIT), (1, 1)):
        cluster.kube.objects[PODS, f"job-worker-{index}"]["spec"]["nodeName"] = f"node-{index}"
        end_training(cluster, f"job-worker-{index}", code)
    await reconcile_now(cluster)
    pods = {pod["metadata"]["name"]: pod["spec"] for pod in cluster.kube.all(PODS)}
    others = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-0"]}]}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": others}]
    }
    for name in ("job-worker-0-1", "job-worker-1-2"):
        assert pods[name]["affinity"] == {"nodeAffinity": preferred}


def test_a_replacement_prefers_other_nodes_in_addition_to_the_templates_preferences() -> None:
    mine = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    required: Json = {"nodeSelectorTerms": []}
    of_nodes = {
        "preferredDuringSchedulingIgnoredDuringExecution": [mine],
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    pod = {"spec": {"affinity": {"podAffinity": {}, "nodeAffinity": of_nodes}}}
    affinity = avoiding(pod, AvoidedNodes(preferred=("n",)))["spec"]["affinity"]
    assert affinity["podAffinity"] == {}
    assert affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == required
    preferred = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [each["weight"] for each in preferred] == [1, 100]
    assert len(of_nodes["preferredDuringSchedulingIgnoredDuringExecution"]) == 1, (
        "the template itself is not changed"
    )


async def test_the_members_of_one_plan_migrate_all_at_once_and_free_indices_are_used_again() -> (
    None
):
    nodes = await started(replicas=3)
    cluster = nodes.cluster
    await cluster.apply(
        SCALE_PLANS, "m", migratePods=[{"role": "worker", "index": 0}, {"name": "job-worker-2"}]
    )
    await nodes.until(lambda: len(cluster.kube.pods()) == 5)
    await nodes.settle()
    assert nodes.live_pods() == ["job-worker-1", "job-worker-3", "job-worker-4"]
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.settle()
    assert "job-worker-0-1" in nodes.live_pods(), "the index is free, and the name is new"
    cluster.check_final_state()


async def test_a_replacement_that_does_not_become_ready_is_removed_and_the_member_stays() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "0/3 nodes are available" if index_of(pod) == 2 else ""
    members = [{"name": "job-worker-0"}, {"name": "job-worker-1"}]
    await nodes.cluster.apply(SCALE_PLANS, "m", timeoutSeconds=20, migratePods=members)
    await nodes.settle()
    status = nodes.plan("m")
    assert status["phase"] == "PartiallySucceeded"
    assert status["message"] == (
        "1 of 2 members are not replaced: worker 0 (its replacement is not ready after "
        "timeoutSeconds 20: "
        "Unschedulable: 0/3 nodes are available)"
    )
    assert [move["phase"] for move in status["migrations"]] == ["Undone", "Done"]
    assert nodes.live_pods() == ["job-worker-0", "job-worker-3"]
    nodes.cluster.check_final_state()


async def test_a_migration_of_which_nothing_comes_fails_and_touches_nothing() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda _: "no room"
    before = nodes.live_pods()
    await nodes.cluster.apply(
        SCALE_PLANS, "m", timeoutSeconds=9, onTimeout="Rollback", migratePods=[{"name": before[0]}]
    )
    await nodes.settle()
    assert nodes.plan("m")["phase"] == "Failed"
    assert nodes.live_pods() == before
    assert size_and_indices(nodes.cluster) == (2, "0-1")
    nodes.cluster.check_final_state()


async def test_an_agent_that_does_not_drain_in_time_is_forced_out_and_recorded() -> None:
    nodes = await started(replicas=2)
    nodes.agents = False
    await nodes.cluster.apply(
        SCALE_PLANS, "m", drainSeconds=7, migratePods=[{"name": "job-worker-1"}]
    )
    await nodes.settle()
    status = nodes.plan("m")
    assert status["phase"] == "Succeeded"
    assert status["forcedPods"] == status["removedPods"] == ["job-worker-1"]


async def test_a_plan_changes_the_size_first_and_then_migrates() -> None:
    nodes = await started(replicas=3)
    cluster = nodes.cluster
    await cluster.apply(
        SCALE_PLANS,
        "mix",
        createPods=[{"resource": {"memory": "2Gi"}}, {}],
        removePods=[{"name": "job-worker-1"}],
        migratePods=[{"name": "job-worker-0", "resource": {"cpu": "3"}}],
    )
    await nodes.until(lambda: nodes.plan("mix").get("phase") == "Draining")
    assert nodes.plan("mix")["drainingPods"] == ["job-worker-1"]
    assert nodes.plan("mix")["migrations"][0]["phase"] == "Pending"
    await nodes.settle()
    assert nodes.plan("mix")["phase"] == "Succeeded"
    assert size_and_indices(cluster) == (4, "2-5")
    assert nodes.requests("cpu")["job-worker-5"] == "3"
    assert nodes.requests("memory")["job-worker-3"] == "2Gi"
    assert cluster.job().spec.replica_specs["worker"].replicas == 4
    cluster.check_final_state()


@pytest.mark.parametrize("resizes", ["Infeasible", "Deferred", "Error", "Silent"])
async def test_what_cannot_be_resized_in_place_is_replaced_one_by_one(resizes: Resizes) -> None:
    nodes = await started(replicas=3, least=3, most=3)
    nodes.resizes = resizes
    await check_rolling_replacement(nodes, MORE_CPU)
    expected = "has not resized it within 30 s" if resizes == "Silent" else "no room on the node"
    assert all(expected in move["message"] for move in nodes.plan("p")["migrations"])


async def test_a_resize_that_has_failed_may_succeed_when_the_kubelet_tries_again() -> None:
    nodes = await started(replicas=3, least=3, most=3)
    nodes.resizes = "Error"
    await nodes.cluster.apply(SCALE_PLANS, "p", **MORE_CPU)
    failed = "resize failed: no room on the node; it is tried again)"
    await nodes.until(lambda: failed in nodes.plan("p").get("waitingFor", ""))
    nodes.resizes = "InPlace"
    await nodes.settle()
    plan = nodes.plan("p")
    assert (plan["phase"], plan.get("migrations", [])) == ("Succeeded", [])


async def test_a_resize_that_the_api_server_refuses_does_not_wait_for_the_time_out() -> None:
    nodes = await started(replicas=3, least=3, most=3)
    refuse_resizes(nodes.cluster)
    began = nodes.cluster.now
    await check_rolling_replacement(nodes, MORE_CPU)
    assert nodes.cluster.now - began < 100, "not to the plan's time-out of 600 s"
    assert all("resizing is disabled" in move["message"] for move in nodes.plan("p")["migrations"])


QUOTA = "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=4"


async def test_a_resize_beyond_a_quota_is_tried_again_while_the_quota_may_credit_others() -> None:
    nodes = await started(replicas=3, least=3, most=3)
    refuse_resizes(nodes.cluster, QUOTA, seconds=20)
    await nodes.cluster.apply(SCALE_PLANS, "p", **MORE_CPU)
    waits_for = f"{QUOTA}; it is tried again)"
    await nodes.until(lambda: waits_for in nodes.plan("p").get("waitingFor", ""))
    await nodes.settle()
    plan = nodes.plan("p")
    assert (plan["phase"], plan.get("migrations", [])) == ("Succeeded", [])
    assert set(nodes.requests("cpu").values()) == {"2"}


async def test_a_resize_that_a_quota_refuses_for_long_is_a_replacement() -> None:
    nodes = await started(replicas=3, least=3, most=3)
    refuse_resizes(nodes.cluster, QUOTA)
    await check_rolling_replacement(nodes, MORE_CPU)
    assert all("exceeded quota: q" in move["message"] for move in nodes.plan("p")["migrations"])


async def test_a_job_that_wants_replacement_gets_it_and_extended_resources_always_do() -> None:
    nodes = await started(replicas=3, least=3, most=3, autoscaling={"resize": "Replace"})
    await check_rolling_replacement(nodes, MORE_CPU)
    nodes = await started(replicas=3, least=3, most=3)
    with_cards = {
        "replicaResourceSpecs": {
            "worker": {"resource": {"cpu": "2", "nvidia.com/gpu": 1, "rdma/hca": 2}}
        }
    }
    await check_rolling_replacement(nodes, with_cards)
    messages = [move["message"] for move in nodes.plan("p")["migrations"]]
    assert messages == ["nvidia.com/gpu, rdma/hca cannot change in place"] * 3
    for pod in nodes.cluster.kube.pods():
        if index_of(pod) >= 0:
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            assert limits == {"nvidia.com/gpu": 1, "rdma/hca": 2}, (
                "Kubernetes wants one for what is not overcommitted"
            )


async def check_rolling_replacement(nodes: Nodes, spec: dict[str, Any]) -> None:
    """Run a plan that replaces three members.

    Check that there is at most one more pod, and never a ready one less.
    """
    cluster = nodes.cluster
    old = set(nodes.live_pods())
    most = 0
    least = 3

    def watched() -> None:
        nonlocal most, least
        cluster.check()
        live = [p for p in cluster.kube.pods() if p["status"]["phase"] in ("Pending", "Running")]
        most = max(most, len(live))
        least = min(
            least,
            sum(any(c["type"] == "Ready" for c in p["status"].get("conditions", ())) for p in live),
        )

    cluster.kube.after_write = watched
    await cluster.apply(SCALE_PLANS, "p", **spec)
    await nodes.settle()
    status = nodes.plan("p")
    assert status["phase"] == "Succeeded", status
    assert [move["phase"] for move in status["migrations"]] == ["Done"] * 3
    assert (most, least) == (4, 3)
    assert not old & set(nodes.live_pods())
    assert set(nodes.requests("cpu").values()) == {"2"}
    assert size_and_indices(cluster)[0] == 3
    cluster.check_final_state()
    cluster.kube.remove(PODS, nodes.live_pods()[0])
    await nodes.settle()
    assert set(nodes.requests("cpu").values()) == {"2"}


async def test_a_rolling_change_stops_at_the_first_failure_and_other_members_stay_unchanged() -> (
    None
):
    nodes = await started(replicas=3)
    nodes.resizes = "Infeasible"
    began = len(nodes.cluster.kube.created_names)
    nodes.stuck = lambda _: (
        "no node has that much" if len(nodes.cluster.kube.created_names) > began + 1 else ""
    )
    await nodes.cluster.apply(SCALE_PLANS, "p", timeoutSeconds=60, **MORE_CPU)
    await nodes.settle()
    status = nodes.plan("p")
    assert status["phase"] == "PartiallySucceeded"
    assert "1 of 2 members are not replaced: worker 1 (" in status["message"]
    assert "Unschedulable: no node has that much" in status["message"]
    assert "2 of 3 members keep the resources they had: worker 1, worker 2" in status["message"]
    assert nodes.requests("cpu") == {"job-worker-1": "1", "job-worker-2": "1", "job-worker-3": "2"}
    nodes.cluster.check_final_state()
    nodes.stuck = lambda _: ""
    for name in nodes.live_pods():
        nodes.cluster.kube.remove(PODS, name)
    await nodes.settle()
    assert sorted(nodes.requests("cpu").values()) == ["1", "1", "2"], (
        "each comes back with what it had"
    )


LESS_MEMORY = {"replicaResourceSpecs": {"worker": {"resource": {"memory": "40Mi"}}}}


@pytest.mark.guarantee("plan-with-too-little-memory")
async def test_a_replacement_that_fails_is_the_plans_failure_and_the_member_stays() -> None:
    nodes = await started(replicas=2)
    nodes.resizes = "Infeasible"
    await nodes.cluster.apply(SCALE_PLANS, "p", timeoutSeconds=600, **LESS_MEMORY)
    await nodes.until(lambda: "job-worker-2" in nodes.live_pods())
    end_training(nodes.cluster, "job-worker-2", 137, "OOMKilled")
    await nodes.settle()
    status = nodes.plan("p")
    assert status["phase"] == "Failed"
    assert "1 of 1 members are not replaced: worker 0 (" in status["message"]
    assert "its replacement failed: exit code 137, OOMKilled: last words" in status["message"]
    assert nodes.live_pods() == ["job-worker-0", "job-worker-1"], (
        "the members stay, and nobody was restarted"
    )
    assert nodes.cluster.job().status.replica_statuses["worker"].restarts == 0
    assert nodes.requests("memory") == {"job-worker-0": "1Gi", "job-worker-1": "1Gi"}
    nodes.cluster.check_final_state()


@pytest.mark.guarantee("plan-with-too-little-memory")
async def test_a_member_killed_for_memory_during_a_plan_gets_more_memory_and_keeps_it() -> None:
    nodes = await started(replicas=2)
    nodes.resizes = "Infeasible"
    await nodes.cluster.apply(SCALE_PLANS, "p", timeoutSeconds=600, **LESS_MEMORY)
    await nodes.until(
        lambda: "job-worker-0" not in nodes.live_pods() and "job-worker-2" in nodes.live_pods()
    )
    end_training(nodes.cluster, "job-worker-2", 137, "OOMKilled")
    await nodes.settle()
    assert nodes.plan("p")["phase"] == "Succeeded"
    (again,) = [name for name in nodes.live_pods() if name.startswith("job-worker-2-")]
    assert nodes.requests("memory")[again] == "1024Mi", "what its restart was announced with"
    nodes.cluster.kube.remove(PODS, again)
    await nodes.until(lambda: any(name.startswith("job-worker-2-") for name in nodes.live_pods()))
    (again,) = [name for name in nodes.live_pods() if name.startswith("job-worker-2-")]
    assert nodes.requests("memory")[again] == "1024Mi"


async def test_the_job_succeeds_when_its_members_have_despite_a_pending_replacement() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) == 2 else ""
    await nodes.cluster.apply(SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0"}])
    await nodes.until(lambda: len(nodes.cluster.kube.pods()) == 3)
    for name in ("job-worker-0", "job-worker-1"):
        nodes.cluster.end(name, 0)
    await nodes.settle()
    assert nodes.cluster.job().status.phase == "Succeeded"
    assert nodes.plan("m")["phase"] == "Cancelled", "the job does not wait for it"


async def test_a_replacement_that_has_finished_its_work_already_takes_over() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0"}])
    await nodes.until(lambda: "job-worker-2" in nodes.live_pods())
    nodes.cluster.end("job-worker-2", 0)
    await nodes.settle()
    assert nodes.plan("m")["phase"] == "Succeeded"
    assert nodes.plan("m")["removedPods"] == ["job-worker-0"]
    assert size_and_indices(nodes.cluster) == (2, "1-2")


async def test_a_member_that_finishes_while_its_replacement_starts_is_not_a_failure() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) == 2 else ""
    await nodes.cluster.apply(SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0"}])
    await nodes.until(lambda: len(nodes.cluster.kube.pods()) == 3)
    nodes.cluster.end("job-worker-0", 0)
    await nodes.settle()
    assert nodes.plan("m")["phase"] == "Succeeded"
    assert nodes.plan("m")["migrations"][0]["message"] == "the member has finished its work"
    assert size_and_indices(nodes.cluster) == (2, "0-1")


async def test_a_replacement_that_vanishes_is_made_again_and_so_is_a_member_that_waits_for_it() -> (
    None
):
    nodes = await started(replicas=2)
    cluster = nodes.cluster
    slow = True
    nodes.stuck = lambda pod: "not yet" if index_of(pod) == 2 and slow else ""
    await cluster.apply(SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0"}])
    await nodes.until(lambda: "job-worker-2" in nodes.live_pods())
    cluster.kube.remove(PODS, "job-worker-2")
    cluster.kube.remove(PODS, "job-worker-0")
    await nodes.until(lambda: {"job-worker-0-1", "job-worker-2-2"} <= set(nodes.live_pods()))
    slow = False
    await nodes.settle()
    assert nodes.plan("m")["phase"] == "Succeeded"
    assert nodes.live_pods() == ["job-worker-1", "job-worker-2-2"]


async def test_a_second_plan_waits_for_the_migration_and_counts_from_the_true_size() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "m", migratePods=[{"name": "job-worker-0"}])
    await nodes.run_operator()
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.settle()
    assert size_and_indices(nodes.cluster) == (3, "0-2")
    assert nodes.cluster.job().spec.replica_specs["worker"].replicas == 3


async def history(fault: str, write: int, spec: dict[str, Any], resizes: Resizes) -> Nodes:
    nodes = await started(replicas=3)
    nodes.resizes = resizes
    setattr(nodes.cluster.kube, fault, write)
    await nodes.cluster.apply(SCALE_PLANS, "p", **spec)
    await nodes.settle()
    return nodes


def check_migrated(nodes: Nodes, count: int) -> None:
    status = nodes.plan("p")
    assert status["phase"] == "Succeeded", status
    assert [move["phase"] for move in status["migrations"]] == ["Done"] * count
    assert size_and_indices(nodes.cluster)[0] == 3
    assert len(nodes.live_pods()) == 3
    assert sorted(nodes.requests("cpu").values()) == ["1"] * (3 - count) + ["2"] * count
    assert nodes.cluster.job().spec.replica_specs["worker"].replicas == 3
    nodes.cluster.check_final_state()


async def test_a_replacement_is_not_replaced_because_its_kubelet_does_not_report_its_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        resize, "MAX_NAMES_LISTED", 2
    )  # so the plan cannot list more pods that it has asked to resize
    monkeypatch.setattr(fake_nodes, "_reported", lambda _: {"name": "train", "resources": {}})
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "p", **MORE_CPU)
    await nodes.settle()
    assert nodes.plan("p")["phase"] == "Succeeded"
    assert [move["phase"] for move in nodes.plan("p")["migrations"]] == ["Done", "Done"]
    assert set(nodes.requests("cpu").values()) == {"2"}


TWO = {
    "migratePods": [
        {"role": "worker", "index": index, "resource": {"cpu": "2"}} for index in (0, 2)
    ]
}


@pytest.mark.guarantee("operator-can-be-killed")
@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_a_migration_continues_after_a_crash_of_the_operator_at_any_write(fault: str) -> None:
    writes = await writes_of(TWO, "InPlace")
    assert writes > 12
    for write in range(1, writes + 1):
        check_migrated(await history(fault, write, TWO, "InPlace"), 2)


@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_a_rolling_change_continues_after_a_crash_of_the_operator_at_any_write(
    fault: str, thorough: bool
) -> None:
    writes = await writes_of(MORE_CPU, "Infeasible")
    assert writes > 25
    for write in range(1, writes + 1) if thorough else range(1, writes + 1, 3):
        check_migrated(await history(fault, write, MORE_CPU, "Infeasible"), 3)


async def writes_of(spec: dict[str, Any], resizes: Resizes) -> int:
    """Return the number of the operator's writes for a plan without faults."""
    nodes = await started(replicas=3)
    nodes.resizes = resizes
    before = nodes.cluster.kube.writes
    await nodes.cluster.apply(SCALE_PLANS, "p", **spec)
    await nodes.settle()
    return nodes.cluster.kube.writes - before - 1
