"""The ElasticPool resource: jobs of a namespace that share what there is.

`crds/elasticpools.yaml` is generated from here. Keys of maps have no pattern, which a CRD cannot
check: a pool that the API server accepts must not be one that the operator cannot read.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.meta import (
    Column,
    Message,
    Object,
    ObjectMeta,
    ObjectName,
    Quantity,
    Rule,
    Time,
)
from elasticjob_api.replica_spec import Seconds
from elasticjob_api.resources import MAX_RESOURCES

Policy = Literal["Priority", "Fair", "Throughput"]
MAX_SELECTED_LABELS = 16
MAX_CLASSES = 64


class ElasticPoolSpec(Object, frozen=True):
    """Which jobs share how much, and by which policy."""

    selector: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            description="Labels that a job of the pool has; empty: all jobs of the namespace. A "
            "job that several pools select is in the oldest one.",
            max_length=MAX_SELECTED_LABELS,
        ),
    ] = {}
    capacity: Annotated[
        dict[str, Quantity],
        Meta(
            max_length=MAX_RESOURCES,
            description="What the jobs may hold together, by resource; other resources are not "
            "counted. Unset: what the nodes have; of several such pools only the oldest has an "
            "effect.",
        ),
    ] = {}
    cluster_queue: Annotated[
        ObjectName | None,
        Meta(
            description="A ClusterQueue of Kueue, in place of `capacity`: jobs of the pool that it "
            "has admitted give members for Workloads that wait for its quota."
        ),
    ] = None
    policy: Annotated[
        Policy,
        Meta(
            description="Who gets members first, up to the size that was asked for. Priority: jobs "
            "of a higher priority. Fair: all in equal parts, by `weights`. Throughput: more the "
            "sooner a training ends, and each job at least half of an equal part."
        ),
    ] = "Priority"
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0.01, le=100)]],
        Meta(
            description="For Fair, the weight of jobs by the priority class of their pods; unset: "
            "1.",
            max_length=MAX_CLASSES,
        ),
    ] = {}
    reclaim_after_seconds: Annotated[
        Seconds, Meta(description="Seconds that a job waits before others give members for it.")
    ] = 0
    cooldown_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=86_400)],
        Meta(description="The least seconds from one change of a job's size to the next one."),
    ] = 60

    suspend_lower_priority: Annotated[
        bool,
        Meta(
            description="For Priority: whether jobs are suspended for one of a higher priority "
            "that cannot start although all have shrunk to `minReplicas`."
        ),
    ] = False

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.suspendLowerPriority) || !self.suspendLowerPriority || "
            "(!has(self.policy) || self.policy == 'Priority') && !has(self.clusterQueue)",
            "suspendLowerPriority is for policy Priority without clusterQueue: Fair and "
            "Throughput suspend nobody, and Kueue preempts by itself",
            field=".suspendLowerPriority",
        ),
        Rule(
            "!has(self.clusterQueue) || !has(self.capacity)",
            "give capacity or clusterQueue, not both: a ClusterQueue has its own quota",
            field=".clusterQueue",
        ),
    )

    @property
    def counts_nodes(self) -> bool:
        """Whether the pool has what the nodes have."""
        return not self.capacity and not self.cluster_queue


class ElasticPoolStatus(Object, frozen=True):
    """The state of the pool."""

    jobs: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNTER)], Meta(description="Jobs that have not ended.")
    ] = 0
    waiting: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNTER)],
        Meta(description="Jobs that have fewer members than they should get."),
    ] = 0
    used: Annotated[
        str, Meta(description="What is held of the capacity, in readable form.", max_length=512)
    ] = ""
    longest_waiting: Annotated[
        str, Meta(description="The job that has waited longest, and why.", max_length=512)
    ] = ""
    last_act: Annotated[str, Meta(description="The last plan of the pool.", max_length=1024)] = ""
    last_act_time: Annotated[Time | None, Meta(description="When it was made.")] = None
    message: Annotated[Message, Meta(description="Why the pool does not act.")] = ""


class ElasticPool(Object, frozen=True):
    """Jobs of a namespace that share a full cluster."""

    metadata: ObjectMeta
    spec: Annotated[ElasticPoolSpec, Meta(description="The rules.")] = ElasticPoolSpec()
    status: Annotated[ElasticPoolStatus, Meta(description="The state.")] = ElasticPoolStatus()

    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Policy", ".spec.policy"),
        Column("Jobs", ".status.jobs", "integer"),
        Column("Waiting", ".status.waiting", "integer"),
        Column("Used", ".status.used"),
        Column("Last Act", ".status.lastAct"),
        Column("Message", ".status.message", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )
