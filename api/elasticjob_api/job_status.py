"""The status of an ElasticJob."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from elasticjob_api.indices import MAX_TEXT
from elasticjob_api.job_policies import MAX_INT32
from elasticjob_api.limits import (
    MAX_COUNTER,
    MAX_INDEX,
    MAX_INDICES,
    MAX_METRIC_NAME_CHARACTERS,
    MAX_METRICS,
    MAX_ROLE_STATUSES,
    MAX_STEP,
)
from elasticjob_api.meta import Condition, Generation, Message, Object, ObjectName, Time
from elasticjob_api.replica_spec import FailureAction, RoleName
from elasticjob_api.resources import Quantities
from elasticjob_api.scripts import ScriptEnd

Phase = Literal[
    "Pending", "Starting", "Running", "Scaling", "Suspended", "Retrying", "Succeeded", "Failed",
    "Stopped",
]  # fmt: skip
ENDED: tuple[Phase, ...] = ("Succeeded", "Failed", "Stopped")
"""The phases of a job that has ended."""
_BY_INDEX = {"x-kubernetes-map-type": "atomic"}
"""For maps with an entry for each member: `managedFields` would double the object if it named each
of 10,000 entries.
"""
IndexKey = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,5})$")]
"""A member's index as the key of a map."""
Indices = Annotated[
    str,
    Meta(max_length=MAX_TEXT, pattern="^([0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*)?$"),
]
"""A set of indices in compact form; `parse_indices` bounds their number."""
LabelValue = Annotated[str, Meta(max_length=63)]
MAX_DOMAINS = 256
"""The greatest number of topology domains of a role."""
Members = Annotated[int, Meta(ge=0, le=MAX_INDICES)]
Counter = Annotated[int, Meta(ge=0, le=MAX_COUNTER)]
QuantitiesByIndex = Annotated[dict[IndexKey, Quantities], Meta(max_length=MAX_INDICES)]


def _by_index(description: str) -> Meta:
    return Meta(description=description, max_length=MAX_INDICES, extra_json_schema=_BY_INDEX)


class BackOff(Object, frozen=True):
    """The back-off of a restart."""

    failures: Annotated[
        Counter,
        Meta(description="Consecutive failures, counted or not. A long run resets the number."),
    ] = 0
    until: Annotated[Time, Meta(description="Earliest start of the next pod.")] = ""


def _shown_zero() -> int:
    """Return the default of a number that is written also if it is 0.

    `omit_defaults` leaves out a default value, but not one of a factory.
    """
    number: int = field(default_factory=int)
    return number


def _shown_restart() -> FailureAction:
    """Return the default of an action that is always written."""
    action: FailureAction = field(default_factory=lambda: "Restart")
    return action


class ReplicaStatus(Object, frozen=True):
    """The observed state of one role. The operator maintains the members of `indices`."""

    desired: Annotated[
        Members, Meta(description="Number of members that the operator maintains.")
    ] = _shown_zero()
    asked: Annotated[
        Members | None,
        Meta(
            description="Number of members that were asked for before an ElasticPool took some; "
            "they come back when the pool has room."
        ),
    ] = None
    indices: Annotated[Indices, Meta(description="Indices of these members, such as 0,2-4.")] = ""
    active: Annotated[
        Counter, Meta(description="Pods that are neither finished nor being deleted.")
    ] = _shown_zero()
    ready: Annotated[Counter, Meta(description="Pods that are Ready.")] = _shown_zero()
    succeeded: Annotated[Members, Meta(description="Members that have succeeded.")] = _shown_zero()
    succeeded_indices: Annotated[Indices, Meta(description="Indices of these members.")] = ""
    failed: Annotated[Members, Meta(description="Members that have failed permanently.")] = (
        _shown_zero()
    )
    restarts: Annotated[
        Counter,
        Meta(
            description="Failures that the limits count; a restart follows each that uses up none."
        ),
    ] = _shown_zero()
    restarts_by_index: Annotated[
        dict[IndexKey, Counter], _by_index("Failures that the limits count, by index.")
    ] = {}
    uncounted_restarts: Annotated[
        Counter,
        Meta(
            description="Restarts without a fault of the program, such as preemptions. No limit "
            "applies to them."
        ),
    ] = _shown_zero()
    uncounted_by_index: Annotated[
        dict[IndexKey, Counter], _by_index("Uncounted restarts, by index.")
    ] = {}
    back_off: Annotated[
        dict[IndexKey, BackOff], _by_index("Back-off of the members that have restarted, by index.")
    ] = {}
    started_indices: Annotated[
        Indices,
        Meta(
            description="Indices of members whose present pod was observed. If it is missing "
            "later, it has vanished."
        ),
    ] = ""
    highest_index: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_INDEX)],
        Meta(description="Highest index ever used; -1 for none."),
    ] = -1
    incarnations: Annotated[
        Counter, Meta(description="Number of pod names that were given to indices used before.")
    ] = 0
    incarnation_by_index: Annotated[
        dict[IndexKey, Counter],
        _by_index(
            "The number in a pod's name that makes it new, by index, if the index was used before."
        ),
    ] = {}
    resources: Annotated[
        Quantities, Meta(description="Resources that a plan has set; they override the template's.")
    ] = {}
    resources_by_index: Annotated[
        dict[IndexKey, Quantities],
        _by_index("Resources of single members set by a plan, by index."),
    ] = {}
    removed: Annotated[
        bool,
        Meta(
            description="The role was removed from the spec. This entry is removed with its last "
            "pod."
        ),
    ] = False
    topology_domains: Annotated[
        dict[LabelValue, Indices],
        Meta(
            description="Members by the value of topologyKey of their node, for at most "
            f"{MAX_DOMAINS} values.",
            max_length=MAX_DOMAINS,
        ),
    ] = {}


