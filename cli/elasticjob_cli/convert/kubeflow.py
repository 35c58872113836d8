"""Kubeflow: MPIJob v2beta1 and v1, PyTorchJob, TFJob and JAXJob v1. Pure.

`train_job.py` converts TrainJobs.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, launcher, templates, torchrun
from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import CONTAINER, Draft, place

MPI_API_VERSION = "kubeflow.org/v2beta1"
V1_API_VERSION = "kubeflow.org/v1"
TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_MPI_BACKOFF_LIMIT = 6
_JAX_VARIABLES = {
    "COORDINATOR_ADDRESS": f"$({names.ENV_COORDINATOR_HOST})",
    "NUM_PROCESSES": "$(JAX_NUM_PROCESSES)",
    "PROCESS_ID": "$(JAX_PROCESS_ID)",
}
_JAX_PORT_NAME = "jaxjob-port"
_JAX_PORT = 6666
_OLDER = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
_PERMANENT = ([*range(1, 65)], [*range(65, 128)])
"""Exit codes that fail a replica for good with restartPolicy ExitCode; a rule has up to 64."""


def mpi_job(document: Fields) -> Json | None:
    """Convert an MPIJob of v2beta1: with horovodrun to framework horovod, else to custom."""
    draft = jobs.begun(document, "horovod")
    spec = document.map("spec")
    _run_policy(spec, draft)
    return _with_launcher(spec, draft, restarts=_MPI_BACKOFF_LIMIT)


def mpi_job_v1(document: Fields) -> Json | None:
    """Convert an MPIJob of v1, whose launcher reaches workers by kubectl exec."""
    draft = jobs.begun(document, "horovod")
    spec = document.map("spec")
    _run_policy(spec, draft)
    main = spec.text("mainContainer")
    if main:
        message = "left out: the first container of a template is the main one"
        spec.differs("mainContainer", message)
    own = spec.map("mpiReplicaSpecs").map("Launcher").text("restartPolicy", "Never")
    restarts = 0 if own == "Never" else _MPI_BACKOFF_LIMIT
    return _with_launcher(spec, draft, main=main, restarts=restarts)


def _with_launcher(spec: Fields, draft: Draft, *, main: str = "", restarts: int) -> Json | None:
    """Convert launcher and workers.

    Args:
        spec: the spec of their job.
        draft: our job, with its run policy.
        main: the name of the container that trains; empty: the first one.
        restarts: the launcher's limit if backoffLimit is not given.
    """
    replica_specs = spec.map("mpiReplicaSpecs")
    launcher.add_role(draft, "launcher", replica_specs.map("Launcher"), main=main)
    launcher.add_role(draft, "worker", replica_specs.map("Worker"), main=main)
    limit = draft.spec["runPolicy"].pop("backoffLimit", restarts)
    draft.roles["launcher"].setdefault("restartLimit", min(limit, MAX_RESTARTS))
    at = place("launcher", "restartLimit")
    spec.map("runPolicy").differs("backoffLimit", "of the launcher, as there", at)
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
    launcher.convert(draft, slots)
    message = (
        "a failed worker is replaced, at most restartLimit (3) times; there it is not replaced"
    )
    draft.differs("worker", f"{message}; {jobs.MORE_MEMORY}")
    return jobs.finish(draft)


def pytorch_job(document: Fields) -> Json | None:
    """Convert a PyTorchJob: Master and Worker become the role worker."""
    draft = jobs.begun(document, "pytorch")
    spec = document.map("spec")
    _run_policy(spec, draft)
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
        torchrun.convert(draft, "worker")
        _elastic(spec, draft)
    return jobs.finish(draft)


def _pytorch_group(group: Fields, draft: Draft) -> None:
    at = place("worker")
    template = templates.pod_template(group, "template", (*at, "template"))
    templates.train_in(template, "pytorch", group, (*at, "template"))
    written: Json = {"replicas": common_fields.replicas(group), "template": template}
    _restart_policy(group, "worker", written, draft, "OnFailure")
    before = draft.roles.get("worker")
    if before is not None:
        written["replicas"] = min(written["replicas"] + before["replicas"], MAX_REPLICAS)
        message = "Master and Worker are one role, as each member may be rank 0"
        group.differs("", message, (*at, "replicas"))
        if before["template"] != template:
            message = "its template differs from the workers', which all members have now"
            draft.lost("worker", message)
    draft.add("worker", written, group)


def _elastic(spec: Fields, draft: Draft) -> None:
    worker = draft.roles["worker"]
    if not spec.has("elasticPolicy"):
        if "minReplicas" not in worker:
            draft.fix_size("worker", source="spec")
        return
    policy = spec.map("elasticPolicy")
    common_fields.read_bounds(policy, worker)
    if (restarts := policy.integer("maxRestarts", 0, MAX_INT32)) is not None:
        worker["processRestartLimit"] = min(restarts, MAX_RESTARTS)
        message = "maxRestarts: in the life of a pod; all processes of the world restart together"
        policy.differs("maxRestarts", message, place("worker", "processRestartLimit"))
    for name in ("rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"):
        if policy.raw(name) is not None:
            policy.differs(name, "left out: the job's master knows the members of each world")


def tf_job(document: Fields) -> Json | None:
    """Convert a TFJob."""
    return _job_of_roles(document, "tensorflow", "tfReplicaSpecs")


def jax_job(document: Fields) -> Json | None:
    """Convert a JAXJob."""
    return _job_of_roles(document, "jax", "jaxReplicaSpecs")


def _job_of_roles(document: Fields, framework: str, field: str) -> Json | None:
    """Convert a job whose groups of pods become roles of the same names."""
    draft = jobs.begun(document, framework)
    spec = document.map("spec")
    _run_policy(spec, draft)
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
        _restart_policy(group, role, written, draft, "Never")
        draft.add(role, written, group)
        draft.fix_size(role)
        if framework == "jax":
            _name_coordinator(role, draft)
    if success := spec.text("successPolicy"):
        message = "left out: the job ends with its chief, or else with all workers"
        spec.differs("successPolicy", f"{success} is {message}")
    if spec.boolean("enableDynamicWorker", default=False):
        message = "left out: members may always come and go, within the bounds"
        spec.differs("enableDynamicWorker", message)
    return jobs.finish(draft)


def _name_coordinator(role: str, draft: Draft) -> None:
    """Give JAX's programs the variables that the other operator sets, with those of each world."""
    container = draft.container(role)
    ports = [port for port in container.get("ports") or () if isinstance(port, dict)]
    named = [port.get("containerPort") for port in ports if port.get("name") == _JAX_PORT_NAME]
    values = {**_JAX_VARIABLES, "COORDINATOR_PORT": str((named or [_JAX_PORT])[0])}
    variables = [{"name": name, "value": value} for name, value in values.items()]
    templates.add_variables(container, variables)
    message = f"{', '.join(values)} have the agent's values for each world"
    draft.differs(role, message, *CONTAINER, "env")


