"""Kubeflow: MPIJob v2beta1 and v1, PyTorchJob, TFJob and JAXJob v1. Pure.

`train_job.py` converts TrainJobs.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, launcher, templates, torch_commands
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.kubeflow_policies import restart_policy, run_policy
from elasticjob_cli.convert.naming import role_name
from elasticjob_cli.convert.report import Report

MPI_API_VERSION = "kubeflow.org/v2beta1"
V1_API_VERSION = "kubeflow.org/v1"
TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_MPI_BACKOFF_LIMIT = 6


def mpi_job(document: Fields, report: Report) -> Json | None:
    """Convert an MPIJob of v2beta1: with horovodrun to framework horovod, else to custom."""
    draft = Draft(common_fields.metadata(document, of_job=True), "horovod")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = run_policy(policy)
    return _with_launcher(spec, policy, draft, restarts=_MPI_BACKOFF_LIMIT)


def mpi_job_v1(document: Fields, report: Report) -> Json | None:
    """Convert an MPIJob of v1, whose launcher reaches workers by kubectl exec."""
    draft = Draft(common_fields.metadata(document, of_job=True), "horovod")
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    clean = spec.text("cleanPodPolicy", choices=common_fields.CLEAN_POLICIES)
    draft.spec["runPolicy"] = run_policy(policy, clean_default=None if clean else "None")
    if clean:
        draft.spec["runPolicy"].setdefault("cleanPodPolicy", clean)
    main = spec.text("mainContainer")
    if main:
        message = "left out: the first container of a template is the main one"
        spec.differs("mainContainer", message)
    own = spec.map("mpiReplicaSpecs").map("Launcher").text("restartPolicy", "Never")
    restarts = 0 if own == "Never" else _MPI_BACKOFF_LIMIT
    return _with_launcher(spec, policy, draft, main=main, restarts=restarts)


def _with_launcher(
    spec: Fields, policy: Fields, draft: Draft, *, main: str = "", restarts: int
) -> Json | None:
    """Convert launcher and workers.

    Args:
        spec: of the job.
        policy: its run policy.
        draft: of our job.
        main: the name of the container that trains; empty: the first one.
        restarts: of the launcher, if backoffLimit is not given.
    """
    report = spec.report
    replica_specs = spec.map("mpiReplicaSpecs")
    first_specs = replica_specs.map("Launcher")
    worker_specs = replica_specs.map("Worker")
    first = launcher.read_role(first_specs, "launcher")
    worker = launcher.read_role(worker_specs, "worker")
    for group, role, name in ((first_specs, first, "launcher"), (worker_specs, worker, "worker")):
        templates.train_in(role["template"], main, group, place(name, "template"))
    limit = draft.spec["runPolicy"].pop("backoffLimit", restarts)
    first.setdefault("restartLimit", min(limit, MAX_RESTARTS))
    policy.differs("backoffLimit", "of the launcher, as there", place("launcher", "restartLimit"))
    slots = spec.integer("slotsPerWorker", 1, MAX_SLOTS) or 1
    if spec.boolean("runLauncherAsWorker", default=False):
        spec.lost("runLauncherAsWorker")
    if spec.text("launcherCreationPolicy") == "AtStartup":
        message = "the launcher starts when all workers are ready (startPolicy: AllReady)"
        spec.differs("launcherCreationPolicy", message)
    if spec.text("sshAuthMountPath"):
        message = "there are no keys of ssh: the agents start the processes"
        spec.differs("sshAuthMountPath", message)
    if spec.text("mpiImplementation", "OpenMPI") != "OpenMPI":
        spec.lost("mpiImplementation")
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
    draft.spec["runPolicy"] = run_policy(policy)
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
    templates.train_in(template, "pytorch", group, (*at, "template"))
    written: Json = {"replicas": common_fields.replicas(group), "template": template}
    restart_policy(group, "worker", written, draft, "OnFailure")
    before = draft.roles.get("worker")
    if before is not None:
        written["replicas"] = min(written["replicas"] + before["replicas"], MAX_REPLICAS)
        message = "Master and Worker are one role, as each member may be rank 0"
        group.differs("", message, (*at, "replicas"))
        if before["template"] != template:
            message = "its template differs from the workers', which all members have now"
            group.report.lost(draft.sources["worker"], message, at)
    draft.add("worker", written, group)


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
    policy.done()


def tf_job(document: Fields, report: Report) -> Json | None:
    """Convert a TFJob."""
    return _job_of_roles(document, "tensorflow", "tfReplicaSpecs", report)


def jax_job(document: Fields, report: Report) -> Json | None:
    """Convert a JAXJob."""
    return _job_of_roles(document, "jax", "jaxReplicaSpecs", report)


def _job_of_roles(document: Fields, framework: str, field: str, report: Report) -> Json | None:
    """Convert a job whose groups of pods become roles of the same names."""
    draft = Draft(common_fields.metadata(document, of_job=True), framework)
    spec = document.map("spec")
    policy = spec.map("runPolicy")
    draft.spec["runPolicy"] = run_policy(policy)
    for kind, group in spec.maps(field).items():
        role = "chief" if kind == "Master" else role_name(kind.lower())
        if role in draft.roles:
            group.refused("", f"there are two groups {role}; merge both")
            continue
        if role != kind.lower():
            group.differs("", f"{kind} is {role} here", place(role))
        at = place(role, "template")
        template = templates.pod_template(group, "template", at)
        templates.train_in(template, framework, group, at)
        written: Json = {"replicas": common_fields.replicas(group), "template": template}
        restart_policy(group, role, written, draft, "Never")
        jobs.fixed_size(written, report, group.path, place(role))
        draft.add(role, written, group)
        group.done()
    if success := spec.text("successPolicy"):
        message = "left out: the job ends with its chief, or else with all workers"
        spec.differs("successPolicy", f"{success} is {message}")
    if spec.boolean("enableDynamicWorker", default=False):
        message = "left out: members may always come and go, within the bounds"
        spec.differs("enableDynamicWorker", message)
    for read in (policy, spec):
        read.done()
    return jobs.finish(draft, report)
