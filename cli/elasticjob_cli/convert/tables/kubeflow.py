"""The fields of Kubeflow's MPIJob, PyTorchJob, TFJob, JAXJob and TrainJob. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Row, Table, changed, kept, lost

_MANAGER = "another controller does not manage ElasticJobs"
_CLEAN = "`None` is their default, and is written; `Running` is ours"


def _run_policy(backoff: str, why: str) -> tuple[Row, ...]:
    """Return the rows of a run policy, whose backoffLimit means something else for each kind."""
    scheduling = "spec.runPolicy.schedulingPolicy"
    gang = "with `gang: volcano`, which is invented"
    return (
        changed("spec.runPolicy.cleanPodPolicy", "runPolicy.cleanPodPolicy", _CLEAN),
        kept("spec.runPolicy.ttlSecondsAfterFinished", "runPolicy.ttlSecondsAfterFinished"),
        kept("spec.runPolicy.activeDeadlineSeconds", "runPolicy.activeDeadlineSeconds"),
        changed("spec.runPolicy.backoffLimit", backoff, why),
        kept("spec.runPolicy.suspend", "runPolicy.suspend"),
        lost("spec.runPolicy.managedBy", _MANAGER),
        changed(f"{scheduling}.queue", "runPolicy.schedulingPolicy.queue", gang),
        changed(f"{scheduling}.priorityClass", "runPolicy.schedulingPolicy.priorityClassName", ""),
        lost(f"{scheduling}.minAvailable", "a gang consists of minReplicas members"),
        lost(f"{scheduling}.minResources", "a gang requests the resources of its members"),
        lost(f"{scheduling}.scheduleTimeoutSeconds", "see runPolicy.pendingDeadlineSeconds"),
    )


_MPI = (
    changed(
        "spec.mpiReplicaSpecs.<name>.replicas",
        "replicaSpecs.<role>.replicas",
        "of `Launcher` 1; for `Worker`, `minReplicas` and `maxReplicas` are invented, from "
        "`--min-np` and `--max-np`",
    ),
    changed(
        "spec.mpiReplicaSpecs.<name>.restartPolicy",
        "replicaSpecs.<role>.restartLimit",
        "0 for `Never`; a failed worker is replaced, at most 3 times",
    ),
    kept("spec.mpiReplicaSpecs.<name>.template", "replicaSpecs.<role>.template"),
    kept("spec.slotsPerWorker", "replicaSpecs.worker.slotsPerReplica"),
    *_run_policy(
        "replicaSpecs.launcher.restartLimit",
        "of the launcher: 6 by default, at v1 0 if the launcher has `restartPolicy` `Never`, "
        "its default",
    ),
)
MPI_JOB: Table = (
    *_MPI,
    changed("spec.launcherCreationPolicy", "", "`startPolicy: AllReady`"),
    changed("spec.sshAuthMountPath", "", "no keys"),
    lost("spec.runLauncherAsWorker", "the launcher does not train; add a worker"),
    lost("spec.mpiImplementation", "no host file is written for another one than OpenMPI"),
)
MPI_JOB_V1: Table = (
    *_MPI,
    changed("spec.cleanPodPolicy", "runPolicy.cleanPodPolicy", _CLEAN),
    changed("spec.mainContainer", "", "it is put first, as the first is the one that trains"),
)

_RESTARTS = (
    "`OnFailure`, `Always`: `backoffLimit`, else 3, as the pod is replaced; `Never`: 0; "
    "`ExitCode`: with `restartRules`, by which exit codes 1 to 127 end the job"
)
_ALL_MEMBERS = "that of all members together"
_LEFT_OUT = "left out: the agent knows the members of each world"
_ELASTIC = "spec.elasticPolicy"
PYTORCH_JOB: Table = (
    changed(
        "spec.pytorchReplicaSpecs.<name>.replicas",
        "replicaSpecs.worker.replicas",
        "`Master` and `Worker` are one role, as any member may be rank 0; a template of the "
        "Master's own is lost",
    ),
    changed(
        "spec.pytorchReplicaSpecs.<name>.restartPolicy",
        "replicaSpecs.worker.restartLimit",
        _RESTARTS,
    ),
    kept("spec.pytorchReplicaSpecs.<name>.template", "replicaSpecs.worker.template"),
    changed("spec.nprocPerNode", "replicaSpecs.worker.slotsPerReplica", "a number; with `auto`, "
            "`gpu`, `cpu` there is a process for each GPU, or one"),
    changed(
        f"{_ELASTIC}.minReplicas",
        "replicaSpecs.worker.minReplicas",
        "without `elasticPolicy` the size is fixed: as `replicas`, invented",
    ),
    kept(f"{_ELASTIC}.maxReplicas", "replicaSpecs.worker.maxReplicas"),
    kept(f"{_ELASTIC}.nProcPerNode", "replicaSpecs.worker.slotsPerReplica"),
    changed(
        f"{_ELASTIC}.maxRestarts",
        "replicaSpecs.worker.processRestartLimit",
        "in the life of a pod; all processes of the world restart together",
    ),
    lost(
        f"{_ELASTIC}.metrics",
        "there is no HorizontalPodAutoscaler: see autoscaling, or create one for the scale "
        "subresource",
    ),
    *(
        changed(f"{_ELASTIC}.{name}", "", _LEFT_OUT)
        for name in ("rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort", "standalone")
    ),
    *_run_policy("runPolicy.backoffLimit", _ALL_MEMBERS),
)  # fmt: skip


def _with_roles(field: str, what: str) -> tuple[Row, ...]:
    """Return the rows of a kind whose groups become roles of the same names."""
    where = f"spec.{field}.<name>"
    role = "replicaSpecs.<role>"
    return (
        changed(f"{where}.replicas", f"{role}.replicas, {role}.minReplicas", what),
        changed(f"{where}.restartPolicy", f"{role}.restartLimit", _RESTARTS),
        kept(f"{where}.template", f"{role}.template"),
        *_run_policy("runPolicy.backoffLimit", _ALL_MEMBERS),
    )


TF_JOB: Table = (
    *_with_roles(
        "tfReplicaSpecs", "names in lower case, `Master` is `chief`; `minReplicas` is invented"
    ),
    changed("spec.successPolicy", "", "the job ends with its chief, or else with all workers"),
    changed("spec.enableDynamicWorker", "", "members may always come and go, within the bounds"),
)
JAX_JOB: Table = _with_roles("jaxReplicaSpecs", "`minReplicas` is invented")

_CONTAINER = "replicaSpecs.worker.template"
TRAIN_JOB: Table = (
    changed(
        "spec.runtimeRef.name",
        "framework",
        "by its name: torch, jax, tensorflow, horovod; else `custom`: invented; what else the "
        "runtime has is lost",
    ),
    changed("spec.runtimeRef.kind", "", "only the runtime's name counts"),
    changed("spec.runtimeRef.apiGroup", "", "only the runtime's name counts"),
    changed(
        "spec.trainer.numNodes",
        "replicaSpecs.worker.replicas, replicaSpecs.worker.minReplicas",
        "1 if not given, invented",
    ),
    changed(
        "spec.trainer.numProcPerNode",
        "replicaSpecs.worker.slotsPerReplica",
        "`auto`, `gpu`, `cpu`: one for each GPU",
    ),
    changed(
        "spec.trainer.image", _CONTAINER, "without it `image-of-the-runtime`, to be replaced, lost"
    ),
    changed(
        "spec.trainer.command",
        _CONTAINER,
        "without it `command-of-the-image`, to be replaced, lost",
    ),
    changed("spec.trainer.args", _CONTAINER, "of the container"),
    changed("spec.trainer.env", _CONTAINER, "of the container"),
    changed("spec.trainer.resourcesPerNode", _CONTAINER, "`resources` of the container"),
    changed(
        "spec.suspend",
        "runPolicy.suspend",
        "with Kueue, leave it out: it is yours alone",
    ),
    kept("spec.activeDeadlineSeconds", "runPolicy.activeDeadlineSeconds"),
    changed("spec.managedBy", "", "left out: this operator manages the job"),
    lost(
        "spec.initializer",
        "there is no initializer: load data and model in an init container of the template",
    ),
    lost("spec.runtimePatches", "changes the runtime's pods: write it into the template"),
)
