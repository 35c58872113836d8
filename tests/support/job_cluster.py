"""Runs a simulated cluster with one clock, and the events of a job's life."""

from __future__ import annotations

from typing import Any

from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.resources import ELASTIC_JOBS, PODS

from tests.support.simulator.cluster import JOB, Cluster


def new_cluster(**job: Any) -> Cluster:
    """Return a simulated cluster with this job, whose API server and operator have one clock."""
    cluster = Cluster(**job)
    cluster.kube.now = lambda: cluster.now
    return cluster


def pod_names(cluster: Cluster, role: str = "worker") -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.kube.pods(role)]


def ending(cluster: Cluster) -> list[str]:
    """Return the names of the pods that are being deleted."""
    pods = cluster.kube.all(PODS)
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]


def status_of(cluster: Cluster) -> Json:
    found: Json = cluster.kube.objects[ELASTIC_JOBS, JOB]["status"]
    return found


def condition(cluster: Cluster, kind: str) -> tuple[str, str]:
    (found,) = [c for c in status_of(cluster)["conditions"] if c["type"] == kind]
    return found["status"], found["reason"]


def set_suspend(cluster: Cluster, value: bool) -> None:
    cluster.edit_policy(suspend=value)


def set_stop(cluster: Cluster) -> None:
    cluster.edit_policy(stop=True)


def end_training(
    cluster: Cluster,
    name: str,
    code: int,
    reason: str = "Error",
    *,
    ran: float = 1.0,
    ago: float = 0.0,
) -> None:
    """Let the training in a pod end `ago` seconds ago, after it ran for `seconds`."""
    at = cluster.now - ago
    times = {"startedAt": format_time(at - ran), "finishedAt": format_time(at)}
    terminated = {
        "exitCode": code,
        "reason": reason if code else "Completed",
        "message": "last words",
        **times,
    }
    container = {"name": "train", "state": {"terminated": terminated}}
    phase = "Failed" if code else "Succeeded"
    cluster.kube.set_status(PODS, name, phase=phase, conditions=[], containerStatuses=[container])


async def reconcile_now(cluster: Cluster, turns: int = 3) -> None:
    """Let the operator reconcile, and pods start and end, while hardly any time passes."""
    for _ in range(turns):
        cluster.now -= 2  # the duration of a turn
        await cluster.run_operator()
        cluster.run_pods()
