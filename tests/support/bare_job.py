"""Simulates a job without requested resources, scaled by the master's real auto-scaler."""

from __future__ import annotations

import dataclasses

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import (
    ContainerResources,
    EndedPlan,
    JobScaling,
    RoleResources,
)
from elasticjob_master.core.rendezvous.members import Identity, Member, Usage

from bench.autoscale_job import SimulatedJob
from bench.autoscale_worlds import World

MIB = 1024**2
SERVERS = 2


class BareJob(SimulatedJob):
    """Workers and two parameter servers without resources.

    Members request the resources that plans have set.

    Attributes:
        limits: cores and bytes of all members together.
        maximum: the job has the world's maximum as its maxReplicas; else only the limits bound it.
        uses: the usage of a member of each role, by the seconds since the start.
        given: the resources that plans have set, by role.
        decisions: the plans' requests.
        at: the seconds since the start.
        refuses: plans that set resources fail.
    """

    def __init__(self, world: World, *, limits: dict[str, float], maximum: bool = False) -> None:
        self.limits = limits
        self.maximum = maximum
        self.given: dict[str, dict[str, float]] = {}
        self.decisions: list[ScalingDecision] = []
        self.at: list[float] = []
        self.refuses = False
        super().__init__(world)

    def begin(self) -> None:
        """Let the auto-scaler look at the job before it trains."""
        decision = self.autoscaler.tick(
            self._view(), self._scaling, 0.0, wall=1e9, plan_requested=False
        )
        if decision is not None:
            self._execute(decision)

    @property
    def size(self) -> int:
        return self._scaling.desired

    @property
    def scaling(self) -> JobScaling:
        return self._scaling

    def uses(self, role: str) -> Usage:
        if role == "worker":
            return Usage(cpu_cores=1.63, memory_bytes=1000 * MIB)
        return Usage(0.42, 300 * MIB)

    def _resources(self, role: str) -> ContainerResources:
        if role not in self.given:
            return ContainerResources()
        given = self.given[role]
        return ContainerResources(given["cpu"], int(given["memory"]))

    def _begin_round(self, size: int) -> None:
        super()._begin_round(size)
        for number in range(SERVERS):
            identity = Identity(f"j-ps-{number}", f"ps-{number}", "ps", number)
            self._members[f"ps-{number}"] = Member(
                identity,
                size + number + 1,
                disconnected_since=None,
                process_round=self._round,
                started=True,
            )
        sizes = {"worker": size, "ps": SERVERS}
        roles = {
            role: RoleResources(
                self._resources(role),
                requests=self.given.get(role, {}),
                desired=count,
                indices=frozenset(range(count)),
            )
            for role, count in sizes.items()
        }
        free = {
            name: limit
            - sum(self.given.get(role, {}).get(name, 0.0) * count for role, count in sizes.items())
            for name, limit in self.limits.items()
        }
        assert all(each >= 0 for each in free.values()), "the operator would have refused the plan"
        most = self.world.maximum if self.maximum else 10_000
        if "worker" in self.given:  # the master derives the bounds from the members' requests
            most = min(
                [most, *(size + int(free[name] // self.given["worker"][name]) for name in free)]
            )
        self._scaling = dataclasses.replace(
            self._scaling,
            roles=roles,
            free_resources=free,
            bounds=Bounds(
                self.world.minimum, most, by_need=not self.maximum and "worker" not in self.given
            ),
            setting=f"ps {SERVERS} x {self.given.get('ps', {}).get('cpu', 0):g}",
        )

    def _train(self) -> tuple[float, float]:
        for member in self._members.values():
            member.usage = self.uses(member.identity.role)
        return super()._train()

    def _execute(self, decision: ScalingDecision) -> None:
        self.decisions.append(decision)
        self.at.append(self.now)
        if self.refuses and decision.resources:
            self.autoscaler.plan_created(decision)
            failed = EndedPlan(
                len(self.decisions),
                "Failed",
                decision.size,
                self._scaling.desired,
                "no",
                resources=True,
            )
            self.autoscaler.plan_ended(failed, wall=1e9 + self.now)
            return
        self.given |= {role: dict(each) for role, each in decision.resources.items()}
        super()._execute(decision)
