"""Lists every impossible request, with the field, value and bound that the answer must name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

RUNNING = "train"
SUSPENDED = "paused"
FINISHED = "done"
"""Jobs that the test prepares. The first has workers 0-3, of which train-worker-1 is leaving, at
least 2 and at most 6, each with two processes and cpu 100m, and together not more than cpu 500m and
four rdma/hca.
"""


@dataclass(frozen=True)
class Bad:
    """One request. A job's is a patch of its spec, or of `subresource` if one is named.

    `what` describes the mistake for people. The answer must contain all `names`: the field, the
    value, the bound.
    """

    what: str
    resource: Resource
    spec: Json
    names: tuple[str, ...]
    subresource: str = field(default="")

    @property
    def id(self) -> str:
        """Return the name of the test."""
        return f"{self.resource.kind}: {self.what}"


def _out(what: str, spec: Json, *named: str, job: str = RUNNING) -> Bad:
    return Bad(what, SCALE_OUTS, {"jobName": job, **spec}, named)


def _in(what: str, spec: Json, *named: str, job: str = RUNNING) -> Bad:
    return Bad(what, SCALE_INS, {"jobName": job, **spec}, named)


def _plan(what: str, spec: Json, *named: str, job: str = RUNNING) -> Bad:
    return Bad(what, SCALE_PLANS, {"jobName": job, **spec}, named)


def _worker(**wish: Any) -> Json:
    return {"replicaResourceSpecs": {"worker": wish}}


def _size(replicas: Any) -> Json:
    return {"replicaSpecs": {"worker": {"replicas": replicas}}}


def _worker_field(**fields: Any) -> Json:
    return {"replicaSpecs": {"worker": fields}}


def _policy(**fields: Any) -> Json:
    return {"runPolicy": fields}


def _edit(what: str, spec: Json, *named: str) -> Bad:
    return Bad(what, ELASTIC_JOBS, spec, named)


CASES = (
    _out("unknown job", {"count": 1}, "spec.jobName", "'nobody'", job="nobody"),
    _out(
        "role the job does not have",
        {"count": 1, "role": "ps"},
        "spec.role",
        "'ps'",
        "it has worker",
    ),
    _out("count is 0", {"count": 0}, "spec.count", "0", "greater than or equal to 1"),
    _out("count is negative", {"count": -2}, "spec.count", "-2", "greater than or equal to 1"),
    _out("count is not a number", {"count": "two"}, "spec.count", '"string"', "integer"),
    _out("count is not whole", {"count": 1.5}, "spec.count", '"float64"', "int64"),
    _out("no count", {}, "spec.count", "Required value"),
    _out("count is far too large", {"count": 100000}, "spec.count", "100000", "10000"),
    _out(
        "above maxReplicas",
        {"count": 3},
        "spec.count",
        "3 more than 4",
        "7 members",
        "above maxReplicas 6",
    ),
    _out(
        "over resourceLimits",
        {"count": 2},
        "spec.autoscaling.resourceLimits.cpu",
        "cpu 0.6",
        "500m",
    ),
    _out(
        "finished job",
        {"count": 1},
        "spec.jobName",
        f"'{FINISHED}'",
        "has ended (Succeeded)",
        job=FINISHED,
    ),
    _out(
        "suspended job",
        {"count": 1},
        "spec.jobName",
        f"'{SUSPENDED}'",
        "is suspended",
        job=SUSPENDED,
    ),
    _out(
        "script that the job does not allow",
        {"count": 1, "script": "true"},
        "spec.script",
        f"'{RUNNING}' has runPolicy.allowScripts false",
        "set it to true",
    ),
    _out(
        "variable of a script without a script",
        {"count": 1, "env": [{"name": "A"}]},
        "spec.env",
        "set script",
    ),
    _in(
        "variable of a script that no shell has",
        {"count": 1, "script": "true", "env": [{"name": "A-B"}]},
        "spec.env[0].name",
        "A-B",
    ),
    _in("unknown job", {"count": 1}, "spec.jobName", "'nobody'", job="nobody"),
    _in(
        "role the job does not have",
        {"count": 1, "role": "ps"},
        "spec.role",
        "'ps'",
        "it has worker",
    ),
    _in("count is 0", {"count": 0}, "spec.count", "0", "greater than or equal to 1"),
    _in("count is negative", {"count": -2}, "spec.count", "-2", "greater than or equal to 1"),
    _in("count is not a number", {"count": "two"}, "spec.count", '"string"', "integer"),
    _in(
        "both count and podNames",
        {"count": 1, "podNames": ["train-worker-3"]},
        "give either count or podNames",
    ),
    _in("neither count nor podNames", {}, "give either count or podNames"),
    _in("podNames is empty", {"podNames": []}, "give either count or podNames"),
    _in("empty pod name", {"podNames": [""]}, "spec.podNames[0]", "at least 1 chars"),
    _in(
        "unknown pod",
        {"podNames": ["train-worker-9"]},
        "spec.podNames[0]",
        "'train-worker-9'",
        f"'{RUNNING}'",
    ),
    _in(
        "foreign pod", {"podNames": ["stranger"]}, "spec.podNames[0]", "'stranger'", f"'{RUNNING}'"
    ),
    _in(
        "pod of another job",
        {"podNames": ["done-worker-0"]},
        "spec.podNames[0]",
        "'done-worker-0'",
        f"'{RUNNING}'",
    ),
    _in("the master", {"podNames": ["train-master"]}, "spec.podNames[0]", "'train-master'"),
    _in(
        "pod that is leaving",
        {"podNames": ["train-worker-1"]},
        "spec.podNames[0]",
        "'train-worker-1'",
        "leaving",
    ),
    _in(
        "duplicate pod name",
        {"podNames": ["train-worker-3"] * 2},
        "spec.podNames[1]",
        "Duplicate",
        "train-worker-3",
    ),
    _in(
        "one good and one unknown pod",
        {"podNames": ["train-worker-3", "nobody"]},
        "spec.podNames[1]",
        "'nobody'",
    ),
    _in(
        "below minReplicas",
        {"count": 3},
        "spec.count",
        "3 fewer than 4",
        "1 members",
        "below minReplicas 2",
    ),
    _in("more than there are", {"count": 5}, "spec.count", "5 fewer than 4", "below minReplicas 2"),
    _in(
        "below minReplicas by pod names",
        {"podNames": ["train-worker-0", "train-worker-2", "train-worker-3"]},
        "spec.podNames",
        "3 fewer than 4",
        "below minReplicas 2",
    ),
    _in(
        "finished job",
        {"count": 1},
        "spec.jobName",
        f"'{FINISHED}'",
        "has ended (Succeeded)",
        job=FINISHED,
    ),
    _in(
        "suspended job",
        {"count": 1},
        "spec.jobName",
        f"'{SUSPENDED}'",
        "is suspended",
        job=SUSPENDED,
    ),
    _plan("unknown job", _worker(replicas=3), "spec.jobName", "'nobody'", job="nobody"),
    _plan(
        "role the job does not have",
        {"replicaResourceSpecs": {"ps": {"replicas": 1}}},
        "spec.replicaResourceSpecs.ps",
        "it has worker",
    ),
    _plan(
        "script of a plan that sets a size",
        {**_worker(replicas=3), "script": "true"},
        "spec.script",
        "either createPods or removePods",
    ),
    _plan("nothing to do", {}, "nothing to do"),
    _plan(
        "nothing to do for a role", _worker(), "spec.replicaResourceSpecs[worker]", "nothing to do"
    ),
    _plan(
        "replicas is negative",
        _worker(replicas=-1),
        "worker.replicas",
        "-1",
        "greater than or equal to 0",
    ),
    _plan(
        "replicas is not a number",
        _worker(replicas="all"),
        "worker.replicas",
        '"string"',
        "integer",
    ),
    _plan(
        "below minReplicas",
        _worker(replicas=1),
        "worker.replicas",
        "1 members",
        "below minReplicas 2",
    ),
    _plan(
        "above maxReplicas",
        _worker(replicas=7),
        "worker.replicas",
        "7 members",
        "above maxReplicas 6",
    ),
    _plan(
        "over resourceLimits by count", _worker(replicas=6), "resourceLimits.cpu", "cpu 0.6", "500m"
    ),
    _plan(
        "over resourceLimits by size",
        _worker(resource={"cpu": "200m"}),
        "resourceLimits.cpu",
        "cpu 0.8",
        "500m",
    ),
    _plan("malformed quantity", _worker(resource={"cpu": "12x"}), "worker.resource.cpu", "12x"),
    _plan(
        "negative quantity", _worker(resource={"memory": "-1Gi"}), "worker.resource.memory", "-1Gi"
    ),
    _plan(
        "quantity is 0", _worker(resource={"cpu": 0}), "worker.resource.cpu", "0 must be above 0"
    ),
    _plan(
        "GPUs that the processes cannot divide",
        _worker(resource={"nvidia.com/gpu": 3}),
        "worker.resource.nvidia.com/gpu",
        "3 cannot be divided by slotsPerReplica",
        "2",
    ),
    _plan(
        "a resource that Kubernetes does not know",
        _worker(resource={"npu": 2}),
        "worker.resource",
        "'npu' is not cpu, memory or an extended resource",
        "63 characters",
    ),
    _plan(
        "a part of an extended resource",
        _worker(resource={"rdma/hca": "500m"}),
        "worker.resource.rdma/hca",
        "500m must be a whole number",
    ),
    _plan(
        "over resourceLimits of an extended resource",
        _worker(resource={"rdma/hca": 2}),
        "rdma/hca 8",
        "limit 4",
    ),
    _plan(
        "createPods: unknown role",
        {"createPods": [{"role": "ps"}]},
        "spec.createPods[0].role",
        "'ps'",
        "worker",
    ),
    _plan(
        "createPods: index in use",
        {"createPods": [{"index": 2}]},
        "spec.createPods[0].index",
        "2 is a member",
    ),
    _plan(
        "createPods: index twice",
        {"createPods": [{"index": 7}] * 2},
        "spec.createPods[1].index",
        "7",
        "twice",
    ),
    _plan(
        "createPods: above maxReplicas",
        {"createPods": [{}] * 3},
        "spec.createPods",
        "7",
        "maxReplicas 6",
    ),
    _plan(
        "createPods: more than replicas",
        {"createPods": [{}] * 3, **_worker(replicas=2)},
        "spec.replicaResourceSpecs.worker.replicas",
        "2 is below the 3 members",
    ),
    _plan(
        "removePods: unknown pod",
        {"removePods": [{"name": "nobody"}]},
        "spec.removePods[0].name",
        "'nobody'",
    ),
    _plan(
        "removePods: foreign pod",
        {"removePods": [{"name": "stranger"}]},
        "spec.removePods[0].name",
        "'stranger'",
    ),
    _plan(
        "removePods: leaving",
        {"removePods": [{"name": "train-worker-1"}]},
        "spec.removePods[0].name",
        "leaving",
    ),
    _plan(
        "removePods: twice",
        {"removePods": [{"name": "train-worker-3"}] * 2},
        "spec.removePods[1]",
        "twice",
    ),
    _plan(
        "removePods: no such index",
        {"removePods": [{"role": "worker", "index": 9}]},
        "spec.removePods[0].index",
        "9 is not a member",
    ),
    _plan(
        "removePods: name and index",
        {"removePods": [{"name": "train-worker-3", "role": "worker", "index": 3}]},
        "spec.removePods[0]",
        "give either name, or role and index",
    ),
    _plan(
        "removePods: below minReplicas",
        {"removePods": [{"role": "worker", "index": index} for index in (0, 2, 3)]},
        "spec.removePods",
        "1 members",
        "below minReplicas 2",
    ),
    _plan(
        "migratePods: unknown pod",
        {"migratePods": [{"name": "nobody"}]},
        "spec.migratePods[0].name",
        "'nobody'",
    ),
    _plan(
        "migratePods: leaving",
        {"migratePods": [{"name": "train-worker-1"}]},
        "spec.migratePods[0].name",
        "leaving",
    ),
    _plan(
        "migratePods: twice",
        {"migratePods": [{"name": "train-worker-3"}] * 2},
        "spec.migratePods[1]",
        "twice",
    ),
    _plan(
        "finished job",
        _worker(replicas=3),
        "spec.jobName",
        f"'{FINISHED}'",
        "has ended",
        job=FINISHED,
    ),
    _plan(
        "suspended job",
        _worker(replicas=3),
        "spec.jobName",
        f"'{SUSPENDED}'",
        "is suspended",
        job=SUSPENDED,
    ),
    Bad(
        "replicas below minReplicas",
        ELASTIC_JOBS,
        _size(1),
        ("worker].replicas", "is 1", "minReplicas, which is 2"),
    ),
    Bad(
        "replicas above maxReplicas",
        ELASTIC_JOBS,
        _size(7),
        ("worker].replicas", "is 7", "maxReplicas, which is 6"),
    ),
    Bad(
        "replicas is negative",
        ELASTIC_JOBS,
        _size(-1),
        ("worker.replicas", "-1", "greater than or equal to 0"),
    ),
    Bad(
        "replicas is not a number",
        ELASTIC_JOBS,
        _size("all"),
        ("worker.replicas", "string", "integer"),
    ),
    Bad(
        "replicas over resourceLimits",
        ELASTIC_JOBS,
        _size(6),
        ("resourceLimits.cpu", "cpu 0.6", "500m"),
    ),
    Bad(
        "kubectl scale below minReplicas",
        ELASTIC_JOBS,
        {"replicas": 1},
        ("is 1", "which is 2"),
        "scale",
    ),
    Bad(
        "kubectl scale above maxReplicas",
        ELASTIC_JOBS,
        {"replicas": 7},
        ("is 7", "which is 6"),
        "scale",
    ),
    Bad(
        "kubectl scale to a negative size",
        ELASTIC_JOBS,
        {"replicas": -1},
        ("replicas", "-1"),
        "scale",
    ),
    Bad(
        "malformed quantity",
        ELASTIC_JOBS,
        {"autoscaling": {"resourceLimits": {"cpu": "12x"}}},
        ("spec.autoscaling.resourceLimits.cpu", "12x"),
    ),
    _edit("topologyKey is a list", {"topologyKey": ["rack"]}, "spec.topologyKey", "type string"),
    _edit(
        "dependsOn of an existing job",
        _worker_field(dependsOn=["ps"]),
        "dependsOn is immutable",
    ),
    _edit(
        "volumeClaimTemplates of an existing job",
        _worker_field(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}]),
        "volumeClaimTemplates is immutable",
    ),
    _edit(
        "other retention of volume claims",
        _worker_field(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain"}),
        "persistentVolumeClaimRetentionPolicy is immutable",
    ),
    _edit(
        "restartOnSuccess with an agent", _worker_field(restartOnSuccess=True), "needs agent: None"
    ),
    _edit(
        "restart rule with delays that exclude each other",
        _worker_field(
            restartRules=[{"action": "Ignore", "minDelaySeconds": 9, "maxDelaySeconds": 3}]
        ),
        "restartRules[0].maxDelaySeconds",
        "is 3, below minDelaySeconds, which is 9",
    ),
    _edit(
        "restart rule with a delay that is far too long",
        _worker_field(restartRules=[{"action": "Ignore", "minDelaySeconds": 90000}]),
        "restartRules[0].minDelaySeconds",
        "90000",
        "less than or equal to 3600",
    ),
    _edit(
        "restart rule with an unknown action",
        _worker_field(restartRules=[{"action": "Retry"}]),
        "restartRules[0].action",
        '"Retry"',
        '"FailJob"',
    ),
    _edit(
        "replaceOnNodeConditions: unknown status",
        _policy(replaceOnNodeConditions=[{"type": "GPUUnhealthy", "status": "Bad"}]),
        "replaceOnNodeConditions[0].status",
        '"Bad"',
        '"Unknown"',
    ),
    _edit(
        "replaceOnNodeConditions: far too long",
        _policy(replaceOnNodeConditions=[{"type": "GPUUnhealthy", "seconds": 90000}]),
        "replaceOnNodeConditions[0].seconds",
        "90000",
        "less than or equal to 3600",
    ),
    _edit(
        "allowScripts is not a boolean",
        _policy(allowScripts="all"),
        "spec.runPolicy.allowScripts",
        "boolean",
    ),
    _edit("stop is not a boolean", _policy(stop="now"), "spec.runPolicy.stop", "boolean"),
)
