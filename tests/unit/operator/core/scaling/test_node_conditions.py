"""Tests that members are replaced on nodes with a condition that their job names.

A condition that passes in time must not cost anything.
"""

from __future__ import annotations

from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.resources import ELASTIC_JOBS, NODES, PODS
from elasticjob_operator.core.manifests.placement import AvoidedNodes, avoiding

from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes

WANTED = [{"type": "GPUUnhealthy", "seconds": 60}]
KEY = "requiredDuringSchedulingIgnoredDuringExecution"


async def world(policy: Json | None = None) -> Nodes:
    """Return a running job whose worker i is on node n<i>.

    A pod that finds no node but sick ones stays Pending.
    """
    nodes = Nodes(
        Cluster(
            replicas=3, runPolicy={"replaceOnNodeConditions": WANTED} if policy is None else policy
        )
    )
    cluster = nodes.cluster
    for index in range(4):
        cluster.kube._store(
            NODES, {"metadata": {"name": f"n{index}", "uid": f"node-{index}"}, "spec": {}}
        )
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await nodes.settle()
    for index in range(3):
        cluster.kube.edit(
            PODS,
            f"job-worker-{index}",
            lambda spec, on=f"n{index}": spec.update(nodeName=on),  # type: ignore[misc]
        )
    await nodes.settle()
    return nodes


def set_condition(
    nodes: Nodes, *names: str, status: str = "True", kind: str = "GPUUnhealthy"
) -> None:
    kube = nodes.cluster.kube
    for name in names:
        condition = {
            "type": kind,
            "status": status,
            "lastTransitionTime": format_time(nodes.cluster.now),
        }
        found = kube.objects[NODES, name]
        found["status"] = {"conditions": [{"type": "Ready", "status": "True"}, condition]}
        kube._store(NODES, found)


async def pass_time(nodes: Nodes, seconds: float = 70) -> None:
    await nodes.run_operator()
    nodes.cluster.now += seconds
    await nodes.settle()


def required(pod: Json) -> list[str]:
    """Return the nodes on which a pod must not run."""
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][KEY]["nodeSelectorTerms"]
    return [field["values"][0] for field in term["matchFields"]]


async def test_a_member_leaves_a_sick_node_when_its_replacement_is_ready_without_a_count() -> None:
    nodes = await world()
    set_condition(nodes, "n1")
    await pass_time(nodes)
    (plan,) = nodes.plans()
    assert (plan["spec"]["source"], plan["status"]["phase"]) == ("Disruption", "Succeeded"), plan
    assert plan["spec"]["reason"] == "node n1: GPUUnhealthy is True"
    assert nodes.live_pods() == ["job-worker-0", "job-worker-2", "job-worker-3"]
    assert required(nodes.cluster.kube.objects[PODS, "job-worker-3"]) == ["n1"]
    replica = nodes.cluster.job().status.replica_statuses["worker"]
    assert (replica.desired, replica.restarts, replica.uncounted_restarts) == (3, 0, 0)
    nodes.cluster.check_final_state()


async def test_where_every_node_is_said_to_be_sick_the_members_stay_and_are_not_tried_again() -> (
    None
):
    nodes = await world()
    nodes.stuck = lambda pod: "no node is left" if pod["spec"].get("affinity") else ""
    set_condition(nodes, "n0", "n1", "n2", "n3")
    await nodes.run_operator()
    nodes.cluster.now += 70
    await nodes.until(lambda: len(nodes.cluster.kube.pods()) == 6)
    nodes.cluster.now += 310
    await nodes.settle()
    (plan,) = nodes.plans()
    assert plan["status"]["phase"] == "Failed", plan
    assert nodes.live_pods() == ["job-worker-0", "job-worker-1", "job-worker-2"]
    await pass_time(nodes, 1000)
    assert len(nodes.plans()) == 1, "each pod is tried once"


