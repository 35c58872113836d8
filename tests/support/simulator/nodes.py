"""Simulates nodes for tests of plans.

A test chooses whether kubelets resize in place, pods start and agents drain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from tests.support.simulator.cluster import Cluster

Resizes = Literal["InPlace", "Infeasible", "Deferred", "Error", "Silent"]
FINISHED = ("Succeeded", "PartiallySucceeded", "Failed", "Superseded", "Cancelled")


@dataclass
class Nodes:
    """Nodes whose kubelets and agents react as set here, when the test calls a method.

    Attributes:
        cluster: the cluster of the nodes.
        resizes: how a kubelet answers a resize in place.
        stuck: returns why a pod cannot be scheduled, or an empty string if it can.
        agents: whether agents confirm that they have drained.
        lost: pods on lost nodes, which never end.
    """

    cluster: Cluster
    resizes: Resizes = "InPlace"
    stuck: Callable[[Json], str] = lambda _: ""
    agents: bool = True
    lost: frozenset[str] = frozenset()

    async def started(self) -> Nodes:
        """Return these nodes when their job runs."""
        await self.cluster.create(ELASTIC_JOBS, self.cluster._body)
        await self.settle()
        return self

    async def settle(self, *, turns: int = 500) -> None:
        """Let operator, kubelets and agents work until all plans have ended and changes stop."""
        for _ in range(turns):
            before = self.cluster.kube.version
            alive = await self.run_operator()
            self.run_pods()
            if alive and self.cluster.kube.version == before:
                requests = [*self.cluster.kube.all(SCALE_INS), *self.cluster.kube.all(SCALE_OUTS)]
                plans = [
                    plan.get("status", {}).get("phase") in FINISHED
                    for plan in self.cluster.kube.all(SCALE_PLANS)
                ]
                if all(plans) and all(
                    "completionTime" in request.get("status", {}) for request in requests
                ):
                    return
        raise AssertionError(
            f"no end: {[(p['metadata']['name'], p.get('status')) for p in self.plans()]}"
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let operator, kubelets and agents work until a condition holds."""
        for _ in range(100):
            if holds():
                return
            await self.run_operator()
            if holds():
                return
            self.run_pods()
        raise AssertionError(f"never so; the plans: {self.plans()}")

    async def run_operator(self) -> bool:
        """Let the operator observe and reconcile once, as its queue would."""
        return await self.cluster.run_operator(pauses=True)

    def run_pods(self) -> None:
        """Let every pod take one step: start, drain, resize or terminate."""
        kube = self.cluster.kube
        draining = {
            n
            for plan in self.plans()
            for n in plan.get("status", {}).get("drainingPods", ())
            if self.agents
        }
        for pod in kube.all(PODS):
            name = pod["metadata"]["name"]
            phase = pod["status"]["phase"]
            if name in self.lost:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                kube.remove(PODS, name)
            elif name in draining and phase == "Running":
                self.cluster.end(name, names.EXIT_DRAINED)
            elif phase == "Pending" and (why := self.stuck(pod)):
                unscheduled = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": why,
                }
                if pod["status"].get("conditions") != [unscheduled]:
                    kube.set_status(PODS, name, conditions=[unscheduled])
            elif phase == "Pending":
                kube.set_status(
                    PODS,
                    name,
                    phase="Running",
                    conditions=[_ready()],
                    containerStatuses=[_reported(pod)],
                )
            elif phase == "Running" and pod["status"]["containerStatuses"] != [_reported(pod)]:
                self._resize(pod)

    def _resize(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        message = "no room on the node"
        if pod["status"]["containerStatuses"][0]["resources"] == _reported(pod)["resources"]:
            return
        if self.resizes == "InPlace":
            self.cluster.kube.set_status(
                PODS, name, conditions=[_ready()], containerStatuses=[_reported(pod)]
            )
        elif self.resizes != "Silent":
            kind = "PodResizeInProgress" if self.resizes == "Error" else "PodResizePending"
            condition = {"type": kind, "status": "True", "reason": self.resizes, "message": message}
            if condition not in pod["status"]["conditions"]:
                self.cluster.kube.set_status(PODS, name, conditions=[_ready(), condition])

    def plans(self) -> list[Json]:
        return self.cluster.kube.all(SCALE_PLANS)

    def plan(self, name: str) -> Json:
        status: Json = self.cluster.kube.objects[SCALE_PLANS, name].get("status", {})
        return status

    def live_pods(self, role: str = "worker") -> list[str]:
        pods = self.cluster.kube.pods(role)
        return [
            p["metadata"]["name"] for p in pods if p["status"]["phase"] in ("Pending", "Running")
        ]

    def requests(self, resource: str) -> dict[str, Any]:
        return {
            pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"]["requests"].get(
                resource
            )
            for pod in self.cluster.kube.pods()
        }


def index_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"].get(names.LABEL_INDEX, -1))


def refuse_resizes(
    cluster: Cluster,
    why: str = "resizing is disabled",
    *,
    seconds: float = float("inf"),
) -> None:
    """Let the API server refuse every resize, for some seconds."""
    patch = cluster.kube.patch
    end = cluster.now + seconds

    async def refusing(
        resource: Resource, namespace: str | None, name: str, body: Any, **options: Any
    ) -> Json:
        if options.get("subresource") == "resize" and cluster.now < end:
            raise Refused(422, "Invalid", why)
        return await patch(resource, namespace, name, body, **options)

    cluster.kube.patch = refusing  # type: ignore[method-assign]


def limit_pods(cluster: Cluster, most: int) -> None:
    """Let the API server refuse members' pods above a quota."""

    def limited(resource: Resource, body: Json) -> None:
        if (
            resource == PODS
            and len(cluster.kube.pods()) >= most
            and names.LABEL_INDEX in body["metadata"]["labels"]
        ):
            raise Refused(403, "Forbidden", f"exceeded quota: pods={most}")

    cluster.kube.before_create = limited


def _ready() -> Json:
    return {"type": "Ready", "status": "True"}


def _reported(pod: Json) -> Json:
    container = pod["spec"]["containers"][0]
    return {"name": container["name"], "resources": container.get("resources", {})}
