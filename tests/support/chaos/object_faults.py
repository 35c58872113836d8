"""Deletes and falsifies objects of the jobs of a chaos run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    LEASES,
    NETWORK_POLICIES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from elasticjob_kube.session import Kube, connect

from tests.support.chaos.cluster import NAMESPACE, ChaosCluster
from tests.support.chaos.jobs import Job
from tests.support.chaos.pod_watch import PodWatch
from tests.support.chaos.schedule import Fault
from tests.support.chaos.single_copies import SingleCopies
from tests.support.service_accounts import kubeconfig_of

T = TypeVar("T")
_OF_THE_MASTER = {
    "service": SERVICES,
    "secret": SECRETS,
    "role": ROLES,
    "role-binding": ROLE_BINDINGS,
    "account": SERVICE_ACCOUNTS,
}
STATUSES: tuple[Json, ...] = (
    {"replicaStatuses": {"worker": {"indices": "0-9999", "desired": 10000}}},
    {"replicaStatuses": {"worker": {"indices": "5000000-8000000"}}},
    {"replicaStatuses": {"worker": {"incarnations": 2**53, "highestIndex": 2**31 - 1}}},
    {"replicaStatuses": {"worker": {"succeededIndices": "0-3", "succeeded": 4}}},
    {"phase": "Succeeded", "completionTime": "2020-01-01T00:00:00Z"},
    {"currentPlan": "no-such-plan"},
    {"master": {"incarnations": 0, "restarts": 2**53}},
    {"restarts": 2**53, "observedGeneration": 2**53},
)
PROGRESS: tuple[Json, ...] = (
    {"step": 2**53, "totalSteps": 1, "samplesPerSecond": 1e308, "etaSeconds": 2**53},
    {"step": 0, "lastReportTime": "9999-12-31T23:59:59Z", "stalledSince": "0001-01-01T00:00:00Z"},
    {"stragglers": [f"pod-{number}" for number in range(100)], "rate": "x" * 1000},
    {
        "metrics": {f"metric-{number}": 1e300 for number in range(64)},
        "unfit": {"nobody": "y" * 1000},
    },
)
LABELS: tuple[tuple[str, str | None], ...] = (
    (names.LABEL_INDEX, "0"),
    (names.LABEL_INDEX, "77"),
    (names.LABEL_INDEX, None),
    (names.LABEL_ROLE, "chief"),
    (names.LABEL_JOB_NAME, "another"),
    (names.LABEL_JOB_UID, "00000000-0000-0000-0000-000000000000"),
    (names.LABEL_JOB_UID, None),
    (names.LABEL_INCARNATION, "9007199254740993"),
)


def pick(found: Sequence[T], target: float) -> T | None:
    """Return the element at a relative place from 0 to 1; None if there are no elements."""
    return found[int(target * len(found))] if found else None


@dataclass
class ObjectFaults:
    """Deletes and falsifies objects; `jobs` are the present ones."""

    cluster: ChaosCluster
    kube: Kube
    pods: PodWatch
    copies: SingleCopies
    jobs: Mapping[str, Job]

    async def delete(self, fault: Fault, what: str) -> str | None:
        """Delete an object; return its description."""
        target = await self._to_delete(fault, what)
        if target is None:
            return None
        resource, name, job = target
        if resource == CONFIG_MAPS:
            self.copies.deleted_config_map(job)
        elif resource == SERVICE_ACCOUNTS:
            self.copies.deleted_account(job)
        try:
            await self.kube.delete(resource, NAMESPACE, name)
        except NotFound:
            return None
        return f"{resource.kind} {name}"

    async def _to_delete(self, fault: Fault, what: str) -> tuple[Resource, str, str] | None:
        """Return kind, name and job; the job is empty if it does not matter."""
        if what in ("worker", "master"):
            pods = self.copies.masters() if what == "master" else self.pods.running(masters=False)
            pod = pick(pods, fault.target)
            return (PODS, pod.metadata.name, "") if pod else None
        if what == "lease":
            return LEASES, pick(self.cluster.leases, fault.target) or "", ""
        if what in ("plan", "request"):
            kinds = (SCALE_PLANS,) if what == "plan" else (SCALE_INS, SCALE_OUTS)
            found = [
                (kind, str(item["metadata"]["name"]), "")
                for kind in kinds
                for item in await self._items(kind)
            ]
            return pick(found, fault.target)
        jobs = {"config-map": self.copies.config_maps, "account": self.copies.accounts}.get(
            what, self._all_jobs
        )()
        job = pick(jobs, fault.target)
        if job is None:
            return None
        if what == "config-map":
            return CONFIG_MAPS, names.state_config_map(job), job
        if what == "network-policy":
            return NETWORK_POLICIES, job, job
        if what == "service" and fault.choice < 0.3:
            return SERVICES, job, job
        return _OF_THE_MASTER[what], names.master_service(job), job

    async def tamper(self, fault: Fault, what: str) -> str | None:
        """Falsify a label with all rights, or a status with the rights of the job's master.

        Return a description of the write.
        """
        if what == "labels":
            pod = pick([*self.pods.running(masters=False), *self.copies.masters()], fault.target)
            label, value = LABELS[int(fault.choice * len(LABELS))]
            if pod is None:
                return None
            body: Json = {"metadata": {"labels": {label: value}}}
            await self.kube.patch(PODS, NAMESPACE, pod.metadata.name, body)
            return f"{pod.metadata.name} {label}={value}"
        job = pick(self._all_jobs(), fault.target)
        if job is None:
            return None
        choices = STATUSES if what == "status" else PROGRESS
        status = choices[int(fault.choice * len(choices))]
        body = {"status": status if what == "status" else {"progress": status}}
        account = names.master_service(job)
        folder = self.cluster.directory
        kubeconfig = await kubeconfig_of(
            account, self.cluster.cluster, self.kube, NAMESPACE, folder
        )
        async with connect(user_agent="elasticjob-chaos", kubeconfig=kubeconfig) as master:
            try:
                await master.patch(ELASTIC_JOBS, NAMESPACE, job, body, subresource="status")
            except Refused as error:
                return f"{job} {status}: refused, {error}"[:400]
        return f"{job} {status}"[:200]

    def _all_jobs(self) -> list[str]:
        return sorted(self.jobs)

    async def _items(self, resource: Resource) -> list[Json]:
        found: list[Json] = (await self.kube.list(resource, NAMESPACE))["items"]
        return found