async def test_a_restarted_replacement_avoids_sick_nodes_also_after_the_old_pod_is_deleted() -> (
    None
):
    nodes = await world()
    nodes.stuck = lambda pod: "no node is left" if pod["spec"].get("affinity") else ""
    set_condition(nodes, "n1")
    await nodes.run_operator()
    nodes.cluster.now += 70
    await nodes.until(lambda: "job-worker-3" in nodes.live_pods())
    for gone in ("job-worker-1", "job-worker-3"):
        nodes.cluster.kube.remove(PODS, gone)
    await nodes.until(lambda: {"job-worker-1-1", "job-worker-3-2"} <= {*nodes.live_pods()})
    assert required(nodes.cluster.kube.objects[PODS, "job-worker-3-2"]) == ["n1"]


async def test_a_restarted_replacement_avoids_sick_nodes_also_after_another_one_failed() -> None:
    nodes = await world()
    nodes.stuck = lambda pod: "no node is left" if pod["spec"].get("affinity") else ""
    set_condition(nodes, "n1", "n2")
    await nodes.run_operator()
    nodes.cluster.now += 70
    await nodes.until(lambda: {"job-worker-3", "job-worker-4"} <= {*nodes.live_pods()})
    nodes.cluster.end("job-worker-3", 1)
    await nodes.until(lambda: "Undone" in str(nodes.plans()))
    nodes.cluster.kube.remove(PODS, "job-worker-4")
    await nodes.until(lambda: "job-worker-4-1" in nodes.live_pods())
    assert required(nodes.cluster.kube.objects[PODS, "job-worker-4-1"]) == ["n1", "n2"]


async def test_a_condition_that_passes_soon_and_one_that_the_job_does_not_name_change_nothing() -> (
    None
):
    nodes = await world()
    set_condition(nodes, "n1")
    await pass_time(nodes, 30)
    set_condition(nodes, "n1", status="False")
    set_condition(nodes, "n2", kind="DiskPressure")
    await pass_time(nodes, 600)
    assert nodes.plans() == []


async def test_without_the_policy_no_condition_matters() -> None:
    nodes = await world(policy={})
    set_condition(nodes, "n1")
    await pass_time(nodes, 600)
    assert nodes.plans() == []


async def test_the_operator_looks_again_when_the_condition_has_lasted_long_enough() -> None:
    nodes = await world()
    set_condition(nodes, "n1")
    await nodes.cluster.operator.watch()
    requeue = await nodes.cluster.operator.work(nodes.cluster.now)
    assert requeue is not None
    assert 0 < requeue <= 60
    assert nodes.plans() == []


async def test_a_member_that_was_not_replaced_still_leaves_a_node_that_is_cordoned_later() -> None:
    nodes = await world()
    nodes.stuck = lambda pod: "no node is left" if KEY in str(pod["spec"].get("affinity")) else ""
    set_condition(nodes, "n1")
    await nodes.run_operator()
    nodes.cluster.now += 70
    await nodes.until(lambda: len(nodes.cluster.kube.pods()) == 4)
    nodes.cluster.now += 310
    await nodes.settle()
    found = nodes.cluster.kube.objects[NODES, "n1"]
    found["spec"]["unschedulable"] = True
    nodes.cluster.kube._store(NODES, found)
    await nodes.settle()
    assert [plan["status"]["phase"] for plan in nodes.plans()] == ["Failed", "Succeeded"]
    assert "job-worker-1" not in nodes.live_pods()


def test_a_replacement_avoids_the_node_in_addition_to_the_templates_requirements() -> None:
    mine = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    of_nodes = {KEY: {"nodeSelectorTerms": [mine, {"matchFields": [{"key": "x"}]}]}}
    pod = {"spec": {"affinity": {"nodeAffinity": of_nodes}}}
    found = avoiding(pod, AvoidedNodes(required=("a", "b")))["spec"]["affinity"]["nodeAffinity"]
    others = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("a", "b")
    ]
    assert found[KEY]["nodeSelectorTerms"] == [
        {**mine, "matchFields": others},
        {"matchFields": [{"key": "x"}, *others]},
    ]
    assert "matchFields" not in mine, "the template itself is not changed"
