"""Tests that the status has the topology domain of each member.

The master gives members of one domain neighbouring ranks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from elasticjob_api.elasticjob import MAX_DOMAINS, ElasticJob
from elasticjob_kube.resources import NODES, PODS
from elasticjob_master.cluster.job_spec import domains
from elasticjob_operator.core.member_counts import with_counts
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods

from tests.support.simulator.cluster import Cluster, job_body

KEY = "example.com/rack"


async def job_in_racks(*racks: str, **spec: Any) -> Cluster:
    """Return a running job whose worker i has its own node in the i-th of these racks."""
    cluster = Cluster(replicas=len(racks), **spec)
    for index, rack in enumerate(racks):
        put_node(cluster, f"n{index}", rack)
    await cluster.start()
    for index, each in enumerate(cluster.kube.pods()):
        cluster.kube.edit(PODS, each["metadata"]["name"], partial(_bind, node=f"n{index}"))
    await cluster.settle()
    return cluster


def _bind(spec: dict[str, Any], node: str) -> None:
    spec["nodeName"] = node


def put_node(cluster: Cluster, name: str, rack: str) -> None:
    labels = {KEY: rack} if rack else {}
    cluster.kube._store(
        NODES, {"metadata": {"name": name, "uid": f"node-{name}", "labels": labels}, "spec": {}}
    )


def of_workers(cluster: Cluster) -> dict[str, str]:
    return cluster.job().status.replica_statuses["worker"].topology_domains


async def test_members_get_the_domain_in_their_nodes_label_and_the_master_reads_it() -> None:
    cluster = await job_in_racks("r1", "r2", "r1", "", topologyKey=KEY)
    assert of_workers(cluster) == {"r1": "0,2", "r2": "1"}
    assert domains(cluster.job()) == {("worker", 0): "r1", ("worker", 2): "r1", ("worker", 1): "r2"}
    cluster.check_final_state()


async def test_without_topology_key_nothing_is_said() -> None:
    cluster = await job_in_racks("r1", "r2")
    assert of_workers(cluster) == {}
    assert domains(cluster.job()) == {}


async def test_a_node_that_moves_to_another_rack_is_noticed() -> None:
    cluster = await job_in_racks("r1", "r2", topologyKey=KEY)
    put_node(cluster, "n0", "r2")
    await cluster.settle()
    assert of_workers(cluster) == {"r2": "0-1"}


def test_an_operator_that_has_not_seen_the_nodes_yet_keeps_what_is_stored() -> None:
    found = observed({"n0": {KEY: "r9"}})
    status = with_counts(found, found.job.status)
    assert status.replica_statuses["worker"].topology_domains == {"r9": "0", "r2": "1"}


def test_the_number_of_domains_is_bounded() -> None:
    found = observed(
        {f"n{index}": {KEY: f"r{index}"} for index in range(2 * MAX_DOMAINS)},
        members=2 * MAX_DOMAINS,
    )
    status = with_counts(found, found.job.status)
    assert len(status.replica_statuses["worker"].topology_domains) == MAX_DOMAINS


def observed(node_labels: dict[str, dict[str, str]], *, members: int = 2) -> Observed:
    """Return a job with members 0 and 1 recorded in racks r1 and r2, each on its own node."""
    body = job_body(members, 1, members, topologyKey=KEY)
    stored = {
        "desired": members,
        "indices": f"0-{members - 1}",
        "topologyDomains": {"r1": "0", "r2": "1"},
    }
    body["status"] = {"phase": "Running", "replicaStatuses": {"worker": stored}}
    labels = [
        {"elasticjob.dev/role": "worker", "elasticjob.dev/index": str(n)} for n in range(members)
    ]
    pods = [
        {
            "metadata": {"name": f"job-worker-{n}", "uid": f"u{n}", "labels": labels[n]},
            "spec": {"nodeName": f"n{n}"},
            "status": {"phase": "Running"},
        }
        for n in range(members)
    ]
    return Observed(
        job=msgspec.convert(body, ElasticJob),
        pods=Pods(msgspec.convert(pod, Pod) for pod in pods),
        node_labels=node_labels,
    )
