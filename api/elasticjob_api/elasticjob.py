"""The ElasticJob resource, field by field. `crds/elasticjobs.yaml` is generated from here."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.health import Health
from elasticjob_api.indices import MAX_TEXT
from elasticjob_api.limits import (
    DEFAULT_DRAIN_SECONDS,
    MAX_COUNTER,
    MAX_INDEX,
    MAX_INDICES,
    MAX_METRIC_NAME_CHARACTERS,
    MAX_METRICS,
    MAX_ROLE_STATUSES,
    MAX_ROLES,
    MAX_SLOTS,
    MAX_STEP,
)
from elasticjob_api.meta import (
    Column,
    Condition,
    Generation,
    Message,
    Object,
    ObjectMeta,
    ObjectName,
    Quantity,
    Rule,
    Time,
)
from elasticjob_api.resources import Quantities, ResourceLimits
from elasticjob_api.scripts import ScriptEnd

Framework = Literal["horovod", "pytorch", "tensorflow", "mxnet", "jax", "custom"]
Phase = Literal[
    "Pending", "Starting", "Running", "Scaling", "Suspended", "Retrying", "Succeeded", "Failed"
]
PodTemplate = Annotated[
    dict[str, Any],
    Meta(
        description="A pod template, kept as written; reserved are only names that start with elasticjob.",
        extra_json_schema={"$ref": "PodTemplateSpec"},
    ),
]
RoleName = Annotated[str, Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=20)]
LabelKey = Annotated[
    str,
    Meta(
        max_length=317,
        pattern="^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    ),
]
"""The key of a label: a name of at most 63 characters, with a DNS domain and a slash before it or
not.
"""
MAX_REPLICAS = 10_000
"""Members that a role may have."""
Count = Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
MAX_INT32 = 2_147_483_647
"""The highest number that Kubernetes takes for what has no natural bound; as seconds, 68 years."""
Image = Annotated[str, Meta(max_length=1024)]
DEFAULT_MAX_MEMORY_FACTOR = 4
"""How many times the template's memory a member may get when `maxMemory` is not set."""
DEFAULT_EFFICIENCY = 0.5
MIN_PRICE = 1e-6
MAX_PRICE = 1e6
"""Of a member of the scaled role at least, and of a member of any role at most, an hour."""
_BY_INDEX = {"x-kubernetes-map-type": "atomic"}
"""Of a map with an entry for each member: `managedFields` names no single one, or 10,000 would
double the object.
"""


MAX_RESTART_DELAY_SECONDS = 3600
"""The longest delay of a member's restart that a rule may ask for."""
FailureAction = Literal["Ignore", "Restart", "RestartWithMoreMemory", "FailJob"]


class RestartRule(Object, frozen=True):
    """What to do when a member's pod fails in this way. Every condition that is given must hold."""

    action: Annotated[
        FailureAction,
        Meta(
            description="Ignore: restart, uncounted. Restart: restart, counted. FailJob: end the job."
        ),
    ]
    exit_codes: Annotated[
        list[Annotated[int, Meta(ge=0, le=255)]],
        Meta(description="Exit codes of the training container.", max_length=64),
    ] = []
    signals: Annotated[
        list[Annotated[int, Meta(ge=1, le=64)]],
        Meta(description="Signals that ended it.", max_length=64),
    ] = []
    reasons: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="Reasons of the container or the pod, such as OOMKilled or Evicted; "
            "an asterisk at the end stands for any ending.",
            max_length=32,
        ),
    ] = []
    message_pattern: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(
            description="A regular expression (RE2) found in the message of the container or the pod."
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
            description="Names of the container that has failed: the training's, or one that kept it from starting.",
            max_length=16,
        ),
    ] = []
    min_delay_seconds: Annotated[
        int,
        Meta(
            description="Seconds from the end of the pod to the restart of the member, at least; the back-off may be "
            "longer.",
            ge=0,
            le=MAX_RESTART_DELAY_SECONDS,
        ),
    ] = 0
    max_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_RESTART_DELAY_SECONDS)] | None,
        Meta(
            description="If set, each such delay is a random one from minDelaySeconds to so many, for members that "
            "have failed over the same thing."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.maxDelaySeconds) || self.minDelaySeconds <= self.maxDelaySeconds",
            "maxDelaySeconds is %d, below minDelaySeconds, which is %d",
            field=".maxDelaySeconds",
            values=("self.maxDelaySeconds", "self.minDelaySeconds"),
        ),
        # True whenever it can be evaluated; a pattern that is no regular expression is an error.
        Rule(
            "!has(self.messagePattern) || ''.matches(self.messagePattern) || !''.matches(self.messagePattern)",
            "messagePattern is not a regular expression",
            field=".messagePattern",
        ),
    )


class Completion(Object, frozen=True):
    """When a role decides the end of the job. Unset: every member must succeed."""

    min_succeeded: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None,
        Meta(description="The job succeeds when this many members have succeeded."),
    ] = None
    min_failed: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None,
        Meta(description="The job fails when this many members have failed for good."),
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
    """A volume claim that each member of a role gets, as those of a StatefulSet."""

    metadata: Annotated[
        ClaimMetadata, Meta(description="Its name, and what the claims are marked with.")
    ]
    spec: Annotated[
        dict[str, Any],
        Meta(
            description="What is claimed, as in a PersistentVolumeClaim.",
            extra_json_schema={"$ref": "PersistentVolumeClaimSpec"},
        ),
    ]


