"""et-operator: TrainingJob, ScaleIn and ScaleOut of kai.alibabacloud.com/v1alpha1. Pure."""

from __future__ import annotations

import re

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json
from elasticjob_api.scalers import ScaleIn, ScaleOut

from elasticjob_cli.convert import jobs, launcher
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.naming import job_name
from elasticjob_cli.convert.report import Report

API_VERSION = "kai.alibabacloud.com/v1alpha1"
_SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"
_BACKOFF_LIMIT = 6
_TIMEOUT = ("spec", "timeoutSeconds")


def training_job(document: Fields, report: Report) -> Json | None:
    """Convert a TrainingJob: framework horovod with a launcher."""
    draft = Draft(jobs.metadata(document, of_job=True), "horovod")
    spec = document.map("spec")
    policy = jobs.run_policy(spec, clean_default=None)
    if draft.metadata.get("annotations", {}).pop(_SUSPENDED, "") == "true":
        policy["suspend"] = True
        message = "there a suspended job is never resumed; here it is, with suspend: false"
        report.differs(
            f"metadata.annotations.{_SUSPENDED}", message, ("spec", "runPolicy", "suspend")
        )
    draft.spec["runPolicy"] = policy
    replica_specs = spec.map("etReplicaSpecs")
    launcher_specs = replica_specs.map("launcher")
    worker_specs = replica_specs.map("worker")
    first = launcher.read_role(launcher_specs, "launcher")
    worker = launcher.read_role(worker_specs, "worker")
    for name in ("minReplicas", "maxReplicas"):
        if (bound := worker_specs.integer(name, 0, MAX_REPLICAS)) is not None:
            worker[name] = bound
    if worker.keys() & {"minReplicas", "maxReplicas"}:
        message = "minReplicas and maxReplicas are held to, which they were not"
        report.differs(
            worker_specs.path,
            message,
            place("worker", min(worker.keys() & {"minReplicas", "maxReplicas"})),
        )
    _restarts(spec, first, report)
    slots = spec.integer("slotsPerWorker", 1, MAX_SLOTS)
    if mode := spec.text("launcherAttachMode"):
        message = f"{mode}: the launcher reaches workers by their agents, without ssh, keys and kubectl exec"
        report.differs(spec.where("launcherAttachMode"), message)
    pods = launcher.Pods(first, worker, launcher_specs.path, worker_specs.path, slots)
    launcher.convert(draft, pods, report)
    message = "a failed worker is replaced, at most restartLimit (3) times; " + jobs.MORE_MEMORY
    report.differs(worker_specs.path, message, place("worker"))
    for read in (launcher_specs, worker_specs, replica_specs, spec):
        read.done()
    return jobs.finish(draft, report)


def _restarts(spec: Fields, first: Json, report: Report) -> None:
    """Give the launcher the restarts of the job: there only the launcher's end counts."""
    policy = spec.text(
        "restartPolicy", "Never", choices=("Never", "OnFailure", "Always", "ExitCode")
    )
    limit = spec.integer("backoffLimit", 0, MAX_INT32)
    first["restartLimit"] = (
        0 if policy == "Never" else min(_BACKOFF_LIMIT if limit is None else limit, MAX_REPLICAS)
    )
    message = "of the launcher, from restartPolicy and backoffLimit; uncounted are evictions and other ends from outside"
    report.differs(spec.where("restartPolicy"), message, place("launcher", "restartLimit"))


def scale_out(document: Fields, report: Report) -> Json | None:
    """Convert a ScaleOut."""
    written, spec = _scaler(document, "ScaleOut", report)
    to_add = spec.map("toAdd")
    count = to_add.integer("count", 1, MAX_REPLICAS)
    if count is None and not report.failed:
        report.invalid(
            to_add.where("count"), None, f"a whole number from 1 to {MAX_REPLICAS}; give it"
        )
    written["spec"]["count"] = count
    message = "when it is over, pods that are ready stay (there all were deleted)"
    report.differs(
        spec.where("timeout"),
        message,
        _TIMEOUT if "timeoutSeconds" in written["spec"] else ("spec",),
    )
    to_add.done()
    return _finished(written, spec, ScaleOut, report)


