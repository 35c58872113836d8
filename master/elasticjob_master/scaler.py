"""Watches the throughput of the sizes the job has had, and asks for another size when the rule says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticjob_master.core import autoscale
from elasticjob_master.core.autoscale import Bounds, Decision, Memory

if TYPE_CHECKING:
    from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scaling:
    """What the ElasticJob says about its scaling, and how it stands.

    Attributes:
        desired: members of the role the operator holds the job to.
        plan_unfinished: a ScalePlan waits or is being executed.
    """

    role: str
    desired: int
    bounds: Bounds
    enabled: bool = False
    objective: float = 0.5
    cooldown: float = 300.0
    plan_unfinished: bool = False


class Scaler:
    """Measures always; decides only while it is enabled and nothing else changes."""

    def __init__(self, job: Controller) -> None:
        self._job = job
        self._window = autoscale.Window()
        self._told = ""
        self._asking = False
        self.memory = Memory()
        self.plans_emitted = 0
        self.scaling: Scaling | None = None
        self.ask: Callable[[str, Decision], None] | None = None

    def disturbed(self) -> None:
        """Something has changed in the world; what was measured so far does not count."""
        self._window.restart()

    def plan_failed(self, message: str) -> None:
        """A plan of ours was not fulfilled: what is there is what can be had."""
        if self.scaling is not None:
            log.warning("a ScalePlan was not fulfilled, no more growth: %s", message)
            self.memory = autoscale.failed(self.memory, self.scaling.desired)
            self._job.changed()

    def answered(self, decision: Decision | None) -> None:
        """The plan that was asked for exists, or (None) could not be made."""
        self._asking = False
        if decision is not None:
            self.memory = decision.memory
            self._job.changed()

    def tick(self, now: float) -> None:
        """Go on measuring; ask for another size when it is time."""
        scaling, rendezvous = self.scaling, self._job.rendezvous
        if scaling is None or not self._steady(scaling):
            self._window.restart()
            return
        rate = self._window.observe(
            size=scaling.desired,
            world_round=rendezvous.round,
            samples=self._job.progress.samples,
            cooldown=scaling.cooldown,
            now=now,
        )
        if not rate:
            return
        if scaling.desired not in self.memory.rates:
            log.info("measured: %d members train %.1f samples/s", scaling.desired, rate)
            self._job.changed()
        self.memory = autoscale.remember(self.memory, scaling.desired, rate)
        if scaling.enabled and not scaling.plan_unfinished and not self._asking and self.ask is not None:
            self._decide(scaling, self.ask)

    def _decide(self, scaling: Scaling, ask: Callable[[str, Decision], None]) -> None:
        decision = autoscale.decide(
            self.memory, size=scaling.desired, bounds=scaling.bounds, objective=scaling.objective
        )
        if decision.size is not None:
            self._asking = True
            ask(scaling.role, decision)
            log.info("auto-scaling: %s", decision.reason)
            return
        self.memory = decision.memory
        told = f"{scaling.desired} {decision.memory.settled}"
        if told != self._told:
            self._told = told
            log.info("auto-scaling: stay: %s", decision.reason)

    def _steady(self, scaling: Scaling) -> bool:
        """The whole job trains at its size and everything is in place."""
        job, rendezvous = self._job, self._job.rendezvous
        if rendezvous.phase != "training" or rendezvous.confirmed_at is None or job.members.away:
            return False
        if job.progress.round != rendezvous.round or not job.progress.reporters():
            return False
        world = [m for m in map(job.members.get, rendezvous.world) if m is not None and m.available]
        return sum(m.identity.role == scaling.role for m in world) == scaling.desired