class ClaimRetention(Object, frozen=True):
    """What becomes of the volume claims of a role; when it is made smaller they stay."""

    when_deleted: Annotated[
        Literal["Delete", "Retain"],
        Meta(
            description="Delete: they go with the job. Retain: they stay when it is deleted, and a later job of its "
            "name uses them."
        ),
    ] = "Delete"


def _immutable_if_set(field: str, remedy: str = "") -> Rule:
    """Return the rule that a field without a default keeps its value, or stays unset."""
    return Rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} is immutable{remedy}",
        field=f".{field}",
    )


def _size(role: str) -> str:
    """Return the expression of a role's `size`."""
    at_least = f"({role}.minReplicas > 1 ? {role}.minReplicas : 1)"
    return f"(has({role}.replicas) ? {role}.replicas : {at_least})"


class ReplicaSpec(Object, frozen=True):
    """One role of the job."""

    template: PodTemplate
    depends_on: Annotated[
        list[RoleName],
        Meta(
            description="Roles that must be ready, each with as many members as the job needs to start, before this "
            "role gets its first pods; also after a suspension. Nothing waits once the job runs.",
            max_length=MAX_ROLES,
        ),
    ] = []
    volume_claim_templates: Annotated[
        list[VolumeClaimTemplate],
        Meta(
            description="Volume claims of each member, `<name>-<job>-<role>-<index>`: made before its pod, kept when "
            "the pod is replaced or the role is made smaller, deleted with the job. Containers mount them by name.",
            max_length=8,
        ),
    ] = []
    persistent_volume_claim_retention_policy: Annotated[
        ClaimRetention, Meta(description="What becomes of these claims.")
    ] = ClaimRetention()
    replicas: Annotated[
        Count | None,
        Meta(
            description="Members asked for; a change becomes a ScalePlan, as does `kubectl scale`. Unset: it begins "
            "with minReplicas, at least 1; the operator writes here how many there are."
        ),
    ] = None
    min_replicas: Annotated[
        Count, Meta(description="Fewest members; the job can start with them.")
    ] = 1
    max_replicas: Annotated[
        Count | None,
        Meta(
            description="Most members; unset: no bound. Automatic growth needs it, or autoscaling.resourceLimits."
        ),
    ] = None
    agent: Annotated[
        Literal["Managed", "None"],
        Meta(
            description="Managed: the agent starts the command, and the members train together. None: the container "
            "runs as written, also without a command, such as a store or a dashboard; it does not decide the job's "
            "end unless `completion` says so, and is told to end by SIGTERM."
        ),
    ] = "Managed"
    on_world_change: Annotated[
        Literal["Restart", "Keep", "Notify"] | None,
        Meta(
            description="What becomes of its processes when other members come and go. Restart: they are started again "
            "in the new world. Keep: they go on. Notify: they go on, and are told the new world (framework custom). "
            "Unset: Keep for TensorFlow's evaluator, and its ps where there is a chief, else Restart."
        ),
    ] = None
    slots_per_replica: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SLOTS)] | None,
        Meta(
            description="Training processes in one member. Unset: with pytorch and horovod one for each GPU "
            "in the limits of the first container, else 1."
        ),
    ] = None
    restart_limit: Annotated[
        int,
        Meta(description="Counted restarts of one member before the job fails.", ge=0, le=10_000),
    ] = 3
    restart_rules: Annotated[
        list[RestartRule],
        Meta(description="The first rule that matches a failure decides.", max_length=32),
    ] = []
    restart_on_success: Annotated[
        bool,
        Meta(
            description="Without an agent: a member that ends with 0 is restarted, too, uncounted, until the job ends."
        ),
    ] = False
    auto_scale: Annotated[
        bool, Meta(description="Whether the auto-scaler may change this role.")
    ] = True
    drain_seconds: Annotated[
        Seconds,
        Meta(description="Seconds a leaving member has to finish its step and to save its state."),
    ] = DEFAULT_DRAIN_SECONDS
    sigterm_delay_seconds: Annotated[
        int,
        Meta(
            description="Seconds between the request to stop and SIGTERM for a program that never asks for "
            "one; it trains on meanwhile, and may write its next snapshot. At most what `drainSeconds` leaves.",
            ge=0,
            le=86_400,
        ),
    ] = 0
    process_restart_limit: Annotated[
        int,
        Meta(
            description="Crashes of the training process that are retried inside the pod.",
            ge=0,
            le=10_000,
        ),
    ] = 0
    pod_force_delete_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Seconds after which a pod that does not end, on a lost node, is removed by force. "
            "Unset: never, so that no two pods ever have one rank."
        ),
    ] = None
    max_memory: Annotated[
        Quantity | None,
        Meta(
            description="How far RestartWithMoreMemory may double a member's memory; "
            f"unset: {DEFAULT_MAX_MEMORY_FACTOR} times what the template asks for."
        ),
    ] = None
    completion: Annotated[Completion, Meta(description="When this role ends the job.")] = (
        Completion()
    )

    @property
    def size(self) -> int:
        """Members asked for; while that is unset, as many as the job begins with."""
        return max(self.min_replicas, 1) if self.replicas is None else self.replicas

    @property
    def managed(self) -> bool:
        """Whether an agent starts the training process of its members."""
        return self.agent == "Managed"

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.replicas) || self.minReplicas <= self.replicas",
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
            f"!has(self.maxReplicas) || has(self.replicas) || {_size('self')} <= self.maxReplicas",
            "the job begins with %d members, as replicas is unset; maxReplicas is %d",
            field=".maxReplicas",
            values=(_size("self"), "self.maxReplicas"),
        ),
        Rule(
            "self.agent != 'None' || !has(self.onWorldChange) || self.onWorldChange != 'Notify'",
            "onWorldChange is Notify, but without an agent (agent: None) nobody can tell the processes a world",
            field=".onWorldChange",
        ),
        Rule(
            "!self.restartOnSuccess || self.agent == 'None'",
            "restartOnSuccess is true, which needs agent: None; members with an agent have done their part for good",
            field=".restartOnSuccess",
        ),
        Rule(
            "!self.restartOnSuccess || !has(self.completion.minSucceeded)",
            "restartOnSuccess is true, so no member ever counts as succeeded; leave out completion.minSucceeded",
            field=".completion",
        ),
        Rule(
            "!has(self.volumeClaimTemplates) || self.volumeClaimTemplates.all(one, "
            "self.volumeClaimTemplates.exists_one(each, each.metadata.name == one.metadata.name))",
            "volumeClaimTemplates has two of one name",
            field=".volumeClaimTemplates",
        ),
        _immutable_if_set("volumeClaimTemplates", "; create a new job to change it"),
        Rule(
            "self.persistentVolumeClaimRetentionPolicy == oldSelf.persistentVolumeClaimRetentionPolicy",
            "persistentVolumeClaimRetentionPolicy is immutable; create a new job to change it",
            field=".persistentVolumeClaimRetentionPolicy",
        ),
        _immutable_if_set("dependsOn", "; create a new job to change it"),
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
            "has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0",
            "template.spec.containers must have at least one container",
            field=".template.spec.containers",
        ),
    )


