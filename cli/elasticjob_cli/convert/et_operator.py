"""et-operator: TrainingJob, ScaleIn and ScaleOut of kai.alibabacloud.com/v1alpha1. Pure."""

from __future__ import annotations

import re

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json
from elasticjob_api.scale_requests import ScaleIn, ScaleOut

from elasticjob_cli.convert import common_fields, jobs, launcher
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import place

API_VERSION = "kai.alibabacloud.com/v1alpha1"
_SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"
_BACKOFF_LIMIT = 6


def training_job(document: Fields) -> Json | None:
    """Convert a TrainingJob to framework horovod with a launcher."""
    draft = jobs.begun(document, "horovod")
    spec = document.map("spec")
    policy = common_fields.run_policy(spec, clean_default=None)
    if draft.metadata.get("annotations", {}).pop(_SUSPENDED, "") == "true":
        policy["suspend"] = True
        message = "there a suspended job is never resumed; here suspend: false resumes it"
        at = ("spec", "runPolicy", "suspend")
        document.differs(f"metadata.annotations.{_SUSPENDED}", message, at)
    draft.spec["runPolicy"] = policy
    worker_specs = spec.map("etReplicaSpecs").map("worker")
    launcher.add_role(draft, "launcher", spec.map("etReplicaSpecs").map("launcher"))
    launcher.add_role(draft, "worker", worker_specs)
    worker = draft.roles["worker"]
    common_fields.read_bounds(worker_specs, worker)
    if bounds := worker.keys() & {"minReplicas", "maxReplicas"}:
        message = "minReplicas and maxReplicas are enforced; there they were not"
        worker_specs.differs("", message, place("worker", min(bounds)))
    _restarts(spec, draft.roles["launcher"])
    slots = spec.integer("slotsPerWorker", 1, MAX_SLOTS)
    if mode := spec.text("launcherAttachMode"):
        way = "the launcher reaches workers by their agents, without ssh, keys and kubectl exec"
        spec.differs("launcherAttachMode", f"{mode}: {way}")
    launcher.convert(draft, slots)
    message = "a failed worker is replaced, at most restartLimit (3) times; " + jobs.MORE_MEMORY
    draft.differs("worker", message)
    return jobs.finish(draft)


def _restarts(spec: Fields, first: Json) -> None:
    """Give the launcher the restarts of the job: there only the launcher's end counts."""
    policy = spec.text("restartPolicy", "Never", choices=launcher.POLICIES)
    limit = spec.integer("backoffLimit", 0, MAX_INT32)
    if policy == "Never":
        limit = 0
    elif limit is None:
        limit = _BACKOFF_LIMIT
    first["restartLimit"] = min(limit, MAX_REPLICAS)
    message = (
        "of the launcher, from restartPolicy and backoffLimit; evictions and other ends from "
        "outside do not count"
    )
    spec.differs("restartPolicy", message, place("launcher", "restartLimit"))


def scale_out(document: Fields) -> Json | None:
    """Convert a ScaleOut."""
    written, spec = _scaler(document, "ScaleOut")
    to_add = spec.map("toAdd")
    count = to_add.integer("count", 1, MAX_REPLICAS)
    if count is None and not spec.report.failed:
        to_add.invalid("count", None, f"a whole number from 1 to {MAX_REPLICAS}; give it")
    written["spec"]["count"] = count
    at = ("spec", "timeoutSeconds") if "timeoutSeconds" in written["spec"] else ("spec",)
    spec.differs("timeout", "after it, ready pods stay (there all were deleted)", at)
    return jobs.checked(written, ScaleOut, spec.report)


def scale_in(document: Fields) -> Json | None:
    """Convert a ScaleIn, by count or by the names of pods."""
    written, spec = _scaler(document, "ScaleIn")
    to_delete = spec.map("toDelete")
    count = to_delete.integer("count", 1, MAX_REPLICAS)
    pods = to_delete.texts("podNames")
    if pods:
        written["spec"]["podNames"] = _pod_names(pods, written["spec"]["jobName"], to_delete)
        if count is not None:
            message = "podNames counts and count is left out, as there"
            to_delete.differs("count", message, ("spec", "podNames"))
    elif count is not None:
        written["spec"]["count"] = count
    elif not spec.report.failed:
        message = "has neither count nor podNames; give one, there all workers were deleted"
        to_delete.refused("", message)
    return jobs.checked(written, ScaleIn, spec.report)


def _scaler(document: Fields, kind: str) -> tuple[Json, Fields]:
    metadata = common_fields.metadata(document, of_job=False)
    spec = document.map("spec")
    ours: Json = {"jobName": common_fields.owner_name(spec.map("selector"), "name")}
    timeout = spec.integer("timeout", 1, 31_536_000)
    if timeout is None:
        spec.differs("timeout", "the default is 600 seconds, not 60", ("spec",))
    else:
        ours["timeoutSeconds"] = timeout
    _script(spec, ours)
    if spec.integer("backoffLimit", 0, MAX_INT32) is not None:
        spec.differs("backoffLimit", "is left out: it has no effect there either")
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": ours}, spec


def _script(spec: Fields, ours: Json) -> None:
    """Write the script that the launcher runs; there it is a file of the image with options."""
    script = spec.text("script")
    env = []
    for variable in spec.list_of_maps("env"):
        name = variable.text("name", required=True)
        env.append({"name": name, "value": variable.any_text("value")})
        variable.done()
    if not script:
        if env:
            spec.differs("env", "is left out: without a script it has no effect there either")
        return
    ours["script"] = f'sh {script} "$1"'
    if env:
        ours["env"] = env
    message = (
        "the launcher's agent runs it once; the job must allow it with runPolicy.allowScripts: "
        "true, and must have framework horovod. If it fails, the request fails, as there"
    )
    spec.differs("script", message, ("spec", "script"))


def _pod_names(pods: list[str], job: str, to_delete: Fields) -> list[str]:
    """Return the names of our pods: the job's name may differ, role and index are the same."""
    at = ("spec", "podNames")
    found: list[str] = []
    for pod in pods:
        worker = re.fullmatch(r".*-worker-([0-9]{1,5})", pod)
        if worker is None:
            to_delete.differs("podNames", f"{pod[:80]} is not a name of a worker", at)
            found.append(pod)
        else:
            found.append(names.member_pod(job, "worker", int(worker[1]), 0))
    message = (
        "the pod that replaces a failed one has another name, with a number at its end: "
        f"kubectl get pods -l {names.LABEL_JOB_NAME}={job}"
    )
    to_delete.differs("podNames", message, at)
    return list(dict.fromkeys(found))