def scale_in(document: Fields, report: Report) -> Json | None:
    """Convert a ScaleIn, by count or by the names of pods."""
    written, spec = _scaler(document, "ScaleIn", report)
    to_delete = spec.map("toDelete")
    count = to_delete.integer("count", 1, MAX_REPLICAS)
    pods = to_delete.texts("podNames")
    if pods:
        written["spec"]["podNames"] = _pod_names(pods, written["spec"]["jobName"], spec, report)
        if count is not None:
            message = "podNames counts and count is left out, as there"
            report.differs(to_delete.where("count"), message, ("spec", "podNames"))
    elif count is not None:
        written["spec"]["count"] = count
    elif not report.failed:
        report.refused(
            to_delete.path,
            "has neither count nor podNames; give one, there all workers were deleted",
        )
    to_delete.done()
    return _finished(written, spec, ScaleIn, report)


def _scaler(document: Fields, kind: str, report: Report) -> tuple[Json, Fields]:
    metadata = jobs.metadata(document, of_job=False)
    spec = document.map("spec")
    selector = spec.map("selector")
    name = selector.text("name", required=True)
    selector.done()
    ours: Json = {"jobName": job_name(name) if name else "unknown"}
    if ours["jobName"] != name:
        report.differs(
            selector.where("name"), f"{name} is {ours['jobName']} here", ("spec", "jobName")
        )
    timeout = spec.integer("timeout", 1, 31_536_000)
    if timeout is not None:
        ours["timeoutSeconds"] = timeout
    else:
        report.differs(spec.where("timeout"), "the default is 600 seconds, not 60", ("spec",))
    _script(spec, ours, report)
    if spec.integer("backoffLimit", 0, MAX_INT32) is not None:
        report.differs(spec.where("backoffLimit"), "is left out: it has no effect there either")
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": ours}, spec


def _script(spec: Fields, ours: Json, report: Report) -> None:
    """Write the script that the launcher runs.

    There it is a file of its image, and options of that.
    """
    script = spec.text("script")
    variables = spec.list_of_maps("env")
    env = [{"name": each.text("name", required=True), "value": _value(each)} for each in variables]
    for each in variables:
        each.done()
    if not script:
        if env:
            report.differs(
                spec.where("env"), "is left out: without a script it has no effect there either"
            )
        return
    ours["script"] = f'sh {script} "$1"'
    if env:
        ours["env"] = env
    message = (
        "the launcher's agent runs it once; the job must allow it, with runPolicy.allowScripts: true, and must be of "
        "framework horovod. If it fails, the request fails, as there"
    )
    report.differs(spec.where("script"), message, ("spec", "script"))


def _value(variable: Fields) -> str:
    value = variable.raw("value")
    if value is not None and not isinstance(value, str):
        variable.report.invalid(variable.where("value"), value, "a text; write it in quotes")
    return value if isinstance(value, str) else ""


def _pod_names(pods: list[str], job: str, spec: Fields, report: Report) -> list[str]:
    """Return the names of our pods: the job's name may be another, role and index are the same."""
    found: list[str] = []
    for pod in dict.fromkeys(pods):
        worker = re.fullmatch(r".*-worker-([0-9]{1,5})", pod)
        found.append(names.member_pod(job, "worker", int(worker[1]), 0) if worker else pod)
        if worker is None:
            report.differs(
                spec.where("toDelete.podNames"),
                f"{pod[:80]} is no name of a worker",
                ("spec", "podNames"),
            )
    message = (
        "the pod that replaces a failed one has another name, with a number behind it: kubectl get pods -l "
        f"{names.LABEL_JOB_NAME}={job}"
    )
    report.differs(spec.where("toDelete.podNames"), message, ("spec", "podNames"))
    return list(dict.fromkeys(found))


def _finished(
    written: Json, spec: Fields, kind: type[ScaleIn | ScaleOut], report: Report
) -> Json | None:
    spec.done()
    return None if report.failed else jobs.checked(written, kind, report)