class Agent(Object, frozen=True):
    """Where the agent in the worker pods comes from."""

    source: Annotated[
        Literal["InitContainer", "Image"],
        Meta(
            description="InitContainer: copied into the pod, the image needs no change. "
            "Image: the image has elasticjob-agent on its PATH."
        ),
    ] = "InitContainer"
    image: Annotated[
        Image | None,
        Meta(description="Image of the init container; unset: the operator's --agent-image."),
    ] = None


class MasterSpec(Object, frozen=True):
    """The job's master pod."""

    image: Annotated[
        Image | None, Meta(description="Image; unset: the one the operator was started with.")
    ] = None
    resources: Annotated[
        dict[str, Any],
        Meta(
            description="Resources of the container. A master takes 64Mi, and 128Ki for each member.",
            extra_json_schema={"$ref": "ResourceRequirements"},
        ),
    ] = field(
        default_factory=lambda: {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "2Gi"},
        }
    )
    template: Annotated[
        dict[str, Any],
        Meta(
            description="Overrides of the pod: labels, annotations, nodeSelector, tolerations and the like.",
            extra_json_schema={"$ref": "PodTemplateSpec"},
        ),
    ] = {}
    restart_limit: Annotated[
        int, Meta(description="Counted restarts before the job fails.", ge=0, le=10_000)
    ] = 10
    pod_force_delete_seconds: Annotated[
        Seconds,
        Meta(
            description="Seconds after which a master pod that does not end, on a lost node, is removed by force "
            "and replaced, at least 30; one that still runs there can neither write the job's state nor start a world."
        ),
    ] = 120


class Objective(Object, frozen=True):
    """What the auto-scaler strives for."""

    type: Annotated[
        Literal["Efficiency", "Throughput", "Deadline", "Cost"],
        Meta(
            description="Efficiency: as many members as each adds enough. Throughput: as many as add anything. "
            "Deadline: the fewest that end the training by `finishTime`. Cost: those whose samples cost least by "
            "`prices`."
        ),
    ] = "Efficiency"
    min_marginal_efficiency: Annotated[
        float,
        Meta(
            description="Of Efficiency: a further member must add at least this part of the throughput of an average "
            "member. Another type has no other value than the default.",
            gt=0,
            le=1,
        ),
    ] = DEFAULT_EFFICIENCY
    finish_time: Annotated[
        Time | None,
        Meta(
            description="Of Deadline: when the training shall have ended, in UTC. It must report its total of steps."
        ),
    ] = None
    prices: Annotated[
        dict[RoleName, Annotated[float, Meta(ge=0, le=MAX_PRICE)]],
        Meta(
            description="Of Cost: what one member costs an hour, by role, in any currency. A role that is missing "
            "costs nothing; the scaled one must not be missing.",
            max_length=MAX_ROLES,
        ),
    ] = {}
    # The default of the whole is checked before those of its fields, so `type` may be missing.
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.type) || self.type == 'Efficiency' || "
            f"!has(self.minMarginalEfficiency) || self.minMarginalEfficiency == {DEFAULT_EFFICIENCY}",
            f"minMarginalEfficiency is %s, but type is %s; leave it out ({DEFAULT_EFFICIENCY}), or use type Efficiency",
            field=".minMarginalEfficiency",
            values=("self.minMarginalEfficiency", "self.type"),
        ),
        Rule(
            "!has(self.type) || self.type != 'Deadline' || has(self.finishTime)",
            "finishTime is missing, but type is Deadline; set it, such as 2026-01-31T18:00:00Z, or use another type",
            field=".finishTime",
        ),
        Rule(
            "!has(self.finishTime) || (has(self.type) && self.type == 'Deadline')",
            "finishTime is %s, but type is %s; leave it out, or use type Deadline",
            field=".finishTime",
            values=("self.finishTime", "self.type"),
        ),
        Rule(
            "!has(self.prices) || self.prices.size() == 0 || (has(self.type) && self.type == 'Cost')",
            "prices has %d roles, but type is %s; leave it out, or use type Cost",
            field=".prices",
            values=("self.prices.size()", "self.type"),
        ),
    )


