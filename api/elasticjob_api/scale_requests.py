"""The ScaleIn and ScaleOut resources, which are short forms of the two most common ScalePlans."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

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
from elasticjob_api.scaleplan import MAX_PODS_PER_PLAN, JobName, Pods, RoleName
from elasticjob_api.scripts import NEEDS_SCRIPT, Script, ScriptRun, Variables

RequestPhase = Literal["Pending", "Scaling", "ScaleSucceeded", "ScaleFailed"]
ScaleCount = Annotated[int, Meta(ge=1, le=10_000)]
TimeoutSeconds = Annotated[int, Meta(ge=1, le=31_536_000)]
TtlSeconds = Annotated[
    int,
    Meta(description="Seconds after its end until this request is deleted.", ge=0, le=31_536_000),
]


class ScaleOutSpec(Object, frozen=True):
    """Add members."""

    job_name: JobName
    count: Annotated[ScaleCount, Meta(description="Members to add.")]
    role: Annotated[RoleName, Meta(description="Role of the members.")] = "worker"
    timeout_seconds: Annotated[
        TimeoutSeconds, Meta(description="Seconds in which the members must become ready.")
    ] = 600
    ttl_seconds_after_finished: TtlSeconds = 86_400
    script: Script = ""
    env: Variables = []

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self == oldSelf", "spec is immutable; create another ScaleOut"),
        NEEDS_SCRIPT,
    )


class ScaleInSpec(Object, frozen=True):
    """Remove members: a number of them, or the named ones."""

    job_name: JobName
    role: Annotated[RoleName, Meta(description="Role of the members.")] = "worker"
    count: Annotated[
        ScaleCount | None,
        Meta(
            description="Number of members to remove: first those that have succeeded, then those "
            "that are not ready, then those with the highest indices."
        ),
    ] = None
    pod_names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=253)]],
        Meta(
            description="Pods to remove.",
            max_length=MAX_PODS_PER_PLAN,
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = []
    timeout_seconds: Annotated[
        TimeoutSeconds, Meta(description="Seconds the removal may take.")
    ] = 600
    ttl_seconds_after_finished: TtlSeconds = 86_400
    script: Script = ""
    env: Variables = []

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self == oldSelf", "spec is immutable; create another ScaleIn"),
        NEEDS_SCRIPT,
        Rule(
            "has(self.count) != (has(self.podNames) && size(self.podNames) > 0)",
            "give either count or podNames",
        ),
    )


class ScaleRequestStatus(Object, frozen=True):
    """The state of the request, which follows the plan's."""

    phase: Annotated[RequestPhase | None, Meta(description="State of the execution.")] = None
    message: Annotated[
        Message, Meta(description="What was changed, or why not, with field, value and bound.")
    ] = ""
    conditions: Annotated[
        list[Condition], Meta(description="Standard conditions.", max_length=16)
    ] = []
    plan: Annotated[ObjectName | None, Meta(description="ScalePlan that executes the request.")] = (
        None
    )
    pods: Annotated[Pods, Meta(description="Pods added or removed.")] = []
    script: Annotated[ScriptRun | None, Meta(description="The run of the request's script.")] = None
    completion_time: Annotated[Time | None, Meta(description="When the request ended.")] = None


_COLUMNS = (
    Column("Job", ".spec.jobName"),
    Column("Phase", ".status.phase"),
    Column("Message", ".status.message", priority=1),
    Column("Age", ".metadata.creationTimestamp", "date"),
)


class ScaleOut(Object, frozen=True):
    """Adds members to a job."""

    metadata: ObjectMeta
    spec: Annotated[ScaleOutSpec, Meta(description="The members to add.")]
    status: Annotated[ScaleRequestStatus, Meta(description="State of the execution.")] = (
        ScaleRequestStatus()
    )

    COLUMNS: ClassVar[tuple[Column, ...]] = _COLUMNS


class ScaleIn(Object, frozen=True):
    """Removes members from a job."""

    metadata: ObjectMeta
    spec: Annotated[ScaleInSpec, Meta(description="The members to remove.")]
    status: Annotated[ScaleRequestStatus, Meta(description="State of the execution.")] = (
        ScaleRequestStatus()
    )

    COLUMNS: ClassVar[tuple[Column, ...]] = _COLUMNS
