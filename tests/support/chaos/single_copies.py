"""Spares the only copy of a job's state, which is in its ConfigMap and in its master.

One of them may be destroyed. The master writes a deleted ConfigMap again (docs/guarantees.md).
Until then no fault may end the master, and without a master that can write, none may delete the
ConfigMap. Destroying both would destroy the state.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_api import names
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from tests.support.chaos.cluster import NAMESPACE
from tests.support.chaos.jobs import Job
from tests.support.chaos.pod_watch import PodWatch, WatchedPod


class SingleCopies:
    """Selects the masters and the ConfigMaps that may be hit."""

    def __init__(self, kube: Kube, pods: PodWatch, jobs: Mapping[str, Job]) -> None:
        self._kube = kube
        self._pods = pods
        self._jobs = jobs
        self._only_master: set[str] = set()
        """Jobs whose ConfigMap was deleted."""
        self._only_config_map: dict[str, str] = {}
        """UID of the master that cannot write any more because its account was deleted, by job."""

    async def refresh(self) -> None:
        """Find out which ConfigMaps are written again."""
        for job in sorted(self._only_master):
            try:
                found = await self._kube.get(CONFIG_MAPS, NAMESPACE, names.state_config_map(job))
            except NotFound:
                found = {}
            if found.get("binaryData") or job not in self._jobs:
                self._only_master.discard(job)

    def masters(self) -> list[WatchedPod]:
        """Return the running masters that may be ended, by name."""
        kept = {
            pod.metadata.uid for job in self._only_master if (pod := self._master(job)) is not None
        }
        return [pod for pod in self._pods.running(masters=True) if pod.metadata.uid not in kept]

    def accounts(self) -> list[str]:
        """Return the jobs whose account may be deleted."""
        return sorted(self._jobs.keys() - self._only_master)

    def config_maps(self) -> list[str]:
        """Return the jobs whose ConfigMap may be deleted.

        Their master runs, may write, and will not be suspended.
        """
        return [
            name
            for name, job in sorted(self._jobs.items())
            if self._writes(name) and not job.will_be_suspended
        ]

    def deleted_account(self, job: str) -> None:
        """Note that the account of a job is deleted: its present master cannot write any more."""
        master = self._master(job)
        self._only_config_map[job] = master.metadata.uid if master else ""

    def deleted_config_map(self, job: str) -> None:
        """Note that the ConfigMap of a job is deleted."""
        self._only_master.add(job)

    def _writes(self, job: str) -> bool:
        master = self._master(job)
        if master is None or not master.ready or master.metadata.deletion_timestamp is not None:
            return False
        return master.metadata.uid != self._only_config_map.get(job)

    def _master(self, job: str) -> WatchedPod | None:
        """Return a job's master, the newest if an old one is still ending."""
        prefix = f"{names.master_service(job)}-"
        found = [
            pod
            for pod in self._pods.running(masters=True)
            if f"{pod.metadata.name}-".startswith(prefix)
        ]
        return max(found, key=lambda pod: pod.metadata.creation_timestamp, default=None)