class Autoscaling(Object, frozen=True):
    """The master's own scaling."""

    enabled: Annotated[bool, Meta(description="Whether the master may emit ScalePlans.")] = False
    role: Annotated[str, Meta(description="The role that is scaled.", max_length=20)] = "worker"
    objective: Annotated[Objective, Meta(description="What it strives for.")] = Objective()
    cooldown_seconds: Annotated[
        int,
        Meta(
            description="Seconds of one measurement of a size; growth that clearly pays comes earlier.",
            ge=1,
            le=86_400,
        ),
    ] = 300
    multiple_of: Annotated[
        int,
        Meta(
            description="Only sizes that are multiples of it are requested, such as the hosts of a node group. "
            "Sizes that others request need not be.",
            ge=1,
            le=1000,
        ),
    ] = 1
    resource_limits: ResourceLimits = {}
    profile: Annotated[
        Annotated[str, Meta(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None,
        Meta(
            description="What earlier jobs needed is kept under this name, in ConfigMap elasticjob-profile-<name>, and "
            "the job begins with it. Unset: the job's own name."
        ),
    ] = None
    resize: Annotated[
        Literal["InPlaceOrReplace", "Replace"],
        Meta(
            description="How CPU and memory change: in place where the cluster can, or always by new pods."
        ),
    ] = "InPlaceOrReplace"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.objective) || !has(self.objective.type) || self.objective.type != 'Cost' || "
            "(has(self.objective.prices) && self.role in self.objective.prices && "
            f"self.objective.prices[self.role] >= {MIN_PRICE:.6f})",
            f"objective.prices needs what a member of %s, the role that is scaled, costs an hour: {MIN_PRICE:.6f} to "
            f"{MAX_PRICE:.0f}",
            field=".objective",
            values=("self.role",),
        ),
    )


class SchedulingPolicy(Object, frozen=True):
    """How the pods are scheduled together."""

    gang: Annotated[
        Literal["none", "volcano", "coscheduling"],
        Meta(description="Which gang scheduler gets a PodGroup."),
    ] = "none"
    queue: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Queue of the gang scheduler.")
    ] = None
    priority_class_name: Annotated[
        Annotated[str, Meta(max_length=253)] | None, Meta(description="Priority class of all pods.")
    ] = None


class Retry(Object, frozen=True):
    """When a job that has ended begins anew.

    All pods of one attempt are gone before those of the next are created.
    """

    policy: Annotated[
        Literal["OnFailure", "OnTransient", "Always"],
        Meta(
            description="OnFailure: after every failure. OnTransient: not after a failure that would come again, which "
            "is one with the action FailJob. Always: also after success. Never after activeDeadlineSeconds."
        ),
    ] = "OnFailure"
    limit: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INT32)] | None,
        Meta(description="Retries at most; unset: no bound."),
    ] = None
    min_delay_seconds: Annotated[
        int,
        Meta(
            description="Seconds from the end of one attempt to the beginning of the next.",
            ge=0,
            le=86_400,
        ),
    ] = 10
    max_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        Meta(
            description="If set, each delay is a random one from minDelaySeconds to so many: jobs that have failed for "
            "lack of the same resources do not all come back at once."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.maxDelaySeconds) || self.minDelaySeconds <= self.maxDelaySeconds",
            "maxDelaySeconds is %d, below minDelaySeconds, which is %d",
            field=".maxDelaySeconds",
            values=("self.maxDelaySeconds", "self.minDelaySeconds"),
        ),
    )


class NodeConditionMatch(Object, frozen=True):
    """A condition of a node."""

    type: Annotated[
        str, Meta(description="Its type, such as one that a problem detector sets.", max_length=316)
    ]
    status: Annotated[
        Literal["True", "False", "Unknown"], Meta(description="The status that is a problem.")
    ] = "True"
    seconds: Annotated[int, Meta(description="How long the node must have it.", ge=0, le=3600)] = 60


