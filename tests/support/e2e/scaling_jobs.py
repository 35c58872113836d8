"""Defines the jobs of test_scaling.py, each for one kind of scaling or failure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e import images

TRAINER = Path(__file__).with_name("checkpointing_training.py")
RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


LEAVING_NODE = "leaving-node"
LEAVING_TAINT = "elasticjob.dev/leaves-in-a-test"


def job(
    name: str,
    folder: Path,
    *,
    replicas: int = 1,
    command: list[str] | None = None,
    **container: Any,
) -> Json:
    """Return a job whose workers count steps, or run another command."""
    main = {
        "name": "train",
        "image": images.TRAINER,
        "command": command or trainer(folder),
        "resources": RESOURCES,
        "volumeMounts": [{"name": name, "mountPath": str(path)} for name, path in shared(folder)],
    }
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in shared(folder)]
    return of_workers(
        name, {"containers": [{**main, **container}], "volumes": volumes}, replicas=replicas
    )


def of_workers(name: str, pod_spec: Json, *, replicas: int) -> Json:
    """Return a job whose image has the agent, of one to six workers."""
    worker = {
        "replicas": replicas,
        "minReplicas": 1,
        "maxReplicas": 6,
        "drainSeconds": 10,
        "template": {"spec": pod_spec},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "agent": {"source": "Image"},
            "runPolicy": {"cleanPodPolicy": "All"},
            "replicaSpecs": {"worker": worker},
        },
    }


def shared(folder: Path) -> list[tuple[str, Path]]:
    """Return the folders that tests and containers have under the same path."""
    return [("folder", folder), ("programs", TRAINER.parent)]


def trainer(folder: Path) -> list[str]:
    """Return the command of the training."""
    return ["python", str(TRAINER), str(folder)]


def one_worker_per_node(port: int) -> Callable[[str, Path], Json]:
    """Return a job for which the cluster has room for one worker.

    A port of the node can be given to one pod only.
    """
    return lambda name, folder: job(name, folder, ports=[{"containerPort": port, "hostPort": port}])


def flaky(name: str, folder: Path) -> Json:
    """Return a job whose worker crashes twice, the second time once a file `go` exists."""
    here = shlex.quote(str(folder))
    script = (
        f"cd {here}; if [ ! -e first ]; then touch first; echo crash one; exit 1; fi;"
        " if [ ! -e second ]; then touch second; until [ -e go ]; do sleep 0.1; done;"
        " echo crash two; exit 1; fi;"
        f" exec {shlex.join(trainer(folder))}"
    )
    return job(name, folder, command=["sh", "-c", script])


def restarted(name: str, folder: Path) -> Json:
    """Return a job of two workers, the first of which fails for good; a restarted job trains."""
    here = shlex.quote(str(folder))
    script = (
        f"cd {here}; if mkdir first 2>/dev/null; then echo no luck; exit 210; fi;"
        f" exec {shlex.join(trainer(folder))}"
    )
    made = job(name, folder, replicas=2, command=["sh", "-c", script])
    made["spec"]["runPolicy"] |= {
        "retry": {"limit": 1, "minDelaySeconds": 1},
        "startPolicy": "AllReady",
    }
    return made


def stopped(name: str, folder: Path) -> Json:
    """Return a job of one worker that is restarted each time it ends by itself."""
    made = job(name, folder)
    made["spec"]["runPolicy"] |= {"retry": {"policy": "Always", "minDelaySeconds": 0}}
    return made


def out_of_memory(name: str, folder: Path) -> Json:
    """Return a job whose worker exceeds its memory limit."""
    script = (
        "import pathlib, sys, time\nkept = b'x' * (150 << 20)\n"
        "while not pathlib.Path(sys.argv[1], 'finish').exists():\n    time.sleep(0.05)\n"
    )
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    return job(name, folder, command=["python", "-c", script, str(folder)], resources=resources)


def lowered(name: str, folder: Path) -> Json:
    """Return a job without restarts whose worker needs more memory as soon as the test says so."""
    script = (
        "import pathlib, sys, time\nfolder = pathlib.Path(sys.argv[1])\n"
        "while not (folder / 'grow').exists():\n    time.sleep(0.05)\n"
        "kept = b'x' * (150 << 20)\n"
        "while not (folder / 'finish').exists():\n    time.sleep(0.05)\n"
    )
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    made = job(name, folder, command=["python", "-c", script, str(folder)], resources=resources)
    made["spec"]["replicaSpecs"]["worker"]["restartLimit"] = 0
    made["spec"]["runPolicy"]["backoffLimit"] = 0
    return made


def references(name: str, folder: Path) -> Json:
    """Return a job whose workers write down their arguments and one of their variables."""
    command = [
        "sh",
        "-c",
        'cd "$1"; shift; echo "$ELASTICJOB_POD_IP $* $LOG" > $ELASTICJOB_RANK',
        "sh",
        str(folder),
    ]
    made = job(
        name,
        folder,
        replicas=2,
        command=command,
        args=[
            "$(ELASTICJOB_RANK)/$(ELASTICJOB_WORLD_SIZE)",
            "$(ELASTICJOB_COORDINATOR_HOST)",
            "$$(ELASTICJOB_RANK)",
        ],
        env=[{"name": "LOG", "value": "$(ELASTICJOB_WORKER_HOSTS)"}],
    )
    made["spec"]["runPolicy"]["startPolicy"] = "AllReady"
    return made


def evicted(name: str, folder: Path) -> Json:
    """Return a job whose workers prefer the node that the test removes."""
    made = job(name, folder, replicas=2)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [LEAVING_NODE]}]}
    preferred = [{"weight": 100, "preference": here}]
    made["spec"]["replicaSpecs"]["worker"]["template"]["spec"] |= {
        "tolerations": [{"key": LEAVING_TAINT, "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        },
    }
    return made


JOBS: Mapping[str, Callable[[str, Path], Json]] = {
    "sized": lambda name, folder: job(name, folder, replicas=2),
    "flaky": flaky,
    "restarted": restarted,
    "hungry": out_of_memory,
    "lowered": lowered,
    "typo": lambda name, folder: job(name, folder, command=["trian.py", "--fast"]),
    "paused": lambda name, folder: job(name, folder, replicas=2),
    "stopped": stopped,
    "lonely": one_worker_per_node(20101),
    "moving": one_worker_per_node(20102),
    "evicted": evicted,
    "references": references,
}
