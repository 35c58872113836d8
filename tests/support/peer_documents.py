"""Makes documents of the peers that set one field, and reads the lists of the peers' fields."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LISTS = Path(__file__).parents[1] / "unit" / "cli" / "convert" / "peers"
MARK = "image:marked"
_CONTAINER = {"name": "main", "image": "image:1", "command": ["python", "train.py"]}
_HOROVOD = ["horovodrun", "--host-discovery-script", "/etc/edl/discover_hosts.sh", "./train.py"]
_GROUPS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "Worker"),
    "TFJob": ("tfReplicaSpecs", "Worker"),
    "JAXJob": ("jaxReplicaSpecs", "Worker"),
}
VALUES: dict[str, Any] = {
    # by the name of the field
    "replicas": 3, "minReplicas": 2, "maxReplicas": 3, "restartPolicy": "Never",
    "slotsPerWorker": 2, "backoffLimit": 4, "cleanPodPolicy": "All", "launcherAttachMode": "ssh",
    "count": 2, "podNames": ["job-worker-1"], "timeout": 60, "script": "/x.sh", "suspend": True,
    "env": [{"name": "A", "value": MARK}], "resourceLimits": {"cpu": "8"}, "autoScale": False,
    "envs": {"A": {"name": "A", "value": MARK}}, "restartCount": 5, "priority": "high",
    "optimizeMode": "cluster", "distributionStrategy": "AllreduceStrategy", "restartTimeout": 60,
    "rankIndex": 1, "id": 1, "type": "worker", "resource": {"cpu": "3"},
    "removePods[].name": "job-edljob-worker-1", "migratePods[].name": "job-worker-1",
    "psHosts": ["job-edljob-ps-0"], "ownerJob": "job", "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 60, "minAvailable": 2, "minResources": {"cpu": "1"},
    "scheduleTimeoutSeconds": 5, "launcherCreationPolicy": "AtStartup", "mpiImplementation":
    "Intel", "runLauncherAsWorker": True, "nprocPerNode": "2", "nProcPerNode": 2, "maxRestarts": 4,
    "metrics": [{"type": "Resource"}], "rdzvPort": 80, "rdzvConf": [{"key": "a", "value": "b"}],
    "standalone": True, "numNodes": 2, "numProcPerNode": 2, "image": MARK, "args": [MARK],
    "command": [MARK], "resourcesPerNode": {"limits": {"example.com/image:marked": 1}},
    "initializer": {"model": {"storageUri": "hf://x"}}, "runtimePatches": [{"manager": "a"}],
    "executionType": "Stop", "fancyRetryPolicy": True, "maxRetryCount": 3, "taskNumber": 2,
    "minFailedTaskCount": 2, "minSucceededTaskCount": 2, "podGracefulDeletionTimeoutSec": 60,
    "runtimeRef.name": "jax-distributed", "enableDynamicWorker": True, "successPolicy":
    "AllWorkers", "replicaType": "worker",
}  # fmt: skip


def template(image: str = "image:1", command: list[str] | None = None) -> dict[str, Any]:
    """Return a pod template."""
    container = _CONTAINER | {"image": image} | ({"command": command} if command else {})
    return {"spec": {"containers": [container]}}


def peer_lists() -> Iterator[tuple[str, list[str]]]:
    """Yield title and names of each list of the peers' fields."""
    for path in sorted(LISTS.glob("*.txt")):
        for part in path.read_text().split("\n\n"):
            head, *names = part.strip().split("\n")
            yield head.removeprefix("# ").partition(": ")[0], names


def minimal(version: str, kind: str) -> Any:
    """Return a valid document of a kind with few fields."""
    spec: Any = {}
    group = {"replicas": 2, "template": template()}
    if kind in _GROUPS:
        field, role = _GROUPS[kind]
        spec = {field: {role: group}}
    elif kind == "MPIJob":
        launcher = {"template": template(command=["mpirun", "./pi"])}
        spec = {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": group}}
    elif kind == "TrainingJob":
        launcher = {"template": template(command=_HOROVOD)}
        worker = template()
        del worker["spec"]["containers"][0]["command"]  # waits for the launcher
        workers = {"replicas": 2, "template": worker}
        spec = {"etReplicaSpecs": {"launcher": launcher, "worker": workers}}
    elif kind == "ScaleIn":
        spec = {"selector": {"name": "job"}, "toDelete": {"count": 1}}
    elif kind == "ScaleOut":
        spec = {"selector": {"name": "job"}, "toAdd": {"count": 1}}
    elif kind == "ElasticJob":
        spec = {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": {"worker": group}}
    elif kind == "ScalePlan":
        spec = {"ownerJob": "job", "replicaResourceSpecs": {"worker": {"replicas": 2}}}
    elif kind == "Framework":
        task = {"pod": template()}
        spec = {"taskRoles": [{"name": "worker", "taskNumber": 1, "task": task}]}
    elif kind == "TrainJob":
        trainer = {"image": "image:1", "command": ["python", "train.py"]}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    if version.startswith("mpba"):
        spec = [{"replicaType": "worker", "replicas": 2, "template": template()}]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "job"}, "spec": spec}


def with_field(document: Any, path: str) -> Any:
    """Return a copy of a document that also sets the field of a path."""
    changed = copy.deepcopy(document)
    if path.startswith("metadata.annotations."):
        name = path.removeprefix("metadata.annotations.")
        value = "true" if name.endswith("suspended") else "value"
        changed["metadata"]["annotations"] = {name: value}
        return changed
    if path.startswith(("spec.removePods", "spec.migratePods")):
        pod = {"type": "worker", "rankIndex": 2}
        if path.endswith((".name", ".id")):
            pod = {"type": "worker"} if path.endswith("id") else {}
        changed["spec"][path.split(".")[1].removesuffix("[]")] = [pod]
    if path == "spec.env":
        changed["spec"]["script"] = "/scale.sh"  # without which env has no effect
    where: Any = changed
    parts = re.sub(r"\[\]", ".0", path).split(".")
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        key: Any = part
        if part == "<name>":
            key = next((name for name in where if name.lower() == "worker"), "worker")
        elif part == "0":
            key = 0
        new: Any = [] if after == "0" else {}
        if after is None:
            new = value_of(path)
        if isinstance(where, list):
            if not where:
                where.append(new)
            elif after is None:
                where[0] = new
        elif after is None or key not in where:
            where[key] = new
        where = where[key]
    return changed


def value_of(path: str) -> Any:
    """Return a value for a field."""
    last = path.rpartition(".")[2]
    if last in ("template", "pod"):
        found = template(MARK)
        if path == "spec.etReplicaSpecs.worker.template":
            del found["spec"]["containers"][0]["command"]  # waits for the launcher
        return found
    ends = [end for end in VALUES if path == end or path.endswith(f".{end}")]
    value = VALUES[max(ends, key=len)] if ends else "value"
    return json.loads(json.dumps(value))


def at(written: Any, path: str) -> Any:
    """Return the value of a path of the spec, or the metadata, of a written object."""
    where = written if path.startswith("metadata") else written["spec"]
    parts = path.split(".") if not path.startswith("metadata") else path.split(".", 2)
    for part in parts:
        key = part.removesuffix("[]")
        if key == "<role>":
            key = "worker" if "worker" in where else next(iter(where))
        if key not in where:
            return None
        where = where[key]
        if part.endswith("[]"):
            where = where[0]
    return where
