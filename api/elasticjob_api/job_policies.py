"""The parts of an ElasticJob's spec besides roles: agent, master, scaling, scheduling and life."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from elasticjob_api.limits import MAX_RESTARTS, MAX_ROLES
from elasticjob_api.meta import Object, Quantity, Rule, Time
from elasticjob_api.replica_spec import DELAYS_IN_ORDER, RoleName, Seconds, immutable_if_set
from elasticjob_api.resources import ResourceLimits

MAX_INT32 = 2_147_483_647
"""The greatest number in fields without a natural bound, as in Kubernetes; 68 years in seconds."""
Image = Annotated[str, Meta(max_length=1024)]
AgentSource = Literal["InitContainer", "ImageVolume", "Image"]
DEFAULT_EFFICIENCY = 0.5
MIN_PRICE = 1e-6
MAX_PRICE = 1e6
"""The least price per hour of a member of the scaled role, and the greatest one of any member."""


class Agent(Object, frozen=True):
    """How the agent gets into the worker pods, and how it starts their processes."""

    source: Annotated[
        AgentSource,
        Meta(
            description="InitContainer: an init container copies the agent into the pod, and the "
            "image needs no change. ImageVolume: the pod mounts the agent's image instead, which "
            "needs Kubernetes 1.35 and a runtime with image volumes, such as containerd 2.1. "
            "Image: the image has elasticjob-agent on its PATH."
        ),
    ] = "InitContainer"
    image: Annotated[
        Image | None,
        Meta(
            description="Image of the init container or of the volume; unset: the operator's "
            "--agent-image."
        ),
    ] = None
    standby: Annotated[
        Literal["None", "Auto", "Always"],
        Meta(
            description="Auto: while a Python program trains, each of its processes has one in "
            "standby that has imported its modules, and runs it in the next world. It counts "
            "against the container's memory. There is none where it does not fit into its memory "
            "limit, or has none. Always: without a limit it may take the node's memory. Jobs of "
            "operators before this default have None."
        ),
    ] = "Auto"
    state_memory: Annotated[
        Quantity | None,
        Meta(
            description="Size of a folder in memory of each member, in which Checkpointer keeps "
            "the newest checkpoints: room for six of what one member saves. It counts against "
            "the container's memory. Unset: checkpoints are only in the storage.",
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        immutable_if_set("stateMemory", "; create a new job for another size"),
    )


class MasterSpec(Object, frozen=True):
    """The job's master pod."""

    image: Annotated[
        Image | None, Meta(description="Image of the master; unset: the operator's --master-image.")
    ] = None
    resources: Annotated[
        dict[str, Any],
        Meta(
            description="Resources of the container. A master needs 64Mi, and 128Ki for each "
            "member. The default memory limit is larger for more than 1,000 members.",
            extra_json_schema={"$ref": "ResourceRequirements"},
        ),
    ] = field(
        default_factory=lambda: {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        }
    )
    template: Annotated[
        dict[str, Any],
        Meta(
            description="Overrides of the pod, such as labels, annotations, nodeSelector and "
            "tolerations.",
            extra_json_schema={"$ref": "PodTemplateSpec"},
        ),
    ] = {}
    restart_limit: Annotated[
        int,
        Meta(description="Number of counted restarts before the job fails.", ge=0, le=MAX_RESTARTS),
    ] = 10
    pod_force_delete_seconds: Annotated[
        Seconds,
        Meta(
            description="Seconds after which a master pod on a lost node that does not end is "
            "deleted by force and replaced; at least 30. If it still runs there, it can neither "
            "write the job's state nor start a world."
        ),
    ] = 120


class Objective(Object, frozen=True):
    """The goal of the auto-scaler."""

    type: Annotated[
        Literal["Efficiency", "Throughput", "Deadline", "Cost"],
        Meta(
            description="Efficiency: as many members as each add enough throughput. Throughput: "
            "as many as add any. Deadline: as few as end the training by `finishTime`. Cost: the "
            "number with the lowest cost per sample, by `prices`."
        ),
    ] = "Efficiency"
    min_marginal_efficiency: Annotated[
        float,
        Meta(
            description="For Efficiency: another member must add at least this part of the "
            "throughput of an average member. With another type, only the default is allowed.",
            gt=0,
            le=1,
        ),
    ] = DEFAULT_EFFICIENCY
    finish_time: Annotated[
        Time | None,
        Meta(
            description="For Deadline: the time by which the training should end, in UTC. The "
            "training must report its total number of steps."
        ),
    ] = None
    prices: Annotated[
        dict[RoleName, Annotated[float, Meta(ge=0, le=MAX_PRICE)]],
        Meta(
            description="For Cost: the price of one member per hour, by role, in any currency. A "
            "role without a price costs nothing. The scaled role must have one.",
            max_length=MAX_ROLES,
        ),
    ] = {}
    # The default of the whole is checked before those of its fields, so `type` may be missing.
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.type) || self.type == 'Efficiency' || "
            "!has(self.minMarginalEfficiency) || self.minMarginalEfficiency == "
            f"{DEFAULT_EFFICIENCY}",
            f"minMarginalEfficiency is %s, but type is %s; leave it out ({DEFAULT_EFFICIENCY}), or "
            "use type Efficiency",
            field=".minMarginalEfficiency",
            values=("self.minMarginalEfficiency", "self.type"),
        ),
        Rule(
            "!has(self.type) || self.type != 'Deadline' || has(self.finishTime)",
            "finishTime is missing, but type is Deadline; set it, such as 2026-01-31T18:00:00Z, or "
            "use another type",
            field=".finishTime",
        ),
        Rule(
            "!has(self.finishTime) || (has(self.type) && self.type == 'Deadline')",
            "finishTime is %s, but type is %s; leave it out, or use type Deadline",
            field=".finishTime",
            values=("self.finishTime", "self.type"),
        ),
        Rule(
            "!has(self.prices) || self.prices.size() == 0 || (has(self.type) && self.type == "
            "'Cost')",
            "prices has %d roles, but type is %s; leave it out, or use type Cost",
            field=".prices",
            values=("self.prices.size()", "self.type"),
        ),
    )


class Autoscaling(Object, frozen=True):
    """Automatic scaling by the master."""

    enabled: Annotated[bool, Meta(description="Whether the master may create ScalePlans.")] = False
    role: Annotated[str, Meta(description="The role that is scaled.", max_length=20)] = "worker"
    objective: Annotated[Objective, Meta(description="The goal of the auto-scaler.")] = Objective()
    cooldown_seconds: Annotated[
        int,
        Meta(
            description="Seconds for which each size is measured. Growth that clearly pays starts "
            "earlier.",
            ge=1,
            le=86_400,
        ),
    ] = 300
    multiple_of: Annotated[
        int,
        Meta(
            description="The auto-scaler requests only multiples of this number, such as the "
            "hosts of a node group. Users may request other sizes.",
            ge=1,
            le=1000,
        ),
    ] = 1
    resource_limits: ResourceLimits = {}
    profile: Annotated[
        Annotated[str, Meta(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None,
        Meta(
            description="Name under which the needs of earlier jobs are stored, in the ConfigMap "
            "elasticjob-profile-<name>. The job begins with them. Unset: the job's name."
        ),
    ] = None
    resize: Annotated[
        Literal["InPlaceOrReplace", "Replace"],
        Meta(
            description="How CPU and memory change: in place if the cluster supports it, or "
            "always by new pods."
        ),
    ] = "InPlaceOrReplace"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.objective) || !has(self.objective.type) || self.objective.type != 'Cost' || "
            "(has(self.objective.prices) && self.role in self.objective.prices && "
            f"self.objective.prices[self.role] >= {MIN_PRICE:.6f})",
            "objective.prices needs what a member of %s, the role that is scaled, costs an hour: "
            f"{MIN_PRICE:.6f} to "
            f"{MAX_PRICE:.0f}",
            field=".objective",
            values=("self.role",),
        ),
    )


def _is_native(policy: str) -> str:
    return f"has({policy}.gang) && {policy}.gang == 'native'"


class SchedulingPolicy(Object, frozen=True):
    """How the pods are scheduled together."""

    gang: Annotated[
        Literal["none", "volcano", "coscheduling", "native"],
        Meta(
            description="The gang scheduler for which a PodGroup is created. native: "
            "Kubernetes' own, from 1.37 on with the feature gate GenericWorkload."
        ),
    ] = "none"
    queue: Annotated[
        Annotated[str, Meta(max_length=63)] | None, Meta(description="Queue of the gang scheduler.")
    ] = None
    priority_class_name: Annotated[
        Annotated[str, Meta(max_length=253)] | None, Meta(description="Priority class of all pods.")
    ] = None
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"({_is_native('self')}) == ({_is_native('oldSelf')})",
            "gang cannot change to or from native, as pods cannot join or leave a PodGroup; "
            "create a new job",
            field=".gang",
        ),
        Rule(
            f"!({_is_native('self')}) || "
            "(has(self.priorityClassName) ? self.priorityClassName : '') == "
            "(has(oldSelf.priorityClassName) ? oldSelf.priorityClassName : '')",
            "priorityClassName is immutable with gang native, as that of a PodGroup is; create a "
            "new job",
            field=".priorityClassName",
        ),
    )


class Retry(Object, frozen=True):
    """When a job that has ended restarts.

    All pods of an attempt are deleted before the next attempt creates its pods.
    """

    policy: Annotated[
        Literal["OnFailure", "OnTransient", "Always"],
        Meta(
            description="OnFailure: after every failure. OnTransient: not after a failure with "
            "the action FailJob, which would occur again. Always: also after success. A job that "
            "exceeded activeDeadlineSeconds is never retried."
        ),
    ] = "OnFailure"
    limit: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INT32)] | None,
        Meta(description="Greatest number of retries; unset: no limit."),
    ] = None
    min_delay_seconds: Annotated[
        int,
        Meta(
            description="Seconds from the end of one attempt to the start of the next.",
            ge=0,
            le=86_400,
        ),
    ] = 10
    max_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        Meta(
            description="If set, each delay is random, from minDelaySeconds to this number, so "
            "that jobs that failed for lack of the same resources do not all restart at once."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (DELAYS_IN_ORDER,)


class NodeConditionMatch(Object, frozen=True):
    """A condition of a node."""

    type: Annotated[
        str,
        Meta(
            description="Type of the condition, such as one that a problem detector sets.",
            max_length=316,
        ),
    ]
    status: Annotated[
        Literal["True", "False", "Unknown"], Meta(description="The status that is a problem.")
    ] = "True"
    seconds: Annotated[
        int, Meta(description="Seconds for which the node must have the condition.", ge=0, le=3600)
    ] = 60


class RunPolicy(Object, frozen=True):
    """When the job starts, stops, ends and is retried."""

    suspend: Annotated[
        bool, Meta(description="True: the job has no pods. Its members are drained first.")
    ] = False
    stop: Annotated[
        bool,
        Meta(
            description="True: the job ends in the phase Stopped, and is not "
            "retried. Its members are drained first. This cannot be undone."
        ),
    ] = False
    clean_pod_policy: Annotated[
        Literal["Running", "All", "None"],
        Meta(description="Which pods are deleted when the job ends. The master's pod always is."),
    ] = "Running"
    ttl_seconds_after_finished: Annotated[
        Seconds | None,
        Meta(description="Seconds after which a finished job is deleted; unset: never."),
    ] = None
    active_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(description="Seconds for which the job may be active. Then it fails."),
    ] = None
    backoff_limit: Annotated[
        int,
        Meta(
            description="Number of counted restarts of all members before the job fails.",
            ge=0,
            le=MAX_INT32,
        ),
    ] = 10
    start_policy: Annotated[
        Literal["AnyMin", "AllReady"],
        Meta(
            description="AnyMin: the job starts with minReplicas. AllReady: it waits for all "
            "replicas."
        ),
    ] = "AnyMin"
    pending_deadline_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(
            description="Seconds for which a pod may be unschedulable, without its image or "
            "refused by the API server. Then the job fails."
        ),
    ] = None
    plan_history_limit: Annotated[
        int, Meta(description="Number of finished ScalePlans that are kept.", ge=0, le=1000)
    ] = 10
    retry: Annotated[
        Retry | None,
        Meta(
            description="When the job restarts, with all members, after it has ended; unset: never."
        ),
    ] = None
    allow_scripts: Annotated[
        bool,
        Meta(
            description="Whether ScaleIns, ScaleOuts and ScalePlans may have scripts. Every user "
            "who may create them can then run commands in the launcher."
        ),
    ] = False
    replace_on_node_conditions: Annotated[
        list[NodeConditionMatch],
        Meta(
            description="A member on a node with one of these conditions is replaced, once, by a "
            "pod on a node without them.",
            max_length=16,
        ),
    ] = []
    scheduling_policy: Annotated[
        SchedulingPolicy, Meta(description="How the pods are scheduled together.")
    ] = SchedulingPolicy()
    managed_by: Annotated[
        Annotated[str, Meta(max_length=63)] | None,
        Meta(
            description="The controller that manages the job. Unless it is unset or "
            "elasticjob.dev/operator, this operator ignores the job."
        ),
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        immutable_if_set("managedBy"),
        Rule(
            "!has(oldSelf.stop) || !oldSelf.stop || (has(self.stop) && self.stop)",
            "stop cannot be undone; create a new job, or use suspend for a job that continues "
            "later",
            field=".stop",
        ),
    )