class RunPolicy(Object, frozen=True):
    """The job's life."""

    suspend: Annotated[bool, Meta(description="True: no pods; members are drained first.")] = False
    stop: Annotated[
        bool,
        Meta(
            description="True: the job ends for good, as Failed with the reason Stopped, and is not retried; members "
            "are drained first. It cannot be taken back."
        ),
    ] = False
    clean_pod_policy: Annotated[
        Literal["Running", "All", "None"],
        Meta(description="Which pods are deleted at the end; the master's always is."),
    ] = "Running"
    ttl_seconds_after_finished: Annotated[
        Seconds | None,
        Meta(description="Seconds after which a finished job is deleted; unset: never."),
    ] = None
    active_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(description="Seconds the job may be active; then it fails."),
    ] = None
    backoff_limit: Annotated[
        int, Meta(description="Counted restarts of all members together.", ge=0, le=MAX_INT32)
    ] = 10
    start_policy: Annotated[
        Literal["AnyMin", "AllReady"],
        Meta(description="Start with minReplicas, or wait for all replicas."),
    ] = "AnyMin"
    pending_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(
            description="Seconds a pod may be unschedulable or without its image; then the job fails."
        ),
    ] = None
    plan_history_limit: Annotated[
        int, Meta(description="Finished ScalePlans of the job that are kept.", ge=0, le=1000)
    ] = 10
    retry: Annotated[
        Retry | None,
        Meta(description="Begin anew after the job has ended, with all members; unset: never."),
    ] = None
    allow_scripts: Annotated[
        bool,
        Meta(
            description="Whether ScaleIns, ScaleOuts and ScalePlans may have scripts. Whoever may create those then "
            "runs commands in the launcher."
        ),
    ] = False
    replace_on_node_conditions: Annotated[
        list[NodeConditionMatch],
        Meta(
            description="Members on a node that has one of these conditions are replaced on nodes without, once each.",
            max_length=16,
        ),
    ] = []
    scheduling_policy: Annotated[SchedulingPolicy, Meta(description="Scheduling.")] = (
        SchedulingPolicy()
    )
    managed_by: Annotated[
        Annotated[str, Meta(max_length=63)] | None,
        Meta(
            description="The controller that manages the job. This operator leaves the job alone "
            "unless it is unset or elasticjob.dev/operator."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        _immutable_if_set("managedBy"),
        Rule(
            "!has(oldSelf.stop) || !oldSelf.stop || (has(self.stop) && self.stop)",
            "stop cannot be taken back; create the job anew, or use suspend for one that shall go on later",
            field=".stop",
        ),
    )


_SCALED = "self.replicaSpecs[self.autoscaling.role]"
_REMOVED_ROLES = "oldSelf.replicaSpecs.filter(r, !(r in self.replicaSpecs))"


def _role(name: str) -> str:
    return f"self.replicaSpecs['{name}']"


def _multiple_rule(count: str, *, unless: str) -> Rule:
    value = _size(_SCALED) if count == "replicas" else f"{_SCALED}.{count}"
    return Rule(
        f"!(self.autoscaling.role in self.replicaSpecs) || ({unless}) || {value} % self.autoscaling.multipleOf == 0",
        f"{count} of %s is %d, which is no multiple of autoscaling.multipleOf, which is %d",
        field=".replicaSpecs",
        values=("self.autoscaling.role", value, "self.autoscaling.multipleOf"),
        optional_old_self="oldSelf" in unless,
    )


class ElasticJobSpec(Object, frozen=True):
    """What the user wants."""

    framework: Annotated[
        Framework, Meta(description="Decides roles, ports and environment of the members.")
    ]
    replica_specs: Annotated[
        dict[RoleName, ReplicaSpec],
        Meta(description="The roles, by name.", min_length=1, max_length=MAX_ROLES),
    ]
    topology_key: Annotated[
        LabelKey | None,
        Meta(
            description="Label of nodes, such as topology.kubernetes.io/zone or one of your racks: members on nodes of "
            "one value get neighbouring ranks. Unset: only those of one node do."
        ),
    ] = None
    agent: Annotated[Agent, Meta(description="Where the agent comes from.")] = Agent()
    master: Annotated[MasterSpec, Meta(description="The master pod.")] = MasterSpec()
    autoscaling: Annotated[Autoscaling, Meta(description="Automatic scaling.")] = Autoscaling()
    health: Annotated[
        Health, Meta(description="When members and their training count as healthy.")
    ] = Health()
    run_policy: Annotated[RunPolicy, Meta(description="The job's life.")] = RunPolicy()

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.framework == oldSelf.framework", "framework is immutable", field=".framework"),
        Rule(
            "self.framework != 'horovod' || ('launcher' in self.replicaSpecs) == ('launcher' in oldSelf.replicaSpecs)",
            "role launcher can be neither added nor removed, as it decides how Horovod's worlds are formed; "
            "create a new job",
            field=".replicaSpecs",
        ),
        Rule(
            "oldSelf.replicaSpecs.all(r, r in self.replicaSpecs || "
            "!self.replicaSpecs.exists(o, has(self.replicaSpecs[o].dependsOn) && "
            "r in self.replicaSpecs[o].dependsOn))",
            "%s cannot be removed, as dependsOn of %s names it; remove those roles with it, or keep it",
            field=".replicaSpecs",
            values=(
                _REMOVED_ROLES,
                "self.replicaSpecs.filter(o, has(self.replicaSpecs[o].dependsOn) && "
                "self.replicaSpecs[o].dependsOn.exists(r, !(r in self.replicaSpecs)))",
            ),
        ),
        Rule(
            "self.replicaSpecs.all(r, r.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && r != 'master' && r.size() <= 20)",
            "a role's name is at most 20 lower-case letters, digits and dashes, and not master",
            field=".replicaSpecs",
        ),
        Rule(
            "self.replicaSpecs.all(r, !r.matches('-[0-9]+$'))",
            "a role's name does not end in a dash and a number: its pods' names would be those of another role",
            field=".replicaSpecs",
        ),
        Rule(
            "self.autoscaling.role in self.replicaSpecs || !self.autoscaling.enabled",
            "autoscaling.role is %s, which is not one of replicaSpecs",
            field=".autoscaling.role",
            values=("self.autoscaling.role",),
        ),
        Rule(
            "!has(self.autoscaling.objective.prices) || "
            "self.autoscaling.objective.prices.all(role, role in self.replicaSpecs)",
            "autoscaling.objective.prices has %s, which is not one of replicaSpecs; its keys are roles of the job",
            field=".autoscaling.objective",
            values=(
                "self.autoscaling.objective.prices.filter(role, !(role in self.replicaSpecs))",
            ),
        ),
        # Not for later sizes: a plan of any size is written back to replicas.
        _multiple_rule(
            "replicas",
            unless="oldSelf.hasValue() && oldSelf.value().autoscaling.role == self.autoscaling.role && "
            "oldSelf.value().autoscaling.multipleOf == self.autoscaling.multipleOf",
        ),
        _multiple_rule(
            "minReplicas", unless=f"{_SCALED}.minReplicas == 1"
        ),  # 1 is the default: no bound of its own
        _multiple_rule("maxReplicas", unless=f"!has({_SCALED}.maxReplicas)"),
        *(
            Rule(
                f"self.framework != '{framework}' || "
                f"self.replicaSpecs.all(r, r in {list(roles)} || self.replicaSpecs[r].agent == 'None')",
                f"framework {framework} has no role %s; its roles are {', '.join(roles)}; "
                "what does not take part in the training has agent: None",
                field=".replicaSpecs",
                values=(
                    f"self.replicaSpecs.filter(r, !(r in {list(roles)}) && self.replicaSpecs[r].agent != 'None')",
                ),
            )
            for framework, roles in ((name, f.roles) for name, f in FRAMEWORKS.items() if f.roles)
        ),
        *(
            Rule(
                f"self.framework != '{name}' || "
                f"{list(group)}.exists(r, r in self.replicaSpecs && self.replicaSpecs[r].agent != 'None')",
                f"framework {name} needs role {' or '.join(group)}, with an agent; the job has %s",
                field=".replicaSpecs",
                values=("self.replicaSpecs.map(r, r)",),
            )
            for name, framework in FRAMEWORKS.items()
            for group in framework.required
        ),
        *(
            Rule(
                f"self.framework != '{name}' || !('{role}' in self.replicaSpecs) || "
                f"self.replicaSpecs['{role}'].agent == 'None' || {_size(_role(role))} <= 1",
                f"framework {name} has one {role}; replicas is %s",
                field=".replicaSpecs",
                values=(_size(_role(role)),),
            )
            for name, framework in FRAMEWORKS.items()
            for role in framework.single_roles
        ),
        Rule(
            "self.framework == 'custom' || self.replicaSpecs.all(r, "
            "!has(self.replicaSpecs[r].onWorldChange) || self.replicaSpecs[r].onWorldChange != 'Notify')",
            "onWorldChange is Notify in role %s, which needs framework custom: processes of framework %s read "
            "their world once, at their start; use Restart or Keep",
            field=".replicaSpecs",
            values=(
                "self.replicaSpecs.filter(r, has(self.replicaSpecs[r].onWorldChange) && "
                "self.replicaSpecs[r].onWorldChange == 'Notify')",
                "self.framework",
            ),
        ),
    )


