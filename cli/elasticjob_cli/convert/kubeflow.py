"""Kubeflow: MPIJob v2beta1 and PyTorchJob v1 (TrainJob: train_job.py). Pure."""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import jobs, launcher, templates, torch_commands
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report
from elasticjob_cli.convert.train_job import train_job

__all__ = [
    "MPI_API_VERSION",
    "PYTORCH_API_VERSION",
    "TRAINER_API_VERSION",
    "mpi_job",
    "pytorch_job",
    "train_job",
]

MPI_API_VERSION = "kubeflow.org/v2beta1"
PYTORCH_API_VERSION = "kubeflow.org/v1"
TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_MPI_BACKOFF_LIMIT = 6
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_PERMANENT = ([*range(1, 65)], [*range(65, 128)])
"""Exit codes that end a replica for good with restartPolicy ExitCode; a rule has 64 at most."""


def mpi_job(document: Fields, report: Report) -> Json | None:
    """Convert an MPIJob: with horovodrun as framework horovod, else as custom."""
    draft = Draft(jobs.metadata(document, of_job=True), "horovod")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = _run_policy(policy, report)
    replica_specs = spec.map("mpiReplicaSpecs")
    first_specs = replica_specs.map("Launcher")
    worker_specs = replica_specs.map("Worker")
    first = launcher.read_role(first_specs, "launcher")
    worker = launcher.read_role(worker_specs, "worker")
    limit = draft.spec["runPolicy"].pop("backoffLimit", _MPI_BACKOFF_LIMIT)
    first.setdefault("restartLimit", min(limit, jobs.MAX_RESTARTS))
    report.differs(
        policy.where("backoffLimit"), "of the launcher, as there", place("launcher", "restartLimit")
    )
    slots = spec.integer("slotsPerWorker", 1, MAX_SLOTS)
    if spec.boolean("runLauncherAsWorker", default=False):
        report.lost(spec.where("runLauncherAsWorker"), "the launcher does not train; add a worker")
    spec.text("launcherCreationPolicy")
    spec.text("sshAuthMountPath")
    if (kind := spec.text("mpiImplementation", "OpenMPI")) != "OpenMPI":
        report.lost(spec.where("mpiImplementation"), f"{kind}: no host file is written for it")
    pods = launcher.Pods(
        first, worker, first_specs.path, worker_specs.path, 1 if slots is None else slots
    )
    launcher.convert(draft, pods, report)
    message = (
        "a failed worker is replaced, at most restartLimit (3) times, which it is not there; "
        + jobs.MORE_MEMORY
    )
    report.differs(worker_specs.path, message, place("worker"))
    for read in (first_specs, worker_specs, replica_specs, policy, spec):
        read.done()
    return jobs.finish(draft, report)


def pytorch_job(document: Fields, report: Report) -> Json | None:
    """Convert a PyTorchJob: master and workers are one role."""
    draft = Draft(jobs.metadata(document, of_job=True), "pytorch")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = _run_policy(policy, report)
    replica_specs = spec.map("pytorchReplicaSpecs")
    groups = [replica_specs.map(name) for name in ("Master", "Worker") if replica_specs.has(name)]
    if not groups:
        report.refused(replica_specs.path, "has neither Master nor Worker; give one")
    for group in groups:
        _pytorch_group(group, draft, report)
    if "worker" in draft.roles:
        worker = draft.roles["worker"]
        _processes(spec, worker)
        torch_commands.convert(worker, "pytorch", report, draft.sources["worker"], place("worker"))
        _elastic(spec, worker, report)
    spec.raw("elasticPolicy"), spec.raw("nprocPerNode")
    for read in (*groups, replica_specs, policy, spec):
        read.done()
    return jobs.finish(draft, report)


def _pytorch_group(group: Fields, draft: Draft, report: Report) -> None:
    at = place("worker")
    template = templates.pod_template(group, "template", (*at, "template"))
    written: Json = {"replicas": jobs.replicas(group), "template": template}
    _restart_policy(group, written, draft, report)
    before = draft.roles.get("worker")
    if before is None:
        draft.roles["worker"] = written
        draft.sources["worker"] = group.path
        return
    written["replicas"] = min(written["replicas"] + before["replicas"], MAX_REPLICAS)
    message = "Master and Worker are one role, as each member may be rank 0"
    report.differs(group.path, message, (*at, "replicas"))
    if before["template"] != template:
        report.lost(
            draft.sources["worker"],
            "its template differs from the workers', which all members have now",
            at,
        )
    draft.roles["worker"] = written
    draft.sources["worker"] = group.path


