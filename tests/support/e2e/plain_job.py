"""Defines a job of containers without this project: a shell or one program, and a variable that
breaks loaders.
"""

from __future__ import annotations

from elasticjob_api import names

from tests.support.e2e.scaling_jobs import Json

_RESOURCES = {"cpu": "200m", "memory": "128Mi"}


def plain_job(image: str, command: list[str], **spec: object) -> Json:
    """Return a job without any setting of the agent that begins with two workers, however late
    one of them is.
    """
    container = {
        "name": "train",
        "image": image,
        "command": command,
        "env": [{"name": "LD_PRELOAD", "value": "/not/there.so"}, {"name": "MINE", "value": "1"}],
        "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
    }
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 2, "drainSeconds": 5}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": "plain"},
        "spec": {
            "framework": "custom",
            "runPolicy": {"cleanPodPolicy": "None", "startPolicy": "AllReady"},
            "replicaSpecs": {
                "worker": {**worker, "template": {"spec": {"containers": [container], **spec}}}
            },
        },
    }