IndexKey = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,5})$")]
"""A member's index as the key of a map."""
Indices = Annotated[
    str,
    Meta(max_length=MAX_TEXT, pattern="^([0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*)?$"),
]
"""A set of indices in compact form; `parse_indices` bounds how many they are."""
LabelValue = Annotated[str, Meta(max_length=63)]
MAX_DOMAINS = 256
"""Topology domains of a role that are told apart."""
Members = Annotated[int, Meta(ge=0, le=MAX_INDICES)]
Counter = Annotated[int, Meta(ge=0, le=MAX_COUNTER)]
QuantitiesByIndex = Annotated[dict[IndexKey, Quantities], Meta(max_length=MAX_INDICES)]


def _by_index(description: str) -> Meta:
    return Meta(description=description, max_length=MAX_INDICES, extra_json_schema=_BY_INDEX)


class BackOff(Object, frozen=True):
    """How long a restart waits."""

    failures: Annotated[
        Counter,
        Meta(description="Ends in a row, counted or not; one after a long run begins anew."),
    ] = 0
    until: Annotated[Time, Meta(description="When the next pod may start.")] = ""


def _shown_zero() -> int:
    """Return the default of a number that is written also when it is 0.

    Only what a factory makes is not left out.
    """
    number: int = field(default_factory=int)
    return number


def _shown_restart() -> FailureAction:
    """Return the default of an action that is always written."""
    action: FailureAction = field(default_factory=lambda: "Restart")
    return action


