"""Uses a device plugin's resources, which the test adds to a node's status.

The scheduler counts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api.meta import Json

from tests.support.e2e import scaling_jobs
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.target_cluster import TargetCluster

CARD = "example.com/card"


@pytest.fixture
def cards(cluster: TargetCluster) -> Iterator[None]:
    """Let one node have six cards; another test may add a node with a taint, and remove it."""
    nodes = [node for node in cluster.nodes() if not node["spec"].get("taints")]
    name = nodes[0]["metadata"]["name"]

    def say(amount: str | None) -> None:
        patch = {"status": {kind: {CARD: amount} for kind in ("capacity", "allocatable")}}
        cluster.kubectl(
            "patch",
            "node",
            name,
            "--subresource=status",
            "--type=merge",
            f"--patch={json.dumps(patch)}",
        )

    say("6")
    yield
    say(None)


@pytest.mark.thorough
def test_replacements_get_more_of_an_extended_resource_within_the_jobs_limit(
    sandbox: Sandbox, folder: Path, cards: None
) -> None:
    user = KubectlUser(sandbox, "cards", folder)
    asked = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi", CARD: 1}}
    job = scaling_jobs.job("cards", folder, replicas=2, resources=asked)
    job["spec"]["autoscaling"] = {"resourceLimits": {CARD: 4}}
    sandbox.apply(job)
    before = user.begin(2)
    status = user.create(
        "ScalePlan", "two-each", replicaResourceSpecs={"worker": {"resource": {CARD: 2}}}
    )
    user.runs_with(2)
    assert {move["message"] for move in status["migrations"]} == {f"{CARD} cannot change in place"}
    assert not set(before) & set(user.pods())
    for name in user.pods():
        resources: Json = user.get(f"pod/{name}")["spec"]["containers"][0]["resources"]
        assert (resources["requests"][CARD], resources["limits"][CARD]) == ("2", "2")
    user.request(
        "ScalePlan", "three-each", replicaResourceSpecs={"worker": {"resource": {CARD: 3}}}
    )
    user.wait("sp/three-each", ".status.phase", "Failed")
    assert user.status("sp/three-each")["message"] == (
        f"spec.autoscaling.resourceLimits.{CARD}: "
        f"all members together would request {CARD} 6, above the job's limit 4"
    )
    user.finish()
