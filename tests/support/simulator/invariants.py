"""Invariants that are checked after each write to the cluster.

The checks call none of the operator's functions, so that they cannot repeat its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    NODES,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    VOLUME_CLAIMS,
    Resource,
)

from tests.support.simulator.claim_invariants import ClaimInvariants
from tests.support.simulator.job_invariants import JobInvariants
from tests.support.simulator.node_invariants import NodeInvariants
from tests.support.simulator.plan_invariants import PlanInvariants
from tests.support.simulator.pod_invariants import PodInvariants
from tests.support.simulator.raw_objects import controller, is_terminating, owners, pod_role
from tests.support.simulator.recorded_history import RecordedHistory
from tests.support.simulator.script_invariants import ScriptInvariants
from tests.support.simulator.start_invariants import StartInvariants


class Invariants:
    """Checks every change and the client that made it.

    `actor` is the operator's process, or None for all other clients.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.history = RecordedHistory(now)
        self.pods = PodInvariants(self.history)
        self.jobs = JobInvariants(self.history)
        self.plans = PlanInvariants(self.history)
        self.scripts = ScriptInvariants(self.history)
        self.claims = ClaimInvariants(self.history)
        self.starts = StartInvariants(self.history)
        self.nodes = NodeInvariants(self.history)

    def check(self, kind: str, resource: Resource, name: str, raw: bytes, actor: Any) -> None:
        before = self.history.objects[resource].get(name)
        after: Json | None = msgspec.json.decode(raw) if kind != "DELETED" else None
        if after is None:
            self.history.objects[resource].pop(name, None)
        else:
            self.history.objects[resource][name] = after
        if resource is PODS:
            self.pods.check(before, after, actor)
            self._check_pod_of_job(before, after)
        elif resource is ELASTIC_JOBS:
            self.jobs.check(before, after, actor)
            self.starts.check_job(before, after)
            for job in filter(None, (before, after)):
                self.scripts.check_job(job)
        elif resource is SCALE_PLANS:
            self.plans.check_plan(before, after, actor)
            self.scripts.check_plan(before, after, actor)
            self.nodes.check_plan(before, after, actor)
        elif resource in (SCALE_INS, SCALE_OUTS):
            self.plans.check_request(before, after, actor)
            self.scripts.check_request(before, after, actor)
        elif resource is VOLUME_CLAIMS:
            self.claims.check(before, after, actor)
        elif resource is NODES:
            self.nodes.check_node(before, after)
        elif resource is CONFIG_MAPS and name == names.RULES_CONFIG_MAP:
            assert actor is None, "the operator writes the cluster's rules"
            self.history.has_cluster_rules = True
        elif actor is not None and before is not None:
            assert owners(before), f"{name} of another owner was touched"

    def _check_pod_of_job(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        uid = controller(pod)
        job = self.history.job_with(uid)
        if uid is None or job is None:
            return
        if before is None and pod_role(pod) != names.ROLE_MASTER and not is_terminating(job):
            self.claims.check_pod(pod, job)
            self.starts.check_created(pod, job)
            self.nodes.check_created(pod, job)
        self.starts.check_pod(uid)
