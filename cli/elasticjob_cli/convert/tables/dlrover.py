"""The fields of DLRover's ElasticJob and ScalePlan, its annotations and options. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Row, Table, changed, kept, lost

_MASTER_OPTION = "an option of DLRover's master; here nothing reads it"
_ROLE = "replicaSpecs.<role>"
_THEIRS = "spec.replicaSpecs.<name>"
_OWN = "is an option of DLRover alone"
_ANNOTATIONS = (
    "dashboard_port", "enable_dashboard", "pending_fail_strategy", "pending_timeout",
    "pre_check_bypass", "pre_check_ops", "service_type", "training_elastic_mode",
)  # fmt: skip
_MASTERS_OWN = (
    "dashboard-port", "dynamic-failover-extension", "enable-dashboard", "group-affinity",
    "hang-detection", "hang-downtime", "max-hang-downtime", "pending-fail-strategy",
    "pending-timeout", "pre-check-ops", "service-type", "task-process-timeout",
    "training-elastic-mode", "xpu-type",
)  # fmt: skip

ELASTIC_JOB: Table = (
    changed(
        "spec.distributionStrategy",
        "framework",
        "`ParameterServerStrategy` (default) is `tensorflow`, `AllreduceStrategy` is `pytorch`, "
        "`CustomStrategy` is `custom`. Roles that the framework does not know make it `custom`; "
        "the framework's environment is lost",
    ),
    changed(
        "spec.optimizeMode",
        "autoscaling.enabled",
        "`single-job`, `cluster`: true; the program reports samples: "
        "[autoscaling.md](../autoscaling.md). `manual`: off",
    ),
    changed(
        "spec.resourceLimits",
        "autoscaling.resourceLimits",
        "`cpu`, `memory`, `gpu`, extended resources of plans; `gpu` is `nvidia.com/gpu`; a key "
        "that is no resource of Kubernetes, such as `npu`, is lost",
    ),
    lost(
        "spec.brainService",
        "there is no service besides the job's own master, which searches the best size itself",
    ),
    changed("spec.envs", f"{_ROLE}.template", "`env` of each container; nothing reads it there"),
    kept("spec.suspend", "runPolicy.suspend"),
    changed(
        f"{_THEIRS}.replicas", f"{_ROLE}.replicas", "none or 0: there the master chooses, here 1"
    ),
    changed(
        f"{_THEIRS}.restartCount",
        f"{_ROLE}.restartLimit",
        "3 by default; deletions and evictions of pods do not count",
    ),
    kept(f"{_THEIRS}.autoScale", f"{_ROLE}.autoScale"),
    changed(
        f"{_THEIRS}.priority",
        f"{_ROLE}.template.spec.priorityClassName",
        "`high`, `low`: the cluster needs priority classes of these names. A part such as `0.5` "
        "is lost: all members of a role have one class",
    ),
    changed(
        f"{_THEIRS}.restartTimeout",
        "health.onStall, health.stallSeconds",
        "of `worker`: DLRover restarts a worker that takes longer for a shard. Here all training "
        "processes restart from their checkpoint if no member has finished a step for this time: "
        "[health.md](../health.md#stalled). Of other roles nothing reads it there",
    ),
    changed(f"{_THEIRS}.restartPolicy", "", "it has no effect there"),
    lost(
        f"{_THEIRS}.BatchScheduler",
        "the scheduler is the job's: set runPolicy.schedulingPolicy for a gang",
    ),
    kept(f"{_THEIRS}.template", f"{_ROLE}.template"),
    *(lost(f"metadata.annotations.{name}", _MASTER_OPTION) for name in _ANNOTATIONS),
)
"""The role `dlrover-master` is none: what becomes of its template is in docs/migrate/dlrover.md."""

DLROVER_RUN: Table = (
    changed("--network-check", "health.nodeCheck", "two rounds of pairs, without collectives"),
    changed(
        "--precheck VALUE", "health.nodeCheck", "1 and 2; two rounds of pairs, without collectives"
    ),
    changed("--node-unit VALUE", "autoscaling.multipleOf"),
    *(
        lost(f"--{name}", _OWN)
        for name in (
            "accelerator VALUE", "auto-config", "auto-tunning", "comm-perf-test",
            "exclude-straggler", "membind-policy VALUE", "numa-affinity", "save-at-breakpoint",
            "relaunch-on-worker-failure VALUE", "training-port VALUE", "ucp-device-type VALUE",
        )
    ),
)  # fmt: skip
MASTER: Table = (
    *(
        changed(f"--{name} VALUE", "", "known to the job's own master")
        for name in ("job-name", "namespace", "node-num", "platform", "port")
    ),
    *(lost(f"--{name} VALUE", _MASTER_OPTION) for name in _MASTERS_OWN),
)


def _named(field: str) -> tuple[Row, ...]:
    """Return the rows of a list of pods that exist."""
    why = (
        "by `rankIndex`, else `id`, else the number in the name `<job>-edljob-<type>-<number>` or "
        "`<job>-<type>-<number>`"
    )
    where = f"spec.{field}[]"
    return (
        changed(f"{where}.name", f"{field}[].role, {field}[].index", why),
        changed(f"{where}.type", f"{field}[].role"),
        changed(f"{where}.rankIndex", f"{field}[].index", why),
        changed(f"{where}.id", f"{field}[].index", why),
        changed(f"{where}.service", "", "not needed: role and index name the pod"),
    )


_RESOURCE = "resources as in `resourceLimits` of a job"
_CREATE = "spec.createPods[]"
SCALE_PLAN: Table = (
    changed("spec.ownerJob", "jobName", "a valid name"),
    changed(
        "spec.replicaResourceSpecs.<name>.replicas",
        "replicaResourceSpecs.<role>.replicas",
        "within `minReplicas` and `maxReplicas`",
    ),
    changed(
        "spec.replicaResourceSpecs.<name>.resource",
        "replicaResourceSpecs.<role>.resource",
        f"{_RESOURCE}. An amount beside another one for a pod in `createPods` or `migratePods` "
        "holds there for pods that come later, here for every member: it is left out, and lost "
        "where the role has other members",
    ),
    changed(f"{_CREATE}.type", "createPods[].role"),
    changed(f"{_CREATE}.rankIndex", "createPods[].index"),
    changed(
        f"{_CREATE}.id", "createPods[].index", "if there is no `rankIndex`, else it is left out"
    ),
    changed(f"{_CREATE}.name", "", "left out: a pod is named by role and index"),
    changed(f"{_CREATE}.service", "", "left out: the member's host name is `<role>-<index>.<job>`"),
    changed(f"{_CREATE}.resource", "createPods[].resource", _RESOURCE),
    *_named("removePods"),
    changed("spec.removePods[].resource", "", "not needed: the pod goes"),
    *_named("migratePods"),
    changed("spec.migratePods[].resource", "migratePods[].resource", _RESOURCE),
    changed(
        "spec.psHosts",
        "",
        "left out if these are the job's own servers: each world gives its members these "
        "addresses, by index. Other addresses are lost",
    ),
)
