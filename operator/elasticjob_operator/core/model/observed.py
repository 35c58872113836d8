"""The input of a decision: one job and everything that belongs to it, as last observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.json_log import LogFormat
from elasticjob_api.ownership import is_of_kind
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_operator.core.model.actions import ResizePod
from elasticjob_operator.core.model.limit_ranges import Bounds
from elasticjob_operator.core.model.nodes import NodeCondition
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods, RolePods
from elasticjob_operator.core.model.workload import Quota

_UID_CHARACTERS = 10
"""Hexadecimal characters of a request's UID in its plan's name.

40 bits are unique in a namespace.
"""
RequestKey = tuple[str, str, str]
"""Kind, name and UID of a ScaleIn or ScaleOut."""


def key_of_request(request: ScaleIn | ScaleOut) -> RequestKey:
    """Return the key of a ScaleIn or ScaleOut."""
    return type(request).__name__, request.metadata.name, request.metadata.uid


def request_plan_name(request: ScaleIn | ScaleOut) -> str:
    """Return the name of a request's plan, which derives from the request's UID."""
    verb = "in" if isinstance(request, ScaleIn) else "out"
    uid = request.metadata.uid.replace("-", "")[:_UID_CHARACTERS]
    return f"{request.spec.job_name}-{verb}-{uid}"


def controllers_of(plan: ScalePlan) -> list[RequestKey]:
    """Return the keys of the ScaleIns and ScaleOuts that control a plan; usually at most one."""
    return [
        (owner.kind, owner.name, owner.uid)
        for owner in plan.metadata.owner_references
        if owner.controller and (is_of_kind(owner, "ScaleIn") or is_of_kind(owner, "ScaleOut"))
    ]


@dataclass(frozen=True)
class Uncreated:
    """The latest name that was given to a pod, of which no pod was ever created.

    Attributes:
        name: the name, which the next attempt uses.
        why_invalid: why the API server finds the pod's manifest invalid; empty if it refused the
            pod for another reason, or was not asked.
    """

    name: str
    why_invalid: str = ""


@dataclass(frozen=True)
class PoolShare:
    """What an ElasticPool has given to one of its jobs.

    Attributes:
        pool: its name.
        role: the role whose number of members it decides.
        members: for how many of them it has room; None if it has not decided yet.
        suspended: for whom it takes them all, so that the pods end; empty for nobody.
    """

    pool: str
    role: str
    members: int | None = None
    suspended: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether nothing is decided yet, so that the job neither starts nor grows."""
        return self.members is None


