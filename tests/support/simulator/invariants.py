"""What must hold after every single write to the cluster.

Nothing here is computed by the operator's own functions, so that a mistake in them is not repeated by the check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

from tests.support.simulator.job_invariants import JobInvariants
from tests.support.simulator.plan_invariants import PlanInvariants
from tests.support.simulator.pod_invariants import PodInvariants
from tests.support.simulator.raw_objects import owners
from tests.support.simulator.recorded_history import RecordedHistory

Json = dict[str, Any]


class Invariants:
    """Checks every change, with who made it: `actor` is the operator's process, or None for everybody else."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.history = RecordedHistory(now)
        self.pods, self.jobs = PodInvariants(self.history), JobInvariants(self.history)
        self.plans = PlanInvariants(self.history)

    def check(self, kind: str, resource: Resource, name: str, raw: bytes, actor: Any) -> None:
        before = self.history.objects[resource].get(name)
        after: Json | None = msgspec.json.decode(raw) if kind != "DELETED" else None
        if after is None:
            self.history.objects[resource].pop(name, None)
        else:
            self.history.objects[resource][name] = after
        if resource is PODS:
            self.pods.check(before, after, actor)
        elif resource is ELASTIC_JOBS:
            self.jobs.check(before, after, actor)
        elif resource is SCALE_PLANS:
            self.plans.check_plan(before, after, actor)
        elif resource in (SCALE_INS, SCALE_OUTS):
            self.plans.check_scaler(before, after, actor)
        elif actor is not None and before is not None:
            assert owners(before), f"{name} of another owner was touched"
