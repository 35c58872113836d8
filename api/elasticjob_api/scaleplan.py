"""The ScalePlan resource: one change of a job's size or resources, executed exactly once."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from elasticjob_api.elasticjob import Count, Indices, QuantitiesByIndex, Seconds
from elasticjob_api.limits import MAX_INDEX, MAX_INDICES, MAX_ROLE_STATUSES, MAX_ROLES
from elasticjob_api.meta import (
    Column,
    Condition,
    Message,
    Object,
    ObjectMeta,
    ObjectName,
    Rule,
    Time,
)
from elasticjob_api.resources import Resources
from elasticjob_api.scripts import NEEDS_SCRIPT, Script, ScriptRun, Variables

Source = Literal["Manual", "Auto", "ScaleIn", "ScaleOut", "Spec", "Disruption", "Pool"]
PlanPhase = Literal[
    "Pending",
    "Draining",
    "Executing",
    "Succeeded",
    "PartiallySucceeded",
    "Failed",
    "Superseded",
    "Cancelled",
]
MigrationPhase = Literal["Pending", "Starting", "Draining", "Done", "Undone"]
FINISHED: frozenset[PlanPhase] = frozenset(
    {"Succeeded", "PartiallySucceeded", "Failed", "Superseded", "Cancelled"}
)
MAX_REASON_CHARACTERS = 1024
MAX_PODS_PER_PLAN = 1000
"""The greatest number of members in each of createPods, removePods and migratePods."""
JobName = Annotated[
    str, Meta(description="The ElasticJob, in the same namespace.", min_length=1, max_length=40)
]
RoleName = Annotated[str, Meta(min_length=1, max_length=20)]
Index = Annotated[int, Meta(ge=0, le=MAX_INDEX)]


class RolePlan(Object, frozen=True):
    """The requested state of a role."""

    replicas: Annotated[
        Count | None, Meta(description="Number of members; unset: the present number.")
    ] = None
    resource: Annotated[
        Resources,
        Meta(
            description="Resources of every member; unset: the present ones. `cpu` in cores, "
            "`memory` in bytes, and extended resources such as `nvidia.com/gpu` or `rdma/hca` in "
            "whole numbers."
        ),
    ] = {}

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.replicas) || (has(self.resource) && self.resource.size() > 0)",
            "nothing to do: give replicas or resource",
        ),
    )


class PodToCreate(Object, frozen=True):
    """A member to add."""

    role: Annotated[RoleName, Meta(description="Role of the member.")] = "worker"
    index: Annotated[
        Index | None, Meta(description="Index of the member; unset: the lowest free one.")
    ] = None
    resource: Annotated[
        Resources, Meta(description="Resources of the member; unset: the role's.")
    ] = {}


class PodToRemove(Object, frozen=True):
    """A member to remove: by pod name, or by role and index."""

    name: Annotated[
        Annotated[str, Meta(max_length=253)] | None, Meta(description="Name of the member's pod.")
    ] = None
    role: Annotated[RoleName | None, Meta(description="Role of the member.")] = None
    index: Annotated[Index | None, Meta(description="Index of the member.")] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.role) == has(self.index) && has(self.name) != has(self.role)",
            "give either name, or role and index",
        ),
    )


class PodToMigrate(PodToRemove, frozen=True):
    """A member to replace by a new one with another index and possibly other resources."""

    resource: Annotated[
        Resources, Meta(description="Resources of the new pod; unset: the present ones.")
    ] = {}
    avoid_node: Annotated[
        bool,
        Meta(
            description="Whether the new pod prefers other nodes than that of the member it "
            "replaces."
        ),
    ] = False


class ScalePlanSpec(Object, frozen=True):
    """The requested change, which is one step in the job's history."""

    job_name: JobName
    source: Annotated[Source, Meta(description="Who requests the change.")] = "Manual"
    reason: Annotated[
        str,
        Meta(
            description="Reason for the change, for readers, with numbers.",
            max_length=MAX_REASON_CHARACTERS,
        ),
    ] = ""
    replica_resource_specs: Annotated[
        dict[str, RolePlan],
        Meta(description="Number and resources of members by role.", max_length=MAX_ROLES),
    ] = {}
    create_pods: Annotated[
        list[PodToCreate], Meta(description="Members to add.", max_length=MAX_PODS_PER_PLAN)
    ] = []
    remove_pods: Annotated[
        list[PodToRemove], Meta(description="Members to remove.", max_length=MAX_PODS_PER_PLAN)
    ] = []
    migrate_pods: Annotated[
        list[PodToMigrate],
        Meta(
            description="Members to replace at the same time. Each leaves when its replacement is "
            "ready. Until then each has one additional pod.",
            max_length=MAX_PODS_PER_PLAN,
        ),
    ] = []
    drain_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Seconds in which a leaving member must save its state; unset: its role's "
            "drainSeconds."
        ),
    ] = None
    timeout_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=31_536_000)],
        Meta(
            description="Seconds in which the new pods must become ready. Each replacement has "
            "this time."
        ),
    ] = 600
    on_timeout: Annotated[
        Literal["Keep", "Rollback"],
        Meta(
            description="What happens to new members that are not ready in time. Keep: they "
            "remain. Rollback: they are removed. Replacements are always removed."
        ),
    ] = "Keep"
    script: Script = ""
    env: Variables = []

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self == oldSelf", "spec is immutable; create another ScalePlan"),
        Rule(
            " || ".join(
                f"(has(self.{field}) && size(self.{field}) > 0)"
                for field in ("replicaResourceSpecs", "createPods", "removePods", "migratePods")
            ),
            "nothing to do: give replicaResourceSpecs, createPods, removePods or migratePods",
        ),
        Rule(
            "!has(self.replicaResourceSpecs) || self.replicaResourceSpecs.all(role, role.size() <= "
            "20)",
            "a role's name has at most 20 characters",
            field=".replicaResourceSpecs",
        ),
        NEEDS_SCRIPT,
        Rule(
            "!has(self.script) || size(self.script) == 0 || ("
            "(!has(self.replicaResourceSpecs) || size(self.replicaResourceSpecs) == 0)"
            " && (!has(self.migratePods) || size(self.migratePods) == 0)"
            " && (has(self.createPods) && size(self.createPods) > 0)"
            " != (has(self.removePods) && size(self.removePods) > 0))",
            "a plan with a script has either createPods or removePods, and nothing else",
            field=".script",
        ),
    )