@dataclass(frozen=True)
class Observed:
    """One job and what belongs to it.

    Attributes:
        job: the job.
        pods: pods of this job, by its namespace and UID, each with the labels that its name says.
        retained: failed pods that have been replaced and stay for their logs, once they are set
            apart from `pods` (core/members/retained_pods.py).
        plans: ScalePlans that name the job.
        scale_ins: ScaleIns that name the job.
        scale_outs: ScaleOuts that name the job.
        last_refusal: why the API server refused the last attempt to change the cluster, for
            messages; empty if it did not. Nothing is decided by it.
        status_written_at: when this process last wrote the job's status, in seconds since the
            epoch; 0 for never.
        leaving_nodes: nodes that are about to go, and the key of `LEAVING_REASONS` that says why
            (core/model/nodes.py).
        node_labels: the labels of nodes, by their names; empty for an operator that may not watch
            nodes.
        node_conditions: the conditions of nodes, by their names; empty in the same case.
        infrastructure_ensured: whether this process has found or made Secret, Services and so on as
            the spec says.
        account_created: when the master's service account was made; empty if that is not known.
        secret_made_anew: when the job's Secret was made with other contents than it had before;
            empty if it never was.
        refused_resizes: the last resize in place that the API server refused, and why, by pod UID.
        default_limits: the limits that the namespace's LimitRanges give to containers that name
            none.
        bounds: the bounds of the namespace's LimitRanges for a container.
        tampered: by UID of a pod whose labels or owner were edited, what was; `pods` has it as its
            name says.
        gone: by member the name of its latest pod of which the API server has confirmed that it is
            gone.
        uncreated: by member or master the name that its next pod gets, since the API server has
            refused to create it; the latest refusal is the last one.
        unconfirmed: names of pods that the watch has reported as gone while they were running.
        kept: names of pods that exist although no watch reports them, and when the API server last
            said so.
        share: what its ElasticPool has given to the job; None without a pool.
        quota: what Kueue says of the job; None for a job, or an operator, that has nothing to do
            with it.
    """

    job: ElasticJob
    pods: Pods = dataclasses.field(default_factory=Pods)
    retained: tuple[Pod, ...] = ()
    plans: tuple[ScalePlan, ...] = ()
    scale_ins: tuple[ScaleIn, ...] = ()
    scale_outs: tuple[ScaleOut, ...] = ()
    last_refusal: str = ""
    status_written_at: float = 0.0
    leaving_nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_labels: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    node_conditions: Mapping[str, tuple[NodeCondition, ...]] = dataclasses.field(
        default_factory=dict
    )
    infrastructure_ensured: bool = True
    account_created: str = ""
    secret_made_anew: str = ""
    refused_resizes: Mapping[str, tuple[ResizePod, str]] = dataclasses.field(default_factory=dict)
    default_limits: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    bounds: Bounds = dataclasses.field(default_factory=Bounds)
    tampered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gone: Mapping[MemberKey, str] = dataclasses.field(default_factory=dict)
    uncreated: Mapping[MemberKey, Uncreated] = dataclasses.field(default_factory=dict)
    unconfirmed: frozenset[str] = frozenset()
    kept: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quota: Quota | None = None
    share: PoolShare | None = None

    def pods_of(self, role: str) -> RolePods:
        """Return the pods of one role; a member may have none, or two for a time."""
        return self.pods.of(role)

    def most_members(self, role: str) -> int | None:
        """Return for how many members of a role its pool or its quota has room; None: no bound.

        Until the pool has decided, the present ones.
        """
        if self.share is not None and self.share.role == role:
            undecided = self.share.members is None
            return self.pods.of(role).live_count if undecided else self.share.members
        current = self.quota.current if self.quota is not None else None
        return current.most_pods(role) if current is not None else None

    @cached_property
    def requests(self) -> Mapping[RequestKey, ScaleIn | ScaleOut]:
        """The ScaleIns and ScaleOuts."""
        every: list[ScaleIn | ScaleOut] = [*self.scale_ins, *self.scale_outs]
        return {key_of_request(each): each for each in every}

    @cached_property
    def plan_by_request(self) -> Mapping[RequestKey, ScalePlan]:
        """The plan that was created for a ScaleIn or ScaleOut."""
        found: dict[RequestKey, ScalePlan] = {}
        for plan in self.plans:
            if (request := self.request_of(plan)) is not None:
                found.setdefault(key_of_request(request), plan)
        return found

    def request_of(self, plan: ScalePlan) -> ScaleIn | ScaleOut | None:
        """Return the ScaleIn or ScaleOut for which the operator has created this plan.

        A user's own plan may name a request as its owner. So the plan must also have the name that
        the request's status, or at first its UID, gives it.
        """
        owners = (self.requests.get(key) for key in controllers_of(plan))
        return next(
            (
                owner
                for owner in owners
                if owner is not None
                and plan.metadata.name == (owner.status.plan or request_plan_name(owner))
            ),
            None,
        )

    @property
    def masters(self) -> list[Pod]:
        """The master's pods, oldest first."""
        return sorted(self.pods_of(names.ROLE_MASTER), key=lambda pod: pod.incarnation)


@dataclass(frozen=True)
class Defaults:
    """What the operator's configuration has for jobs.

    Attributes:
        log_format: of the masters' logs.
        prices: of resources, as `parse_prices` reads them; empty if jobs show no costs.
        currency: that of the prices.
        collector: the variables that name the collector of the masters' traces.
    """

    master_image: str
    agent_image: str
    log_format: LogFormat = "text"
    collector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prices: str = ""
    currency: str = ""


def owner_reference(
    owner: ElasticJob | ScaleIn | ScaleOut, *, controller: bool = True
) -> dict[str, Any]:
    """Return an owner reference, by which an object is deleted with its owner."""
    reference: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": type(owner).__name__,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
    }
    return reference | {"controller": True, "blockOwnerDeletion": True} if controller else reference


def controlled_by(metadata: Mapping[str, Any], job: ElasticJob) -> bool:
    """Return whether raw metadata of an object names the job as its controller."""
    controller = {
        key: value for key, value in owner_reference(job).items() if key != "blockOwnerDeletion"
    }
    return any(
        controller.items() <= reference.items()
        for reference in metadata.get("ownerReferences") or ()
    )
