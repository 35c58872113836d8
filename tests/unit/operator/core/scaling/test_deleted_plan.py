"""Tests that members added by a plan are removed if the plan is deleted while it runs.

In these tests the spec also has an edit that is refused.
"""

from __future__ import annotations

import copy

import pytest
from elasticjob_kube.resources import SCALE_PLANS

from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes, index_of

EDITS = {"chief": 2, "worker": 6}
"""Sizes that are refused: a framework has one chief, and six workers are above the job's resource
limit.
"""


async def migrating() -> Nodes:
    """Return a job in which a plan replaces one of three workers by a pod that finds no node."""
    nodes = Nodes(
        Cluster(replicas=3, framework="tensorflow", autoscaling={"resourceLimits": {"cpu": "6"}})
    )
    roles = nodes.cluster._body["spec"]["replicaSpecs"]
    roles["chief"] = copy.deepcopy(roles["worker"]) | {"replicas": 1}
    await nodes.started()
    nodes.stuck = lambda pod: "no node is left" if index_of(pod) == 3 else ""
    await nodes.cluster.apply(SCALE_PLANS, "p", migratePods=[{"name": "job-worker-1"}])
    await nodes.until(lambda: "job-worker-3" in nodes.live_pods())
    return nodes


@pytest.mark.guarantee("plan-deleted-midway")
@pytest.mark.parametrize(("role", "size"), EDITS.items(), ids=EDITS)
async def test_replacements_of_a_deleted_plan_leave_also_while_an_edit_of_the_spec_is_refused(
    role: str, size: int
) -> None:
    for write in (None, 1, 2, 3, 4, 5, 6):
        nodes = await migrating()
        nodes.cluster.edit_role(role, replicas=size)
        nodes.cluster.kube.remove(SCALE_PLANS, "p")
        nodes.cluster.kube.crash_in = write
        await nodes.settle()
        nodes.cluster.kube.crash_in = None
        assert nodes.live_pods() == ["job-worker-0", "job-worker-1", "job-worker-2"]
        back, edited = nodes.plans()
        assert back["spec"]["replicaResourceSpecs"] == {"worker": {"replicas": 3}}
        whose = "of its spec" if role == "chief" else "it had"
        assert back["spec"]["reason"].endswith(
            f"the job goes back to worker 3, the replicas {whose}"
        )
        assert (edited["metadata"]["name"], edited["status"]["phase"]) == ("job-spec-2", "Failed")
        asked = nodes.cluster.job().spec.replica_specs[role].replicas
        assert asked == size, "what the user has written stays"
        nodes.cluster.check_final_state()


@pytest.mark.guarantee("plan-deleted-midway")
@pytest.mark.parametrize(("role", "size"), EDITS.items(), ids=EDITS)
async def test_a_job_whose_plan_was_deleted_is_resumed_with_no_size_that_is_refused(
    role: str, size: int
) -> None:
    nodes = await migrating()
    nodes.cluster.edit_role(role, replicas=size)
    nodes.cluster.kube.remove(SCALE_PLANS, "p")
    for suspend in (True, False):
        nodes.cluster.edit_policy(suspend=suspend)
        await nodes.settle()
    assert len(nodes.live_pods()) == 3
    assert len(nodes.live_pods("chief")) == 1
    nodes.cluster.check_final_state()
