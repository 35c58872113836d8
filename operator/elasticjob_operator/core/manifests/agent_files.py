"""Brings the agent's files into a member's pod, by `spec.agent.source`.

An init container copies them, or the pod mounts the agent's image, in which Dockerfile.master has
put the same files. Either way they are at the same path, so nothing else in the pod differs.

The whole image is mounted, not only its folder with the agent: containerd 2.1 ignores a subPath.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_policies import AgentSource
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_operator.core.manifests.security_contexts import NON_ROOT, UNPRIVILEGED

INSTALLED_AGENT = f"{names.AGENT_DIRECTORY}/agent"
"""The folder of the agent in the training container."""
_RESTRICTED = {**NON_ROOT, **UNPRIVILEGED, "runAsUser": 65532, "runAsGroup": 65532}
_VOLUME_LIMIT = "256Mi"
_INSTALL_RESOURCES = {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": _VOLUME_LIMIT}


def agent_program(source: AgentSource) -> str:
    """Return the program of a member's container that starts the agent."""
    return names.AGENT if source == "Image" else f"{INSTALLED_AGENT}/bin/{names.AGENT}"


def mounts_agent(job: ElasticJob, *, managed: bool) -> bool:
    """Return whether pods of a role get a volume with the agent."""
    return managed and job.spec.agent.source != "Image"


def add_agent(pod_spec: Json, job: ElasticJob, default_image: str) -> None:
    """Add the volume with the agent to a pod, and mount it into the first container."""
    image = job.spec.agent.image or default_image
    if job.spec.agent.source == "ImageVolume":
        volume: Json = {"name": names.AGENT, "image": {"reference": image}}
    else:
        volume = {"name": names.AGENT, "emptyDir": {"sizeLimit": _VOLUME_LIMIT}}
        install = _init_container(image, pod_spec["containers"][0].get("resources") or {})
        pod_spec["initContainers"] = [install, *(pod_spec.get("initContainers") or ())]
    mount = {"name": names.AGENT, "mountPath": names.AGENT_DIRECTORY, "readOnly": True}
    first, *others = pod_spec["containers"]
    first = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    pod_spec["containers"] = [first, *others]
    pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]


def _init_container(image: str, resources: Json) -> Json:
    """Return the init container that copies the agent into the pod's volume.

    It requests no more of any resource than the first container. So the pod's quality-of-service
    class, and its share of a node and of a quota, do not change.
    """
    return {
        "name": names.AGENT,
        "image": image,
        "command": [names.AGENT, "install", INSTALLED_AGENT],
        "resources": _install_resources(resources),
        "securityContext": _RESTRICTED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": names.AGENT, "mountPath": names.AGENT_DIRECTORY}],
    }


def _install_resources(resources: Json) -> Json:
    return {
        kind: {
            name: min(amounts[name], sufficient, key=parse_quantity)
            for name, sufficient in _INSTALL_RESOURCES.items()
            if name in amounts
        }
        for kind, amounts in resources.items()
        if kind in ("requests", "limits") and amounts
    }
