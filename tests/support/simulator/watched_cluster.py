"""A simulated cluster for tests in which other clients edit the operator's objects."""

from __future__ import annotations

from typing import Any

from elasticjob_kube.resources import ELASTIC_JOBS, Resource

from tests.support.simulator.cluster import JOB, Cluster
from tests.support.simulator.fake_kube import copied

MOST = 6
"""The most members of a role."""


class WatchedCluster(Cluster):
    """A cluster that checks that no role has more than MOST live pods."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(most=MOST, **spec)

    async def settle(self, *, turns: int = 200) -> None:
        await super().settle(turns=turns)

    def check(self) -> None:
        super().check()
        live = [pod for pod in self.kube.pods() if pod["status"]["phase"] in ("Pending", "Running")]
        assert len(live) <= MOST, f"{len(live)} pods, and maxReplicas is {MOST}"

    def tamper(self, resource: Resource, name: str, **status: Any) -> None:
        """Write fields of a status, as a client with the permission does."""
        self.kube.set_status(resource, name, **copied(status))

    def tamper_role(self, **fields: Any) -> None:
        """Write fields of the status of the role `worker`."""
        roles = self.kube.objects[ELASTIC_JOBS, JOB]["status"]["replicaStatuses"]
        self.tamper(ELASTIC_JOBS, JOB, replicaStatuses={"worker": {**roles["worker"], **fields}})