class Migration(Object, frozen=True):
    """The replacement of one member: when the new pod is ready, the old one is drained."""

    role: Annotated[RoleName, Meta(description="Role of the member.")]
    index: Annotated[Index, Meta(description="Index of the member that leaves.")]
    replacement: Annotated[Index, Meta(description="Index of the member that replaces it.")]
    phase: Annotated[
        MigrationPhase,
        Meta(description="State of the replacement. Undone: the old member remains."),
    ]
    since: Annotated[Time | None, Meta(description="When this phase began.")] = None
    message: Annotated[
        str, Meta(description="Why the replacement was done or undone.", max_length=2048)
    ] = ""


Pods = Annotated[list[ObjectName], Meta(max_length=MAX_INDICES)]
MAX_WAITING_FOR_CHARACTERS = 2048
MAX_CHANGE = 512
"""Characters of the summary of a plan's change."""


class ScalePlanStatus(Object, frozen=True):
    """The state of the plan's execution.

    Its decisions are stored here before they are executed, so that another operator can continue.
    """

    phase: Annotated[PlanPhase | None, Meta(description="State of the execution.")] = None
    message: Annotated[
        Message, Meta(description="What was changed, or why not, with field, value and bound.")
    ] = ""
    waiting_for: Annotated[
        str,
        Meta(
            description="What a plan with the phase Draining or Executing waits for.",
            max_length=MAX_WAITING_FOR_CHARACTERS,
        ),
    ] = ""
    conditions: Annotated[
        list[Condition], Meta(description="Standard conditions.", max_length=16)
    ] = []
    targets: Annotated[
        dict[RoleName, Indices],
        Meta(
            description="Indices by role after the plan, such as 0,2-4.",
            max_length=MAX_ROLE_STATUSES,
        ),
    ] = {}
    before: Annotated[
        dict[RoleName, Indices],
        Meta(description="Indices by role before the plan.", max_length=MAX_ROLE_STATUSES),
    ] = {}
    change: Annotated[
        str,
        Meta(description="Summary of the change, such as worker 2 to 4.", max_length=MAX_CHANGE),
    ] = ""
    spec_replicas: Annotated[
        dict[RoleName, Count],
        Meta(
            description="replicas in the job's spec before the plan.",
            max_length=MAX_ROLE_STATUSES,
        ),
    ] = {}
    resources_by_index: Annotated[
        dict[RoleName, QuantitiesByIndex],
        Meta(
            description="Resources of single new members, by role and index.",
            max_length=MAX_ROLE_STATUSES,
        ),
    ] = {}
    migrations: Annotated[
        list[Migration],
        Meta(description="Members that are replaced, in order.", max_length=MAX_INDICES),
    ] = []
    draining_pods: Annotated[Pods, Meta(description="Pods that the master is draining.")] = []
    created_pods: Annotated[Pods, Meta(description="Pods created.")] = []
    removed_pods: Annotated[Pods, Meta(description="Pods removed.")] = []
    forced_pods: Annotated[Pods, Meta(description="Removed pods that had not ended in time.")] = []
    resized_pods: Annotated[Pods, Meta(description="Pods whose resources change in place.")] = []
    start_time: Annotated[Time | None, Meta(description="When the plan began.")] = None
    execution_time: Annotated[
        Time | None,
        Meta(description="When the pods to remove were drained. timeoutSeconds starts here."),
    ] = None
    script: Annotated[ScriptRun | None, Meta(description="The run of the plan's script.")] = None
    resize_time: Annotated[
        Time | None, Meta(description="When a resize in place was last requested.")
    ] = None
    completion_time: Annotated[Time | None, Meta(description="When the plan ended.")] = None


class ScalePlan(Object, frozen=True):
    """One change of a job's size or resources."""

    metadata: ObjectMeta
    spec: Annotated[ScalePlanSpec, Meta(description="The requested change.")]
    status: Annotated[ScalePlanStatus, Meta(description="State of the execution.")] = (
        ScalePlanStatus()
    )

    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Job", ".spec.jobName"),
        Column("Source", ".spec.source"),
        Column("Change", ".status.change"),
        Column("Phase", ".status.phase"),
        Column("Message", ".status.message", priority=1),
        Column("Waiting", ".status.waitingFor", priority=1),
        Column("Reason", ".spec.reason", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )
