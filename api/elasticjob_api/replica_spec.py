"""`spec.replicaSpecs` of an ElasticJob: the roles, their volume claims and their restart rules."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from elasticjob_api.drain_times import DEFAULT_DRAIN_SECONDS
from elasticjob_api.limits import MAX_RESTARTS, MAX_ROLES, MAX_SLOTS
from elasticjob_api.meta import Object, Quantity, Rule

PodTemplate = Annotated[
    dict[str, Any],
    Meta(
        description="A pod template, which is kept as written; each role has one. Only names that "
        "start with elasticjob are reserved.",
        extra_json_schema={"$ref": "PodTemplateSpec"},
    ),
]
RoleName = Annotated[str, Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=20)]
MAX_REPLICAS = 10_000
"""The greatest number of members of a role."""
Count = Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
DEFAULT_MAX_MEMORY_FACTOR = 4
"""The default of `maxMemory`, as a multiple of the template's memory."""
MAX_RESTART_DELAY_SECONDS = 3600
"""The longest delay of a member's restart that a rule may set."""
DELAYS_IN_ORDER = Rule(
    "!has(self.maxDelaySeconds) || self.minDelaySeconds <= self.maxDelaySeconds",
    "maxDelaySeconds is %d, below minDelaySeconds, which is %d",
    field=".maxDelaySeconds",
    values=("self.maxDelaySeconds", "self.minDelaySeconds"),
)
"""The rule of objects with a shortest and a longest delay."""
OnWorldChange = Literal["Restart", "Keep", "Notify"]
FailureAction = Literal["Ignore", "Restart", "RestartWithMoreMemory", "FailJob"]


class RestartRule(Object, frozen=True):
    """The action after a failure of a member's pod. All of its conditions must hold."""

    action: Annotated[
        FailureAction,
        Meta(
            description="Ignore: the member restarts, and no limit counts it. Restart: it "
            "restarts, and the limits count it. RestartWithMoreMemory: the same, with twice the "
            "memory, up to maxMemory. FailJob: the job fails."
        ),
    ]
    exit_codes: Annotated[
        list[Annotated[int, Meta(ge=0, le=255)]],
        Meta(description="Exit codes of the training container.", max_length=64),
    ] = []
    signals: Annotated[
        list[Annotated[int, Meta(ge=1, le=64)]],
        Meta(description="Signals that ended the training container.", max_length=64),
    ] = []
    reasons: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="Reasons of the container or the pod, such as OOMKilled or Evicted. An "
            "asterisk at the end matches any ending.",
            max_length=32,
        ),
    ] = []
    message_pattern: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(
            description="A regular expression (RE2) that the message of the container or the pod "
            "must contain."
        ),
    ] = None
    pod_conditions: Annotated[
        list[Annotated[str, Meta(max_length=316)]],
        Meta(
            description="Types of pod conditions that are True, such as DisruptionTarget.",
            max_length=16,
        ),
    ] = []
    containers: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(
            description="Names of the container that has failed: the training container, or one "
            "that prevented its start.",
            max_length=16,
        ),
    ] = []
    min_delay_seconds: Annotated[
        int,
        Meta(
            description="The least number of seconds from the end of the pod to the restart of "
            "the member. The back-off may be longer.",
            ge=0,
            le=MAX_RESTART_DELAY_SECONDS,
        ),
    ] = 0
    max_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_RESTART_DELAY_SECONDS)] | None,
        Meta(
            description="If set, each delay is random, from minDelaySeconds to this number, so "
            "that members that failed for one reason do not all restart at once."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        DELAYS_IN_ORDER,
        # If the pattern is a regular expression, this is true; otherwise the evaluation fails.
        Rule(
            "!has(self.messagePattern) || ''.matches(self.messagePattern) || "
            "!''.matches(self.messagePattern)",
            "messagePattern is not a regular expression",
            field=".messagePattern",
        ),
    )


class Completion(Object, frozen=True):
    """When the members of a role end the job. Unset: every member must succeed."""

    min_succeeded: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None,
        Meta(description="The job succeeds when this many members have succeeded."),
    ] = None
    min_failed: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None,
        Meta(description="The job fails when this many members have failed permanently."),
    ] = None


class ClaimMetadata(Object, frozen=True):
    """The metadata of a volume claim."""

    name: Annotated[
        str,
        Meta(
            description="Name of the template, and of the volume that containers mount.",
            pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            max_length=63,
        ),
    ]
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(description="Labels of the claims.", max_length=64),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, Meta(max_length=4096)]],
        Meta(description="Annotations of the claims.", max_length=64),
    ] = {}

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.name.startsWith('elasticjob')",
            "names that start with elasticjob are reserved",
            field=".name",
        ),
    )


class VolumeClaimTemplate(Object, frozen=True):
    """A volume claim of each member of a role, as in a StatefulSet."""

    metadata: Annotated[
        ClaimMetadata,
        Meta(description="Name of the template, and labels and annotations of its claims."),
    ]
    spec: Annotated[
        dict[str, Any],
        Meta(
            description="The spec of the PersistentVolumeClaims.",
            extra_json_schema={"$ref": "PersistentVolumeClaimSpec"},
        ),
    ]


class ClaimRetention(Object, frozen=True):
    """Whether volume claims are deleted with the job. They remain when the role shrinks."""

    when_deleted: Annotated[
        Literal["Delete", "Retain"],
        Meta(
            description="Delete: the claims are deleted with the job. Retain: they remain, and a "
            "later job of the same name uses them."
        ),
    ] = "Delete"


def immutable_if_set(field: str, remedy: str = "") -> Rule:
    """Return the rule that a field without a default keeps its value or remains unset."""
    return Rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == "
        f"oldSelf.{field})",
        f"{field} is immutable{remedy}",
        field=f".{field}",
    )


def size_expression(role: str) -> str:
    """Return the CEL expression of a role's `size`."""
    at_least = f"({role}.minReplicas > 1 ? {role}.minReplicas : 1)"
    return f"(has({role}.replicas) ? {role}.replicas : {at_least})"


_WHOLE = "!has(self.template) || "
"""Leaves out a role that a scale has made, which has no defaults; a rule below refuses it."""


class ReplicaSpec(Object, frozen=True):
    """One role of the job."""

    template: PodTemplate
    # A scale of a job without the scaled role makes one of a size alone. If the schema required a
    # template, no rule could explain that.
    REQUIRED_BY_RULE: ClassVar[str] = "template"
    depends_on: Annotated[
        list[RoleName],
        Meta(
            description="Roles that must be ready before this role gets its first pods, also "
            "after a suspension: each must have as many ready members as the job needs to start. "
            "A running job does not wait for them.",
            max_length=MAX_ROLES,
        ),
    ] = []
    volume_claim_templates: Annotated[
        list[VolumeClaimTemplate],
        Meta(
            description="Volume claims of each member, named `<name>-<job>-<role>-<index>`. They "
            "are created before the member's pod, remain when the pod is replaced or the role "
            "shrinks, and are deleted with the job. Containers mount them by name.",
            max_length=8,
        ),
    ] = []
    persistent_volume_claim_retention_policy: Annotated[
        ClaimRetention, Meta(description="Whether these claims are deleted with the job.")
    ] = ClaimRetention()
    replicas: Annotated[
        Count | None,
        Meta(
            description="Number of members. A change becomes a ScalePlan, as does `kubectl "
            "scale`. If unset, the job begins with minReplicas, at least 1, and the operator "
            "writes the present number here."
        ),
    ] = None
    min_replicas: Annotated[
        Count, Meta(description="Least number of members. The job can start with them.")
    ] = 1
    max_replicas: Annotated[
        Count | None,
        Meta(
            description="Greatest number of members; unset: no limit. Automatic growth needs this "
            "field or autoscaling.resourceLimits."
        ),
    ] = None
    agent: Annotated[
        Literal["Managed", "None"],
        Meta(
            description="Managed: the agent starts the command, and the members train together. "
            "None: the container runs as written, such as a store or a dashboard, also without a "
            "command. Its end does not end the job unless `completion` is set, and SIGTERM asks "
            "it to stop."
        ),
    ] = "Managed"
    on_world_change: Annotated[
        OnWorldChange | None,
        Meta(
            description="What happens to the role's processes when other members join or leave. "
            "Restart: they restart in the new world. Keep: they continue. Notify: they continue "
            "and get the new world (frameworks custom, jax and pytorch). Unset: Keep for "
            "TensorFlow's evaluator, and for its ps if the job has a chief; otherwise Restart."
        ),
    ] = None
    slots_per_replica: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SLOTS)] | None,
        Meta(
            description="Number of training processes in one member. Unset: with pytorch and "
            "horovod, one for each GPU in the limits of the first container; otherwise 1."
        ),
    ] = None
    restart_limit: Annotated[
        int,
        Meta(
            description="Number of counted restarts of one member before the job fails.",
            ge=0,
            le=MAX_RESTARTS,
        ),
    ] = 3
    restart_rules: Annotated[
        list[RestartRule],
        Meta(description="The first rule that matches a failure decides.", max_length=32),
    ] = []
    restart_on_success: Annotated[
        bool,
        Meta(
            description="For agent None: a member that exits with 0 restarts as well, until the "
            "job ends. No limit counts these restarts."
        ),
    ] = False
    auto_scale: Annotated[
        bool, Meta(description="Whether the auto-scaler may change this role.")
    ] = True
    drain_seconds: Annotated[
        Seconds,
        Meta(
            description="Seconds in which a leaving member must finish its step and save its state."
        ),
    ] = DEFAULT_DRAIN_SECONDS
    sigterm_delay_seconds: Annotated[
        int,
        Meta(
            description="Seconds between the request to stop and SIGTERM, for a program that does "
            "not read such requests. It continues to train in this time, and may write its next "
            "snapshot. The time is limited by `drainSeconds`.",
            ge=0,
            le=86_400,
        ),
    ] = 0
    process_restart_limit: Annotated[
        int,
        Meta(
            description="How often a crashed training process is restarted inside its pod. The "
            "next crash ends the pod.",
            ge=0,
            le=MAX_RESTARTS,
        ),
    ] = 0
    pod_force_delete_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Seconds after which a pod on a lost node that does not end is deleted by "
            "force. Unset: never, so that two pods never have the same rank."
        ),
    ] = None
    max_memory: Annotated[
        Quantity | None,
        Meta(
            description="Upper limit of a member's memory for RestartWithMoreMemory; "
            f"unset: {DEFAULT_MAX_MEMORY_FACTOR} times the template's memory."
        ),
    ] = None
    completion: Annotated[
        Completion, Meta(description="When the members of this role end the job.")
    ] = Completion()

    @property
    def size(self) -> int:
        """The requested number of members, or the number the job begins with if it is unset."""
        if self.replicas is None:
            return max(self.min_replicas, 1)
        return self.replicas

    @property
    def managed(self) -> bool:
        """Whether an agent starts the training processes of its members."""
        return self.agent == "Managed"

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"{_WHOLE}!has(self.replicas) || self.minReplicas <= self.replicas",
            "replicas is %d, below minReplicas, which is %d",
            field=".replicas",
            values=("self.replicas", "self.minReplicas"),
        ),
        Rule(
            "!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",
            "replicas is %d, above maxReplicas, which is %d",
            field=".replicas",
            values=("self.replicas", "self.maxReplicas"),
        ),
        Rule(
            "!has(self.maxReplicas) || has(self.replicas) || "
            f"{size_expression('self')} <= self.maxReplicas",
            "the job begins with %d members, as replicas is unset; maxReplicas is %d",
            field=".maxReplicas",
            values=(size_expression("self"), "self.maxReplicas"),
        ),
        Rule(
            "self.agent != 'None' || !has(self.onWorldChange) || self.onWorldChange != 'Notify'",
            "onWorldChange is Notify, but without an agent (agent: None) processes cannot get a "
            "new world",
            field=".onWorldChange",
        ),
        Rule(
            f"{_WHOLE}!self.restartOnSuccess || self.agent == 'None'",
            "restartOnSuccess is true, which needs agent: None; members with an agent never "
            "restart after success",
            field=".restartOnSuccess",
        ),
        Rule(
            f"{_WHOLE}!self.restartOnSuccess || !has(self.completion.minSucceeded)",
            "restartOnSuccess is true, so no member ever counts as succeeded; leave out "
            "completion.minSucceeded",
            field=".completion",
        ),
        Rule(
            "!has(self.volumeClaimTemplates) || self.volumeClaimTemplates.all(one, "
            "self.volumeClaimTemplates.exists_one(each, each.metadata.name == one.metadata.name))",
            "volumeClaimTemplates has two entries with one name",
            field=".volumeClaimTemplates",
        ),
        immutable_if_set("volumeClaimTemplates", "; create a new job to change it"),
        Rule(
            "self.persistentVolumeClaimRetentionPolicy == "
            "oldSelf.persistentVolumeClaimRetentionPolicy",
            "persistentVolumeClaimRetentionPolicy is immutable; create a new job to change it",
            field=".persistentVolumeClaimRetentionPolicy",
        ),
        immutable_if_set("dependsOn", "; create a new job to change it"),
        Rule(
            "self.agent == oldSelf.agent",
            "agent is immutable; create a new job to change it",
            field=".agent",
        ),
        Rule(
            "self.template == oldSelf.template",
            "template is immutable; create a new job to change it",
            field=".template",
        ),
        Rule(
            "has(self.template) && has(self.template.spec) && has(self.template.spec.containers) "
            "&& self.template.spec.containers.size() > 0",
            "template.spec.containers must have at least one container",
            field=".template.spec.containers",
        ),
    )
