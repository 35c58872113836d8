"""Plays Kueue for the simulated cluster: one queue with quota for a number of pods, a CPU for each.

It writes the same fields as the real one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api.meta import Json
from elasticjob_api.pooled_jobs import KUEUE_QUEUE
from elasticjob_api.times import format_time
from elasticjob_kube.resources import ELASTIC_JOBS, KUEUE_FLAVORS, KUEUE_WORKLOADS
from elasticjob_operator.core.model.workload import ELASTIC, Workload

from tests.support.job_cluster import new_cluster
from tests.support.simulator.cluster import NAMESPACE, Cluster

FLAVOR = "fast"
CLUSTER_QUEUE = "all"


def queued_cluster(
    pods: int, *, elastic: bool = True, partial: bool = True, **job: Any
) -> tuple[Cluster, PlayedKueue]:
    """Return a cluster with a job in a queue, and the queue with quota for this number of pods."""
    cluster = new_cluster(**job)
    cluster._body["metadata"]["labels"] = {KUEUE_QUEUE: "team"}
    cluster.operator.use_kueue()
    return cluster, PlayedKueue(cluster, pods, elastic=elastic, partial=partial)


class PlayedKueue:
    """Admits Workloads in their order within the quota, and evicts them on request."""

    def __init__(self, cluster: Any, pods: int, *, elastic: bool, partial: bool) -> None:
        self.cluster = cluster
        self.quota = pods
        self.elastic = elastic
        self.partial = partial

    async def start(self) -> None:
        """Create flavour and job, and continue until both are at rest."""
        body = {
            "kind": "ResourceFlavor",
            "metadata": {"name": FLAVOR},
            "spec": {"nodeLabels": {"pool": FLAVOR}},
        }
        await self.cluster.kube.create(KUEUE_FLAVORS, None, body)
        await self.cluster.create(ELASTIC_JOBS, self.cluster._body)
        await self.settle()

    async def settle(self) -> None:
        """Let the operator and Kueue take turns until nothing changes any more."""
        for _ in range(60):
            before = self.cluster.kube.version
            await self.cluster.settle()
            self.admit()
            if self.cluster.kube.version == before:
                return
        raise AssertionError("operator and Kueue do not come to rest")

    def workloads(self) -> list[Json]:
        """Return all Workloads, the oldest first."""
        return sorted(
            self.cluster.kube.all(KUEUE_WORKLOADS),
            key=lambda each: int(each["metadata"]["resourceVersion"]),
        )

    def admit(self) -> None:
        """Admit the Workloads that fit.

        If Kueue has elastic jobs, a replacement takes the quota of the Workload it replaces.
        """
        for body in sorted(self.workloads(), key=lambda each: -each["spec"].get("priority", 0)):
            self._without_least(body)
            found = _read(body)
            partial = any(each.min_count for each in found.spec.pod_sets)
            assert not (partial and ELASTIC in found.metadata.annotations), "Kueue refuses both"
            if (
                found.reserved
                or found.finished
                or not found.spec.active
                or found.metadata.deletion_timestamp
            ):
                continue
            old = self._replaced(body) if self.elastic else None
            held = [_read(each) for each in self.workloads()]
            used = sum(
                sum(each.counts().values()) for each in held if each.reserved and not each.finished
            )
            used -= sum(_read(old).counts().values()) if old else 0
            least = {each.name: each.min_count or each.count for each in found.spec.pod_sets}
            too_many = max(used + sum(found.counts().values()) - self.quota, 0)
            if too_many > sum(each.count - least[each.name] for each in found.spec.pod_sets):
                message = f"insufficient unused quota: {self.quota - used} pods are left"
                requests = [
                    {"name": name, "resources": {"cpu": count}}
                    for name, count in found.counts().items()
                ]
                waits = (False, "Pending", message)
                self._set(body, {"resourceRequests": requests}, QuotaReserved=waits)
                continue
            if old:
                self._set(
                    old,
                    Finished=(True, "WorkloadSliceReplaced", ""),
                    QuotaReserved=(False, "Replaced", ""),
                )
            given = {
                each.name: each.count - (too_many if each.min_count else 0)
                for each in found.spec.pod_sets
            }
            assignments = [
                {
                    "name": name,
                    "flavors": {"cpu": FLAVOR},
                    "count": count,
                    "resourceUsage": {"cpu": count},
                }
                for name, count in given.items()
            ]
            admission = {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": assignments}
            said = (True, "Admitted", "")
            self._set(
                body,
                {"admission": admission},
                QuotaReserved=said,
                Admitted=said,
                Evicted=(False, "Admitted", ""),
            )

    def _without_least(self, body: Json) -> None:
        """Remove the least numbers of pods, as a Kueue without partial admission does."""
        sets = [] if self.partial else body["spec"]["podSets"]
        if any(each.pop("minCount", None) for each in sets):
            name = body["metadata"]["name"]
            self.cluster.kube.edit(KUEUE_WORKLOADS, name, lambda spec: spec.update(podSets=sets))

    def evict(self, reason: str = "Preempted") -> None:
        """Evict all admitted Workloads."""
        for body in self.workloads():
            if _read(body).admitted:
                self._set(body, Evicted=(True, reason, "to make room for another"))

    def _replaced(self, body: Json) -> Json | None:
        key = (
            body["metadata"]
            .get("annotations", {})
            .get("kueue.x-k8s.io/workload-slice-replacement-for", "")
        )
        found = (
            each for each in self.workloads() if f"{NAMESPACE}/{each['metadata']['name']}" == key
        )
        return next((each for each in found if _read(each).admitted), None)

    def _set(self, body: Json, fields: Json | None = None, **said: tuple[bool, str, str]) -> None:
        name = body["metadata"]["name"]
        status = self.cluster.kube.objects[KUEUE_WORKLOADS, name].get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        for kind, (holds, reason, message) in said.items():
            old = conditions.get(kind, {})
            if (old.get("status"), old.get("message")) == (str(holds), message):
                continue
            since = format_time(self.cluster.now)
            new = {"type": kind, "status": str(holds), "reason": reason, "message": message}
            conditions[kind] = {**new, "lastTransitionTime": since}
        wanted = {**status, "conditions": list(conditions.values()), **(fields or {})}
        if wanted != status:
            self.cluster.kube.set_status(KUEUE_WORKLOADS, name, **wanted)


def _read(body: Json) -> Workload:
    return msgspec.convert(body, Workload)
