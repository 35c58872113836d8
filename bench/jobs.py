"""The objects that measurements create: jobs of small pods that no scheduler handles."""

from __future__ import annotations

from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS, Resource
from elasticjob_operator.core.model.observed import Defaults

DEFAULTS = Defaults(master_image="master:1", agent_image="master:1")
_NO_SCHEDULER = "bench"
"""Name of a scheduler that does not exist: the real one's work on pods that fit nowhere is not
measured.
"""


def job(name: str, workers: int, *, min_replicas: int = 1, **spec: object) -> Json:
    """Return an ElasticJob with this number of workers."""
    container = {
        "name": "train",
        "image": "train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    worker = {
        "replicas": workers,
        "minReplicas": min_replicas,
        "template": {"spec": {"schedulerName": _NO_SCHEDULER, "containers": [container]}},
    }
    spec = {
        "framework": "jax",
        "agent": {"source": "Image"},
        "master": {"template": {"spec": {"schedulerName": _NO_SCHEDULER}}},
        "replicaSpecs": {"worker": worker},
        **spec,
    }
    return manifest(ELASTIC_JOBS, name, spec)


def unmanaged(name: str, workers: int) -> Json:
    """Return an ElasticJob with this number of workers that the operator leaves alone."""
    return job(name, workers, runPolicy={"managedBy": "bench"})


def plan(name: str, job_name: str, workers: int) -> Json:
    """Return a ScalePlan that gives a job this number of workers."""
    resources = {"replicas": workers}
    return manifest(
        SCALE_PLANS, name, {"jobName": job_name, "replicaResourceSpecs": {"worker": resources}}
    )


def manifest(resource: Resource, name: str, spec: object) -> Json:
    """Return an object's manifest."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
