"""Tests that the operator's requests for the largest job are bounded by its changes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_kube.resources import PODS, SCALE_PLANS
from elasticjob_operator.core.members.reconcile import MAX_CREATES

from tests.support.job_cluster import end_training, new_cluster, pod_names, status_of
from tests.support.simulator.cluster import Cluster

Calls = Counter[tuple[str, str]]
_FEW = 10
"""The most writes of a status for one change of any size."""


def counted(cluster: Cluster) -> Calls:
    """Count the operator's writes from now on, by verb and kind."""
    calls: Calls = Counter()
    cluster.kube.after_write = lambda: None  # looks at every pod after every write

    def count(verb: str) -> None:
        original: Any = getattr(cluster.kube, verb)

        async def call(resource: Any, *arguments: Any, **options: Any) -> Any:
            calls[verb, resource.kind] += 1
            return await original(resource, *arguments, **options)

        setattr(cluster.kube, verb, call)

    for verb in ("create", "patch", "delete"):
        count(verb)
    return calls


def check_bounded(calls: Calls, *, created: int = 0, deleted: int = 0) -> None:
    """One write for each pod, and few others."""
    assert (calls["create", "Pod"], calls["delete", "Pod"]) == (created, deleted)
    assert calls["patch", "ElasticJob"] <= math.ceil(created / MAX_CREATES) + _FEW
    others = sum(calls.values()) - created - deleted - calls["patch", "ElasticJob"]
    assert others <= 3 * _FEW, calls
    calls.clear()


async def resize(cluster: Cluster, replicas: int) -> None:
    cluster.edit_role(replicas=replicas)
    await cluster.settle()
    last = max(cluster.kube.all(SCALE_PLANS), key=lambda plan: str(plan["status"]["startTime"]))
    assert last["status"]["phase"] == "Succeeded", last["status"]
    assert len(pod_names(cluster)) == replicas


@pytest.mark.guarantee("very-large-jobs")
@pytest.mark.thorough
async def test_ten_thousand_members_without_an_agent_need_one_write_each() -> None:
    size = MAX_REPLICAS
    other = MAX_REPLICAS - MAX_CREATES
    cluster = new_cluster(replicas=size, most=None, framework="custom", worker={"agent": "None"})
    calls = counted(cluster)
    await cluster.start()
    assert (status_of(cluster)["phase"], status_of(cluster)["workers"]) == (
        "Running",
        f"{size}/{size}",
    )
    check_bounded(calls, created=size + 1)  # and the master

    end_training(cluster, "job-worker-7", 1)
    await cluster.settle()
    check_bounded(calls, created=1)
    assert "job-worker-7-1" in pod_names(cluster)

    await resize(cluster, other)
    check_bounded(calls, deleted=size - other)
    await resize(cluster, size)
    check_bounded(calls, created=size - other)
    assert len(msgspec.json.encode(status_of(cluster))) < 20_000, (
        "members that are as they should be are ranges"
    )

    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    status = status_of(cluster)
    assert (status["phase"], status["replicaStatuses"]["worker"]["succeeded"]) == (
        "Succeeded",
        size,
    )
    check_bounded(calls, deleted=1)  # the master; pods that succeeded stay for their logs
    assert len(cluster.kube.all(PODS)) >= size
    cluster.check()
