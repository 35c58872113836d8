"""Tests a job without `replicas` in its manifest, which keeps the size that its plans give it."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_OUTS, SCALE_PLANS

from tests.support.job_cluster import new_cluster, pod_names, set_suspend, status_of
from tests.support.simulator.cluster import JOB, Cluster


def without_replicas(*, least: int = 1) -> Cluster:
    return new_cluster(replicas=None, least=least, most=8)


def take_out(cluster: Cluster) -> None:
    cluster.kube.edit(
        ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"]["worker"].pop("replicas", None)
    )


def replicas(cluster: Cluster) -> Any:
    return cluster.kube.objects[ELASTIC_JOBS, JOB]["spec"]["replicaSpecs"]["worker"].get("replicas")


async def scale_out(cluster: Cluster, count: int) -> None:
    await cluster.apply(SCALE_OUTS, "more", count=count)
    await cluster.settle()


@pytest.mark.parametrize("minimum", [1, 3])
async def test_it_begins_with_min_replicas_and_the_field_says_so(minimum: int) -> None:
    cluster = without_replicas(least=minimum)
    await cluster.start()
    await cluster.settle()
    assert (len(pod_names(cluster)), replicas(cluster)) == (minimum, minimum)
    assert status_of(cluster)["phase"] == "Running"


async def test_a_manifest_that_is_applied_again_does_not_undo_a_scale_out() -> None:
    cluster = without_replicas()
    await cluster.start()
    await cluster.settle()
    await scale_out(cluster, 3)
    assert (len(pod_names(cluster)), replicas(cluster)) == (4, 4)
    plans = len(cluster.kube.all(SCALE_PLANS))
    take_out(cluster)  # as an apply does whose manifest had it the last time
    await cluster.settle()
    assert (len(pod_names(cluster)), replicas(cluster)) == (4, 4)
    assert len(cluster.kube.all(SCALE_PLANS)) == plans


async def test_in_the_middle_of_a_plan_taking_it_out_is_no_edit() -> None:
    cluster = without_replicas()
    await cluster.start()
    await cluster.settle()
    await cluster.apply(SCALE_OUTS, "more", count=3)
    await cluster.run_operator()
    assert status_of(cluster)["currentPlan"]
    take_out(cluster)
    await cluster.settle()
    assert (len(pod_names(cluster)), replicas(cluster)) == (4, 4)


async def test_bounds_that_are_edited_meanwhile_hold() -> None:
    cluster = without_replicas()
    await cluster.start()
    await cluster.settle()
    await scale_out(cluster, 3)
    take_out(cluster)
    cluster.edit_role(maxReplicas=3)
    await cluster.settle()
    assert (len(pod_names(cluster)), replicas(cluster)) == (3, 3)


async def test_a_suspended_job_keeps_its_size_when_it_is_taken_out() -> None:
    cluster = without_replicas()
    await cluster.start()
    await cluster.settle()
    await scale_out(cluster, 3)
    set_suspend(cluster, True)
    await cluster.settle()
    take_out(cluster)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    assert (len(pod_names(cluster)), replicas(cluster)) == (4, 4)
