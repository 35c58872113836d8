"""Makes the PodGroup by which a gang scheduler starts the fewest pods of a job together, or none.

Volcano finds a pod's group by an annotation and has queues; coscheduling finds it by a label.
Kubernetes' own scheduler finds it by a field. It holds every later pod, too, until the group has
enough pods that have not ended, so its PodGroup follows what the job needs now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import gang_size
from elasticjob_api.meta import Json
from elasticjob_api.pod_requests import pod_requests, template_requests
from elasticjob_api.pooled_jobs import KUEUE_QUEUE


@dataclass(frozen=True)
class Scheduler:
    """The API of one gang scheduler.

    Attributes:
        api_version: the API version of its PodGroup.
        name: the schedulerName of pods whose template has none.
        remedy: what an administrator does so that the cluster serves PodGroups.
        native: whether it is Kubernetes' own, whose PodGroup has other fields.
        label: the pods' label that names their PodGroup, if a label does.
        annotation: their annotation that names it, if an annotation does.
        queues: whether it has queues, and a priority for the group.
    """

    api_version: str
    name: str
    remedy: str
    native: bool = False
    label: str | None = None
    annotation: str | None = None
    queues: bool = False


SCHEDULERS: Mapping[str, Scheduler] = {
    "volcano": Scheduler(
        api_version="scheduling.volcano.sh/v1beta1",
        name="volcano",
        remedy="install Volcano",
        annotation="scheduling.k8s.io/group-name",
        queues=True,
    ),
    "coscheduling": Scheduler(
        api_version="scheduling.x-k8s.io/v1alpha1",
        name="scheduler-plugins-scheduler",
        remedy="install the scheduler-plugins of Kubernetes SIG Scheduling",
        label="scheduling.x-k8s.io/pod-group",
    ),
    "native": Scheduler(
        api_version="scheduling.k8s.io/v1beta1",
        name="default-scheduler",
        remedy="start API server, scheduler and controller manager of Kubernetes 1.37 or later "
        "with the feature gate GenericWorkload, and the API server with "
        "--runtime-config=scheduling.k8s.io/v1beta1=true",
        native=True,
    ),
}


def scheduling_policy_error(job: ElasticJob) -> str | None:
    """Return the field of the policy that the chosen scheduler does not support.

    None if there is none.
    """
    policy = job.spec.run_policy.scheduling_policy
    scheduler = SCHEDULERS.get(policy.gang)
    if policy.queue and not (scheduler and scheduler.queues):
        return (
            f"spec.runPolicy.schedulingPolicy.queue: {policy.queue!r} is a queue of Volcano, but "
            f"gang is {policy.gang}; set gang to volcano, or unset queue (Kueue's queue is the "
            f"job's label {KUEUE_QUEUE})"
        )
    return _unequal_pods_error(job) if scheduler and scheduler.native else None


def _unequal_pods_error(job: ElasticJob) -> str | None:
    """Return the field by which a pod differs from others so that none of them is scheduled."""
    templates = {
        f"spec.replicaSpecs.{role}.template": spec.template
        for role, spec in job.spec.replica_specs.items()
    } | {"spec.master.template": job.spec.master.template}
    specs = {field: (template or {}).get("spec") or {} for field, template in templates.items()}
    for field, spec in specs.items():
        if spec.get("priorityClassName"):
            return (
                f"{field}.spec.priorityClassName: with schedulingPolicy.gang native all pods have "
                "the priority of their PodGroup; set it as "
                "spec.runPolicy.schedulingPolicy.priorityClassName instead"
            )
    for key in ("schedulerName", "preemptionPolicy"):
        wanted = {field: spec.get(key) for field, spec in specs.items()}
        if len(set(map(str, wanted.values()))) > 1:
            field = next(field for field, value in wanted.items() if value)
            return (
                f"{field}.spec.{key}: with schedulingPolicy.gang native the scheduler takes no "
                f"pod unless all have one {key}; set {wanted[field]!r} in the templates of all "
                "roles and of spec.master, or in none"
            )
    return None


def with_scheduling(job: ElasticJob, pod: Json) -> Json:
    """Return a pod's manifest with the fields, labels and annotations that its schedulers read."""
    policy = job.spec.run_policy.scheduling_policy
    metadata = dict(pod["metadata"])
    spec = dict(pod["spec"])
    if queue := job.metadata.labels.get(KUEUE_QUEUE):
        metadata["labels"] = {KUEUE_QUEUE: queue, **metadata["labels"]}
    if policy.priority_class_name:
        spec["priorityClassName"] = policy.priority_class_name
    if scheduler := SCHEDULERS.get(policy.gang):
        spec.setdefault("schedulerName", scheduler.name)
        if scheduler.native:
            spec["schedulingGroup"] = {"podGroupName": job.metadata.name}
        if scheduler.label:
            metadata["labels"] = {**metadata["labels"], scheduler.label: job.metadata.name}
        if scheduler.annotation:
            metadata["annotations"] = {
                **metadata["annotations"],
                scheduler.annotation: job.metadata.name,
            }
    return {**pod, "metadata": metadata, "spec": spec}


def pod_group_spec(job: ElasticJob) -> Json | None:
    """Return the PodGroup's spec, for the master and the minReplicas of each role.

    None without a gang.
    """
    policy = job.spec.run_policy.scheduling_policy
    scheduler = SCHEDULERS.get(policy.gang)
    if scheduler is None:
        return None
    priority = (
        {"priorityClassName": policy.priority_class_name} if policy.priority_class_name else {}
    )
    if scheduler.native:
        return {"schedulingPolicy": {"gang": {"minCount": gang_size(job)}}, **priority}
    roles = job.spec.replica_specs.values()
    total = pod_requests({"containers": [{"resources": job.spec.master.resources}]})
    for role in roles:
        for name, amount in template_requests(role.template).items():
            total[name] = total.get(name, Decimal(0)) + amount * role.min_replicas
    spec: Json = {
        "minMember": 1 + sum(role.min_replicas for role in roles),
        "minResources": {
            name: format(amount.normalize(), "f") for name, amount in sorted(total.items())
        },
    }
    if scheduler.queues and policy.queue:
        spec["queue"] = policy.queue
    return {**spec, **priority} if scheduler.queues else spec