class Failure(Object, frozen=True):
    """How a pod has failed, and which action followed. Unknown fields are left out."""

    role: Annotated[RoleName, Meta(description="The member's role, or master.")] = ""
    index: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INDEX)] | None,
        Meta(description="The member's index in the role."),
    ] = None
    attempt: Annotated[
        Counter, Meta(description="Earlier restarts of the member, counted or not.")
    ] = _shown_zero()
    pod: Annotated[ObjectName, Meta(description="Name of the pod.")] = ""
    node: Annotated[ObjectName, Meta(description="Node of the pod.")] = ""
    container: Annotated[str, Meta(description="Container that has failed.", max_length=63)] = ""
    exit_code: Annotated[
        Annotated[int, Meta(ge=-MAX_INT32, le=MAX_INT32)] | None,
        Meta(description="Exit code of the container."),
    ] = None
    signal: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        Meta(description="Signal that ended the container, also from an exit code above 128."),
    ] = None
    reason: Annotated[
        str,
        Meta(
            description="Kubernetes' reason for the end of the container or the pod, such as "
            "OOMKilled.",
            max_length=256,
        ),
    ] = ""
    message: Annotated[
        str, Meta(description="Why it has failed, by the container's last words.", max_length=256)
    ] = ""
    action: Annotated[
        FailureAction, Meta(description="Action after the failure, by a rule or by default.")
    ] = _shown_restart()
    started_at: Annotated[Time | None, Meta(description="When the container started.")] = None
    finished_at: Annotated[
        Time | None, Meta(description="When the container, or otherwise the pod, ended.")
    ] = None


class FormerRoles(Object, frozen=True):
    """The pod names that removed roles have used; names of new roles continue from them."""

    highest_index: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_INDEX)],
        Meta(description="Highest index ever used; -1 for none."),
    ] = -1
    incarnations: Annotated[
        Counter,
        Meta(description="Greatest number of pod names that were given to indices used before."),
    ] = 0


MAX_FAILURES = 10
"""The greatest number of failures in a job's status."""


class MasterStatus(Object, frozen=True):
    """The observed state of the master pod."""

    incarnations: Annotated[Counter, Meta(description="Number of pods created.")] = 0
    restarts: Annotated[Counter, Meta(description="Counted restarts.")] = 0
    uncounted_restarts: Annotated[
        Counter, Meta(description="Restarts without a fault of the master.")
    ] = 0
    back_off: Annotated[BackOff | None, Meta(description="Back-off of its next restart.")] = None


class Progress(Object, frozen=True):
    """The progress of the training, which only the master writes."""

    step: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_STEP)], Meta(description="The last finished step.")
    ] = 0
    total_steps: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_STEP)] | None,
        Meta(description="Total number of steps, if the training reports it."),
    ] = None
    samples_per_second: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="Throughput of all members.")
    ] = None
    eta_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNTER)] | None,
        Meta(description="Remaining seconds at this rate."),
    ] = None
    last_report_time: Annotated[
        Time | None, Meta(description="When a member last reported a step.")
    ] = None
    metrics: Annotated[
        dict[Annotated[str, Meta(max_length=MAX_METRIC_NAME_CHARACTERS)], float],
        Meta(
            description="Metrics that the training reports, such as loss.", max_length=MAX_METRICS
        ),
    ] = {}
    rate: Annotated[str, Meta(description="samplesPerSecond in readable form.", max_length=64)] = ""
    steps: Annotated[str, Meta(description="step/totalSteps in readable form.", max_length=64)] = ""
    eta: Annotated[str, Meta(description="etaSeconds in readable form.", max_length=64)] = ""
    stalled_since: Annotated[
        Time | None,
        Meta(description="Since when no step was finished although members are running."),
    ] = None
    why_stalled: Annotated[
        str,
        Meta(description="Which ranks wait in which collective, and which do not.", max_length=512),
    ] = ""
    stragglers: Annotated[
        list[ObjectName],
        Meta(
            description="Pods that have been much slower than the others for some time.",
            max_length=100,
        ),
    ] = []
    why_not_replaced: Annotated[
        str,
        Meta(
            description="Why stragglers are not replaced although onStraggler is Replace.",
            max_length=256,
        ),
    ] = ""
    unfit: Annotated[
        dict[ObjectName, Annotated[str, Meta(max_length=1024)]],
        Meta(
            description="Members whose nodes failed the node check or are broken: the problem by "
            "pod name.",
            max_length=100,
        ),
    ] = {}
    process_restarted: Annotated[
        str,
        Meta(
            description="The last training process that was restarted in its pod, with the "
            "number of such restarts of the pod and the reason.",
            max_length=256,
        ),
    ] = ""
    script: Annotated[
        ScriptEnd | None, Meta(description="Result of the script of the present ScalePlan.")
    ] = None


class ElasticJobStatus(Object, frozen=True):
    """The observed job. Every field is bounded, since the operator reads it back."""

    phase: Annotated[Phase | None, Meta(description="The job's phase.")] = None
    conditions: Annotated[
        list[Condition], Meta(description="Standard conditions.", max_length=64)
    ] = []
    observed_generation: Annotated[
        Generation, Meta(description="Generation of the spec from which this status was computed.")
    ] = 0
    replica_statuses: Annotated[
        dict[RoleName, ReplicaStatus],
        Meta(description="The roles, by name.", max_length=MAX_ROLE_STATUSES),
    ] = {}
    former_roles: Annotated[
        FormerRoles | None,
        Meta(description="Record of removed roles, so that no pod name is used twice."),
    ] = None
    workers: Annotated[
        str,
        Meta(
            description="ready/desired of the elastic role in readable form; empty after the "
            "job's end.",
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
        ObjectName | None, Meta(description="ScalePlan that is being executed.")
    ] = None
    master: Annotated[MasterStatus, Meta(description="The master pod.")] = MasterStatus()
    master_address: Annotated[
        Annotated[str, Meta(max_length=300)] | None,
        Meta(description="host:port of the master's gRPC services."),
    ] = None
    progress: Annotated[Progress | None, Meta(description="Progress of the training.")] = None
    restarts: Annotated[
        Counter,
        Meta(
            description="Counted restarts of all members. A failure that uses up a limit is not "
            "one, as no restart follows it."
        ),
    ] = _shown_zero()
    uncounted_restarts: Annotated[
        Counter, Meta(description="Uncounted restarts of all members.")
    ] = _shown_zero()
    start_time: Annotated[
        Time | None,
        Meta(description="When the operator first handled the job, or the job was last resumed."),
    ] = None
    completion_time: Annotated[Time | None, Meta(description="When the job ended.")] = None
    retries: Annotated[Counter, Meta(description="Number of retries of the job.")] = 0
    retry_time: Annotated[
        Time | None,
        Meta(description="Earliest time of the next attempt, while the phase is Retrying."),
    ] = None
    message: Annotated[Message, Meta(description="Reason of the phase.")] = ""
    last_failure: Annotated[
        str,
        Meta(
            description="The pod that failed last, and how. Its last output is in its event.",
            max_length=512,
        ),
    ] = ""
    failures: Annotated[
        list[Failure],
        Meta(
            description="The pods that failed last, counted or not, newest first.",
            max_length=MAX_FAILURES,
        ),
    ] = []