class ReplicaStatus(Object, frozen=True):
    """One role as it is. `indices` is the size the operator holds the job to."""

    desired: Annotated[Members, Meta(description="Members the operator holds the role to.")] = (
        _shown_zero()
    )
    indices: Annotated[Indices, Meta(description="Their indices, such as 0,2-4.")] = ""
    active: Annotated[
        Counter, Meta(description="Pods that are neither finished nor being deleted.")
    ] = _shown_zero()
    ready: Annotated[Counter, Meta(description="Pods that are Ready.")] = _shown_zero()
    succeeded: Annotated[Members, Meta(description="Members that have succeeded.")] = _shown_zero()
    succeeded_indices: Annotated[Indices, Meta(description="Their indices.")] = ""
    failed: Annotated[Members, Meta(description="Members that have failed for good.")] = (
        _shown_zero()
    )
    restarts: Annotated[Counter, Meta(description="Counted restarts.")] = _shown_zero()
    restarts_by_index: Annotated[
        dict[IndexKey, Counter], _by_index("Counted restarts, by index.")
    ] = {}
    uncounted_restarts: Annotated[
        Counter,
        Meta(
            description="Restarts that are nobody's fault, such as preemptions; no limit applies to them."
        ),
    ] = _shown_zero()
    uncounted_by_index: Annotated[
        dict[IndexKey, Counter], _by_index("Uncounted restarts, by index.")
    ] = {}
    back_off: Annotated[
        dict[IndexKey, BackOff], _by_index("Members that were restarted, by index.")
    ] = {}
    started_indices: Annotated[
        Indices,
        Meta(
            description="Members whose present pod has been seen: if it is missing later, it has vanished."
        ),
    ] = ""
    highest_index: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_INDEX)],
        Meta(description="The highest index ever used; -1 for none."),
    ] = -1
    incarnations: Annotated[
        Counter, Meta(description="Names given out for indices used before.")
    ] = 0
    incarnation_by_index: Annotated[
        dict[IndexKey, Counter],
        _by_index(
            "Of each member whose name is not the first of its index, the number that makes its name new."
        ),
    ] = {}
    resources: Annotated[
        Quantities, Meta(description="Resources set by a plan, in place of the template's.")
    ] = {}
    resources_by_index: Annotated[
        dict[IndexKey, Quantities],
        _by_index("Resources of single members set by a plan, by index."),
    ] = {}
    removed: Annotated[
        bool,
        Meta(description="The role is removed from the spec; this entry goes with its last pod."),
    ] = False
    topology_domains: Annotated[
        dict[LabelValue, Indices],
        Meta(
            description=f"Members by the value of topologyKey of their node; {MAX_DOMAINS} values at most.",
            max_length=MAX_DOMAINS,
        ),
    ] = {}


class Failure(Object, frozen=True):
    """How a pod has failed, and what was done about it. What is not known is left out."""

    role: Annotated[RoleName, Meta(description="The member's role, or master.")] = ""
    index: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INDEX)] | None, Meta(description="Its index in the role.")
    ] = None
    attempt: Annotated[
        Counter, Meta(description="Restarts of the member before, counted or not.")
    ] = _shown_zero()
    pod: Annotated[ObjectName, Meta(description="The pod.")] = ""
    node: Annotated[ObjectName, Meta(description="The node it was on.")] = ""
    container: Annotated[str, Meta(description="The container that has failed.", max_length=63)] = (
        ""
    )
    exit_code: Annotated[
        Annotated[int, Meta(ge=-MAX_INT32, le=MAX_INT32)] | None, Meta(description="Its exit code.")
    ] = None
    signal: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(description="The signal that ended it, also as 128 and more."),
    ] = None
    reason: Annotated[
        str,
        Meta(
            description="Kubernetes' reason of the container or the pod, such as OOMKilled.",
            max_length=256,
        ),
    ] = ""
    message: Annotated[str, Meta(description="The last one of its last words.", max_length=256)] = (
        ""
    )
    action: Annotated[
        FailureAction, Meta(description="What was done, by a rule or by default.")
    ] = _shown_restart()
    started_at: Annotated[Time | None, Meta(description="When the container started.")] = None
    finished_at: Annotated[Time | None, Meta(description="When it ended, or the pod did.")] = None


class FormerRoles(Object, frozen=True):
    """What pods of roles that were removed have used up.

    Names of pods of roles that are added go on from there.
    """

    highest_index: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_INDEX)],
        Meta(description="The highest index ever used; -1 for none."),
    ] = -1
    incarnations: Annotated[
        Counter, Meta(description="The most names given out for indices used before.")
    ] = 0


MAX_FAILURES = 10
"""How many failures of a job its status has."""


class MasterStatus(Object, frozen=True):
    """The master pod as it is."""

    incarnations: Annotated[Counter, Meta(description="Pods created so far.")] = 0
    restarts: Annotated[Counter, Meta(description="Counted restarts.")] = 0
    uncounted_restarts: Annotated[
        Counter, Meta(description="Restarts that are nobody's fault.")
    ] = 0
    back_off: Annotated[BackOff | None, Meta(description="How long its restart waits.")] = None