def _run_policy(spec: Fields, draft: Draft) -> None:
    """Read the run policy of a job, and the limit of its restarts.

    Its fields are directly in the spec of older versions, and some of MPIJobs of v1.
    """
    policy = spec.map("runPolicy")
    clean_default = None if spec.has("cleanPodPolicy") else "None"
    found = common_fields.run_policy(policy, clean_default=clean_default)
    found = common_fields.run_policy(spec, clean_default=None) | found
    for read in (spec, policy):
        if (limit := read.integer("backoffLimit", 0, MAX_INT32)) is not None:
            found["backoffLimit"] = limit
    for name in filter(spec.has, _OLDER):
        message = f"is runPolicy.{name}, as in newer versions, which counts if both are given"
        spec.differs(name, message, ("spec", "runPolicy", name))
    if policy.boolean("suspend", default=False):
        found["suspend"] = True
    if wanted := _scheduling_policy(policy.map("schedulingPolicy")):
        found["schedulingPolicy"] = wanted
    draft.spec["runPolicy"] = found


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
    return wanted


def _restart_policy(group: Fields, role: str, written: Json, draft: Draft, default: str) -> None:
    """Convert the restart policy of a group of pods to the limit and the rules of a role."""
    policy = group.text("restartPolicy", default, choices=launcher.POLICIES)
    at = place(role, "restartLimit")
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
        at = place(role)
    if policy == "ExitCode":
        written["restartRules"] = [
            {"action": "FailJob", "exitCodes": codes} for codes in _PERMANENT
        ]
    group.differs("restartPolicy", message, at)