def _restart_policy(group: Fields, written: Json, draft: Draft, report: Report) -> None:
    policy = group.text("restartPolicy", "OnFailure", choices=_POLICIES)
    at = place("worker", "restartLimit")
    limit = draft.spec["runPolicy"].get("backoffLimit")
    if policy == "Never":
        written["restartLimit"] = 0
        message = "Never: a failed pod fails the job; evicted and preempted pods are replaced nevertheless"
    elif limit is not None:
        written["restartLimit"] = min(limit, jobs.MAX_RESTARTS)
        message = f"{policy}: the limit is backoffLimit; " + jobs.MORE_MEMORY
    else:
        message = (
            f"{policy}: a member is restarted at most restartLimit (3) times; " + jobs.MORE_MEMORY
        )
        at = place("worker")
    if policy == "ExitCode":
        written["restartRules"] = [
            {"action": "FailJob", "exitCodes": codes} for codes in _PERMANENT
        ]
    report.differs(group.where("restartPolicy"), message, at)


def _processes(spec: Fields, worker: Json) -> None:
    """Read the processes of a pod, which may be said in two places and as a word."""
    for read, name in ((spec.map("elasticPolicy"), "nProcPerNode"), (spec, "nprocPerNode")):
        value = read.raw(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 4:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SLOTS:
            worker["slotsPerReplica"] = value
        elif value not in (None, "auto", "gpu", "cpu"):
            read.report.invalid(
                read.where(name), value, f"a number from 1 to {MAX_SLOTS}, auto, gpu or cpu"
            )


def _elastic(spec: Fields, worker: Json, report: Report) -> None:
    if not spec.has("elasticPolicy"):
        if "minReplicas" not in worker:
            jobs.fixed_size(worker, report, "spec", place("worker"))
        return
    policy = spec.map("elasticPolicy")
    policy.raw("nProcPerNode")
    for name in ("minReplicas", "maxReplicas"):
        if (bound := policy.integer(name, 0, MAX_REPLICAS)) is not None:
            worker[name] = bound
    if (restarts := policy.integer("maxRestarts", 0, MAX_INT32)) is not None:
        worker["processRestartLimit"] = min(restarts, 10_000)
        message = (
            "maxRestarts: in the life of a pod; all processes of the world start again with it"
        )
        report.differs(policy.where("maxRestarts"), message, place("worker", "processRestartLimit"))
    for name in ("rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"):
        if policy.raw(name) is not None:
            report.differs(
                policy.where(name), "left out: the job's master knows the members of each world"
            )
    policy.lose(
        "metrics",
        "there is no HorizontalPodAutoscaler: see autoscaling, or make one for the scale subresource",
    )
    policy.done()


def _run_policy(policy: Fields, report: Report) -> Json:
    found = jobs.run_policy(policy, clean_default="None")
    if (limit := policy.integer("backoffLimit", 0, MAX_INT32)) is not None:
        found["backoffLimit"] = limit
    if policy.boolean("suspend", default=False):
        found["suspend"] = True
    if manager := policy.text("managedBy"):
        report.lost(policy.where("managedBy"), f"{manager} does not manage ElasticJobs")
    scheduling = policy.map("schedulingPolicy")
    wanted: Json = {}
    if (queue := scheduling.text("queue")) or scheduling.has("minAvailable"):
        wanted["gang"] = "volcano"
        at = ("spec", "runPolicy", "schedulingPolicy")
        report.invented(
            scheduling.path, "gang: volcano; the job does not say which scheduler there is", at
        )
    if queue:
        wanted["queue"] = queue
    if name := scheduling.text("priorityClass"):
        wanted["priorityClassName"] = name
    scheduling.lose("minAvailable", "a gang is the members of minReplicas")
    scheduling.lose("minResources", "a gang asks for what its members do")
    scheduling.lose("scheduleTimeoutSeconds", "see runPolicy.pendingDeadlineSeconds")
    scheduling.done()
    if wanted:
        found["schedulingPolicy"] = wanted
    return found
