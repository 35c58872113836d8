"""The objects that are measured with: small pods that no scheduler looks at."""

from __future__ import annotations

from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS, Resource
from elasticjob_kube.session import Json

_NOBODY = "bench"
"""Name of a scheduler that does not exist: what the real one does with pods that fit nowhere is not measured."""


def job(name: str, workers: int, *, least: int = 1, **spec: object) -> Json:
    """Return an ElasticJob with so many workers."""
    container = {
        "name": "train",
        "image": "train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    worker = {
        "replicas": workers,
        "minReplicas": least,
        "template": {"spec": {"schedulerName": _NOBODY, "containers": [container]}},
    }
    spec = {
        "framework": "jax",
        "agent": {"source": "Image"},
        "master": {"template": {"spec": {"schedulerName": _NOBODY}}},
        "replicaSpecs": {"worker": worker},
        **spec,
    }
    return made(ELASTIC_JOBS, name, spec)


def plan(name: str, job_name: str, workers: int) -> Json:
    """Return a ScalePlan that gives a job so many workers."""
    wish = {"replicas": workers}
    return made(SCALE_PLANS, name, {"jobName": job_name, "replicaResourceSpecs": {"worker": wish}})


def made(resource: Resource, name: str, spec: object) -> Json:
    """Return an object."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