class Progress(Object, frozen=True):
    """How the training goes; written by the master only."""

    step: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_STEP)], Meta(description="The last finished step.")
    ] = 0
    total_steps: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_STEP)] | None,
        Meta(description="All steps, if the training tells."),
    ] = None
    samples_per_second: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="Throughput of all members together.")
    ] = None
    eta_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNTER)] | None,
        Meta(description="Seconds to go at this rate."),
    ] = None
    last_report_time: Annotated[
        Time | None, Meta(description="When a member last reported a step.")
    ] = None
    metrics: Annotated[
        dict[Annotated[str, Meta(max_length=MAX_METRIC_NAME_CHARACTERS)], float],
        Meta(description="What the training reports, such as loss.", max_length=MAX_METRICS),
    ] = {}
    rate: Annotated[str, Meta(description="samplesPerSecond for people.", max_length=64)] = ""
    steps: Annotated[str, Meta(description="step/totalSteps for people.", max_length=64)] = ""
    eta: Annotated[str, Meta(description="etaSeconds for people.", max_length=64)] = ""
    stalled_since: Annotated[
        Time | None, Meta(description="Since when no step was finished although members live.")
    ] = None
    stragglers: Annotated[
        list[ObjectName],
        Meta(
            description="Pods that have been much slower than the others for a while.",
            max_length=100,
        ),
    ] = []
    why_not_replaced: Annotated[
        str,
        Meta(
            description="Why stragglers are not replaced, where onStraggler is Replace.",
            max_length=256,
        ),
    ] = ""
    unfit: Annotated[
        dict[ObjectName, Annotated[str, Meta(max_length=1024)]],
        Meta(
            description="Members whose nodes failed the node check: pod name to what is wrong.",
            max_length=100,
        ),
    ] = {}
    script: Annotated[
        ScriptEnd | None, Meta(description="How the script of the present ScalePlan has ended.")
    ] = None


class ElasticJobStatus(Object, frozen=True):
    """The job as it is.

    Bounded field by field: what is written here is read back by the operator.
    """

    phase: Annotated[Phase | None, Meta(description="The job's phase.")] = None
    conditions: Annotated[
        list[Condition], Meta(description="Standard conditions.", max_length=64)
    ] = []
    observed_generation: Annotated[
        Generation, Meta(description="Generation of the spec this was computed from.")
    ] = 0
    replica_statuses: Annotated[
        dict[RoleName, ReplicaStatus],
        Meta(description="The roles, by name.", max_length=MAX_ROLE_STATUSES),
    ] = {}
    former_roles: Annotated[
        FormerRoles | None,
        Meta(description="Of roles that were removed, so that no name of a pod is used twice."),
    ] = None
    workers: Annotated[
        str,
        Meta(
            description="ready/desired of the elastic role, for people; empty once it has ended.",
            max_length=64,
        ),
    ] = ""
    selector: Annotated[
        str,
        Meta(
            description="Label selector of the elastic role's pods, for autoscalers.",
            max_length=512,
        ),
    ] = ""
    current_plan: Annotated[
        ObjectName | None, Meta(description="The ScalePlan that is being executed.")
    ] = None
    master: Annotated[MasterStatus, Meta(description="The master pod.")] = MasterStatus()
    master_address: Annotated[
        Annotated[str, Meta(max_length=300)] | None,
        Meta(description="host:port of the master's gRPC services."),
    ] = None
    progress: Annotated[Progress | None, Meta(description="How the training goes.")] = None
    restarts: Annotated[
        Counter,
        Meta(description="Counted restarts of all members, held to runPolicy.backoffLimit."),
    ] = _shown_zero()
    uncounted_restarts: Annotated[
        Counter, Meta(description="Uncounted restarts of all members.")
    ] = _shown_zero()
    start_time: Annotated[
        Time | None, Meta(description="When the operator took the job up, or it was last resumed.")
    ] = None
    completion_time: Annotated[Time | None, Meta(description="When the job ended.")] = None
    retries: Annotated[Counter, Meta(description="How often the job has begun anew.")] = 0
    retry_time: Annotated[
        Time | None, Meta(description="When it begins anew, at the earliest; while Retrying.")
    ] = None
    message: Annotated[Message, Meta(description="Why the phase is what it is.")] = ""
    last_failure: Annotated[
        str,
        Meta(
            description="The pod that has failed last, and how: its last words are in its event.",
            max_length=512,
        ),
    ] = ""
    failures: Annotated[
        list[Failure],
        Meta(
            description="The last pods that have failed, counted or not, the newest first.",
            max_length=MAX_FAILURES,
        ),
    ] = []


class ElasticJob(Object, frozen=True):
    """An elastic deep-learning job."""

    metadata: ObjectMeta
    spec: Annotated[ElasticJobSpec, Meta(description="What the user wants.")]
    status: Annotated[ElasticJobStatus, Meta(description="The job as it is.")] = ElasticJobStatus()

    @property
    def profile(self) -> str | None:
        """The name under which it is kept what such jobs need.

        None: nothing is kept, as nothing is scaled.
        """
        autoscaling = self.spec.autoscaling
        return (autoscaling.profile or self.metadata.name) if autoscaling.enabled else None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name is at most 40 lower-case letters, digits and dashes, and starts with a letter: "
            "it becomes part of host names",
            field=".metadata.name",
        ),
    )
    # Tools for GitOps take an object without conditions for one that is ready.
    UNSEEN_STATUS: ClassVar[dict[str, Any]] = {
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "Pending",
                "message": "no operator has taken the job up yet",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
        ]
    }
    """The status of a job that no operator has seen."""
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Phase", ".status.phase"),
        Column("Workers", ".status.workers", description="ready/desired"),
        Column("Step", ".status.progress.steps"),
        Column("Rate", ".status.progress.rate"),
        Column("ETA", ".status.progress.eta", description="time to go"),
        Column(
            "Restarts", ".status.restarts", "integer", description="counted restarts of members"
        ),
        Column("Plan", ".status.currentPlan", priority=1),
        Column("Message", ".status.message", priority=1),
        Column("Last Failure", ".status.lastFailure", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )
