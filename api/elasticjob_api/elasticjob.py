"""The ElasticJob resource. `crds/elasticjobs.yaml` is generated from here.

The types of its fields are in `replica_spec`, `job_policies`, `health` and `job_status`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.health import Health
from elasticjob_api.job_policies import (
    MAX_INT32,
    Agent,
    Autoscaling,
    MasterSpec,
    NodeConditionMatch,
    Retry,
    RunPolicy,
)
from elasticjob_api.job_status import (
    MAX_DOMAINS,
    MAX_FAILURES,
    BackOff,
    ElasticJobStatus,
    Failure,
    FormerRoles,
    Indices,
    MasterStatus,
    Phase,
    Progress,
    QuantitiesByIndex,
    ReplicaStatus,
)
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Column, Object, ObjectMeta, Rule
from elasticjob_api.replica_spec import (
    DEFAULT_MAX_MEMORY_FACTOR,
    MAX_REPLICAS,
    MAX_RESTART_DELAY_SECONDS,
    Completion,
    Count,
    FailureAction,
    ReplicaSpec,
    RestartRule,
    RoleName,
    Seconds,
    size_expression,
)

__all__ = [
    "DEFAULT_MAX_MEMORY_FACTOR",
    "MAX_DOMAINS",
    "MAX_FAILURES",
    "MAX_INT32",
    "MAX_REPLICAS",
    "MAX_RESTART_DELAY_SECONDS",
    "BackOff",
    "Completion",
    "Count",
    "ElasticJob",
    "ElasticJobSpec",
    "ElasticJobStatus",
    "Failure",
    "FailureAction",
    "FormerRoles",
    "Indices",
    "MasterStatus",
    "NodeConditionMatch",
    "Phase",
    "Progress",
    "QuantitiesByIndex",
    "ReplicaSpec",
    "ReplicaStatus",
    "RestartRule",
    "Retry",
    "RunPolicy",
    "Seconds",
]
Framework = Literal["horovod", "pytorch", "tensorflow", "mxnet", "jax", "custom"]
LabelKey = Annotated[
    str,
    Meta(
        max_length=317,
        pattern="^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    ),
]
"""The key of a label: a name of at most 63 characters, after a DNS domain and a slash or not."""


_SCALED = "self.replicaSpecs[self.autoscaling.role]"
_REMOVED_ROLES = "oldSelf.replicaSpecs.filter(r, !(r in self.replicaSpecs))"


def _role(name: str) -> str:
    return f"self.replicaSpecs['{name}']"


def _multiple_rule(count: str, *, unless: str) -> Rule:
    value = size_expression(_SCALED) if count == "replicas" else f"{_SCALED}.{count}"
    return Rule(
        f"!(self.autoscaling.role in self.replicaSpecs) || !has({_SCALED}.template) || ({unless}) "
        f"|| {value} % self.autoscaling.multipleOf == 0",
        f"{count} of %s is %d, which is not a multiple of autoscaling.multipleOf, which is %d",
        field=".replicaSpecs",
        values=("self.autoscaling.role", value, "self.autoscaling.multipleOf"),
        optional_old_self="oldSelf" in unless,
    )


class ElasticJobSpec(Object, frozen=True):
    """The desired job."""

    framework: Annotated[
        Framework,
        Meta(
            description="The framework, which determines roles, ports and environment of the "
            "members."
        ),
    ]
    replica_specs: Annotated[
        dict[RoleName, ReplicaSpec],
        Meta(description="The roles, by name.", min_length=1, max_length=MAX_ROLES),
    ]
    topology_key: Annotated[
        LabelKey | None,
        Meta(
            description="A label of nodes, such as topology.kubernetes.io/zone or one for your "
            "racks. Members on nodes with the same value get adjacent ranks. Unset: only members "
            "on the same node do."
        ),
    ] = None
    agent: Annotated[
        Agent, Meta(description="How the agent gets into the pods, and starts processes.")
    ] = Agent()
    master: Annotated[MasterSpec, Meta(description="The master pod.")] = MasterSpec()
    autoscaling: Annotated[Autoscaling, Meta(description="Automatic scaling.")] = Autoscaling()
    health: Annotated[
        Health,
        Meta(
            description="When members and their training count as unhealthy, and what happens then."
        ),
    ] = Health()
    run_policy: Annotated[
        RunPolicy, Meta(description="When the job starts, stops, ends and is retried.")
    ] = RunPolicy()

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.framework == oldSelf.framework", "framework is immutable", field=".framework"),
        Rule(
            "self.framework != 'horovod' || ('launcher' in self.replicaSpecs) == ('launcher' in "
            "oldSelf.replicaSpecs)",
            "role launcher can be neither added nor removed, as it decides how Horovod's worlds "
            "are formed; "
            "create a new job",
            field=".replicaSpecs",
        ),
        Rule(
            "oldSelf.replicaSpecs.all(r, r in self.replicaSpecs || "
            "!self.replicaSpecs.exists(o, has(self.replicaSpecs[o].dependsOn) && "
            "r in self.replicaSpecs[o].dependsOn))",
            "%s cannot be removed, as dependsOn of %s names it; remove these roles as well, or "
            "keep it",
            field=".replicaSpecs",
            values=(
                _REMOVED_ROLES,
                "self.replicaSpecs.filter(o, has(self.replicaSpecs[o].dependsOn) && "
                "self.replicaSpecs[o].dependsOn.exists(r, !(r in self.replicaSpecs)))",
            ),
        ),
        Rule(
            "self.replicaSpecs.all(r, r.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && r != 'master' "
            "&& r.size() <= 20)",
            "a role's name is at most 20 lower-case letters, digits and dashes, and not master",
            field=".replicaSpecs",
        ),
        Rule(
            "self.replicaSpecs.all(r, !r.matches('-[0-9]+$'))",
            "a role's name does not end in a dash and a number: its pods could have the names of "
            "another role's",
            field=".replicaSpecs",
        ),
        Rule(
            f"'{names.ROLE_WORKER}' in oldSelf.replicaSpecs || "
            f"!('{names.ROLE_WORKER}' in self.replicaSpecs) || "
            f"has({_role(names.ROLE_WORKER)}.template)",
            f"the job has no role {names.ROLE_WORKER}, the one that kubectl scale and HPAs change; "
            "change %s by elasticjob scale --role, a ScaleOut, ScaleIn or ScalePlan",
            field=".replicaSpecs",
            values=("oldSelf.replicaSpecs.map(r, r)",),
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
            "autoscaling.objective.prices has %s, which is not one of replicaSpecs; its keys are "
            "roles of the job",
            field=".autoscaling.objective",
            values=(
                "self.autoscaling.objective.prices.filter(role, !(role in self.replicaSpecs))",
            ),
        ),
        # Later sizes need not be multiples: a plan of any size is written back to replicas.
        _multiple_rule(
            "replicas",
            unless="oldSelf.hasValue() && oldSelf.value().autoscaling.role == "
            "self.autoscaling.role && "
            "oldSelf.value().autoscaling.multipleOf == self.autoscaling.multipleOf",
        ),
        # The default of minReplicas, 1, is always allowed.
        _multiple_rule("minReplicas", unless=f"{_SCALED}.minReplicas == 1"),
        _multiple_rule("maxReplicas", unless=f"!has({_SCALED}.maxReplicas)"),
        *(
            Rule(
                f"self.framework != '{framework}' || "
                f"self.replicaSpecs.all(r, r in {list(roles)} || self.replicaSpecs[r].agent == "
                "'None')",
                f"framework {framework} has no role %s; its roles are {', '.join(roles)}; "
                "a role that does not train has agent: None",
                field=".replicaSpecs",
                values=(
                    f"self.replicaSpecs.filter(r, !(r in {list(roles)}) && "
                    "self.replicaSpecs[r].agent != 'None')",
                ),
            )
            for framework, roles in ((name, f.roles) for name, f in FRAMEWORKS.items() if f.roles)
        ),
        *(
            Rule(
                f"self.framework != '{name}' || "
                f"{list(group)}.exists(r, r in self.replicaSpecs && self.replicaSpecs[r].agent != "
                "'None')",
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
                f"self.replicaSpecs['{role}'].agent == 'None' || "
                f"{size_expression(_role(role))} <= 1",
                f"framework {name} has one {role}; replicas is %s",
                field=".replicaSpecs",
                values=(size_expression(_role(role)),),
            )
            for name, framework in FRAMEWORKS.items()
            for role in framework.single_roles
        ),
        Rule(
            "self.framework in ['custom', 'jax', 'pytorch'] || self.replicaSpecs.all(r, "
            "!has(self.replicaSpecs[r].onWorldChange) || self.replicaSpecs[r].onWorldChange != "
            "'Notify')",
            "onWorldChange is Notify in role %s, which needs framework custom, jax or pytorch: "
            "processes of framework %s read "
            "their world once, at their start; use Restart or Keep",
            field=".replicaSpecs",
            values=(
                "self.replicaSpecs.filter(r, has(self.replicaSpecs[r].onWorldChange) && "
                "self.replicaSpecs[r].onWorldChange == 'Notify')",
                "self.framework",
            ),
        ),
    )


class ElasticJob(Object, frozen=True):
    """An elastic deep-learning job."""

    metadata: ObjectMeta
    spec: Annotated[ElasticJobSpec, Meta(description="The desired job.")]
    status: Annotated[ElasticJobStatus, Meta(description="The observed job.")] = ElasticJobStatus()

    @property
    def profile(self) -> str | None:
        """The name under which the needs of such jobs are stored; None without autoscaling."""
        autoscaling = self.spec.autoscaling
        if not autoscaling.enabled:
            return None
        return autoscaling.profile or self.metadata.name

    @property
    def created_by(self) -> str:
        """The user who has created it; empty if no policy records that."""
        return self.metadata.annotations.get(names.ANNOTATION_CREATED_BY, "")

    RULES: ClassVar[tuple[Rule, ...]] = (
        # Only a rule here sees the name. It holds for new objects only: one that refused an update
        # would also keep the finalizers of a stored object.
        Rule(
            "oldSelf.hasValue() || self.metadata.name.size() <= 40 && "
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name is at most 40 lower-case letters, digits and dashes, and starts with a "
            "letter: "
            "it becomes part of host names",
            field=".metadata.name",
            optional_old_self=True,
        ),
    )
    # To GitOps tools, an object without conditions is ready.
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
        Column("ETA", ".status.progress.eta", description="remaining time"),
        Column(
            "Restarts", ".status.restarts", "integer", description="counted restarts of members"
        ),
        Column("Plan", ".status.currentPlan", priority=1),
        Column("Message", ".status.message", priority=1),
        Column("Last Failure", ".status.lastFailure", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )
