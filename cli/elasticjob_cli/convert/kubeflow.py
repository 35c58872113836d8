"""Kubeflow: MPIJob v2beta1 and PyTorchJob v1. Pure; `train_job.py` converts TrainJobs."""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, launcher, templates, torch_commands
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

MPI_API_VERSION = "kubeflow.org/v2beta1"
PYTORCH_API_VERSION = "kubeflow.org/v1"
TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_MPI_BACKOFF_LIMIT = 6
_PERMANENT = ([*range(1, 65)], [*range(65, 128)])
"""Exit codes that fail a replica for good with restartPolicy ExitCode; a rule has up to 64."""


def mpi_job(document: Fields, report: Report) -> Json | None:
    """Convert an MPIJob: with horovodrun to framework horovod, else to custom."""
    draft = Draft(common_fields.metadata(document, of_job=True), "horovod")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = _run_policy(policy)
    replica_specs = spec.map("mpiReplicaSpecs")
    first_specs = replica_specs.map("Launcher")
    worker_specs = replica_specs.map("Worker")
    first = launcher.read_role(first_specs, "launcher")
    worker = launcher.read_role(worker_specs, "worker")
    limit = draft.spec["runPolicy"].pop("backoffLimit", _MPI_BACKOFF_LIMIT)
    first.setdefault("restartLimit", min(limit, MAX_RESTARTS))
    policy.differs("backoffLimit", "of the launcher, as there", place("launcher", "restartLimit"))
    slots = spec.integer("slotsPerWorker", 1, MAX_SLOTS) or 1
    if spec.boolean("runLauncherAsWorker", default=False):
        spec.lost("runLauncherAsWorker", "the launcher does not train; add a worker")
    if spec.text("launcherCreationPolicy") == "AtStartup":
        message = "the launcher starts when all workers are ready (startPolicy: AllReady)"
        spec.differs("launcherCreationPolicy", message)
    if spec.text("sshAuthMountPath"):
        message = "there are no keys of ssh: the agents start the processes"
        spec.differs("sshAuthMountPath", message)
    kind = spec.text("mpiImplementation", "OpenMPI")
    if kind != "OpenMPI":
        spec.lost("mpiImplementation", f"{kind}: no host file is written for it")
    pods = launcher.Pods(first, worker, first_specs.path, worker_specs.path, slots)
    launcher.convert(draft, pods, report)
    message = (
        "a failed worker is replaced, at most restartLimit (3) times; there it is not replaced"
    )
    worker_specs.differs("", f"{message}; {jobs.MORE_MEMORY}", place("worker"))
    for read in (first_specs, worker_specs, replica_specs, policy, spec):
        read.done()
    return jobs.finish(draft, report)


def pytorch_job(document: Fields, report: Report) -> Json | None:
    """Convert a PyTorchJob: Master and Worker become the role worker."""
    draft = Draft(common_fields.metadata(document, of_job=True), "pytorch")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = _run_policy(policy)
    replica_specs = spec.map("pytorchReplicaSpecs")
    groups = [replica_specs.map(name) for name in ("Master", "Worker") if replica_specs.has(name)]
    if not groups:
        replica_specs.refused("", "has neither Master nor Worker; give one")
    for group in groups:
        _pytorch_group(group, draft)
    if "worker" in draft.roles:
        worker = draft.roles["worker"]
        common_fields.read_processes(spec.map("elasticPolicy"), "nProcPerNode", worker)
        common_fields.read_processes(spec, "nprocPerNode", worker)
        torch_commands.convert(worker, "pytorch", report, draft.sources["worker"], "worker")
        _elastic(spec, worker, report)
    spec.raw("elasticPolicy")
    spec.raw("nprocPerNode")
    for read in (*groups, replica_specs, policy, spec):
        read.done()
    return jobs.finish(draft, report)


def _pytorch_group(group: Fields, draft: Draft) -> None:
    at = place("worker")
    template = templates.pod_template(group, "template", (*at, "template"))
    written: Json = {"replicas": common_fields.replicas(group), "template": template}
    _restart_policy(group, written, draft)
    before = draft.roles.get("worker")
    if before is not None:
        written["replicas"] = min(written["replicas"] + before["replicas"], MAX_REPLICAS)
        message = "Master and Worker are one role, as each member may be rank 0"
        group.differs("", message, (*at, "replicas"))
        if before["template"] != template:
            message = "its template differs from the workers', which all members have now"
            group.report.lost(draft.sources["worker"], message, at)
    draft.add("worker", written, group)


def _restart_policy(group: Fields, written: Json, draft: Draft) -> None:
    policy = group.text("restartPolicy", "OnFailure", choices=launcher.POLICIES)
    at = place("worker", "restartLimit")
    limit = draft.spec["runPolicy"].get("backoffLimit")
    if policy == "Never":
        written["restartLimit"] = 0
        message = launcher.NEVER.format(what="job")
    elif limit is not None:
        written["restartLimit"] = min(limit, MAX_RESTARTS)
        message = f"{policy}: the limit is backoffLimit; {jobs.MORE_MEMORY}"
    else:
        restarts = "a member is restarted at most restartLimit (3) times"
        message = f"{policy}: {restarts}; {jobs.MORE_MEMORY}"
        at = place("worker")
    if policy == "ExitCode":
        written["restartRules"] = [
            {"action": "FailJob", "exitCodes": codes} for codes in _PERMANENT
        ]
    group.differs("restartPolicy", message, at)


def _elastic(spec: Fields, worker: Json, report: Report) -> None:
    if not spec.has("elasticPolicy"):
        if "minReplicas" not in worker:
            jobs.fixed_size(worker, report, "spec", place("worker"))
        return
    policy = spec.map("elasticPolicy")
    policy.raw("nProcPerNode")
    common_fields.read_bounds(policy, worker)
    if (restarts := policy.integer("maxRestarts", 0, MAX_INT32)) is not None:
        worker["processRestartLimit"] = min(restarts, MAX_RESTARTS)
        message = "maxRestarts: in the life of a pod; all processes of the world restart together"
        policy.differs("maxRestarts", message, place("worker", "processRestartLimit"))
    for name in ("rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"):
        if policy.raw(name) is not None:
            policy.differs(name, "left out: the job's master knows the members of each world")
    remedy = "see autoscaling, or create one for the scale subresource"
    message = f"there is no HorizontalPodAutoscaler: {remedy}"
    policy.lose("metrics", message)
    policy.done()


def _run_policy(policy: Fields) -> Json:
    found = common_fields.run_policy(policy, clean_default="None")
    if (limit := policy.integer("backoffLimit", 0, MAX_INT32)) is not None:
        found["backoffLimit"] = limit
    if policy.boolean("suspend", default=False):
        found["suspend"] = True
    if manager := policy.text("managedBy"):
        policy.lost("managedBy", f"{manager} does not manage ElasticJobs")
    if wanted := _scheduling_policy(policy.map("schedulingPolicy")):
        found["schedulingPolicy"] = wanted
    return found


def _scheduling_policy(scheduling: Fields) -> Json:
    wanted: Json = {}
    queue = scheduling.text("queue")
    if queue or scheduling.has("minAvailable"):
        wanted["gang"] = "volcano"
        message = "gang: volcano; the job does not name its scheduler"
        scheduling.invented("", message, ("spec", "runPolicy", "schedulingPolicy"))
    if queue:
        wanted["queue"] = queue
    if name := scheduling.text("priorityClass"):
        wanted["priorityClassName"] = name
    scheduling.lose("minAvailable", "a gang consists of minReplicas members")
    scheduling.lose("minResources", "a gang requests the resources of its members")
    scheduling.lose("scheduleTimeoutSeconds", "see runPolicy.pendingDeadlineSeconds")
    scheduling.done()
    return wanted
