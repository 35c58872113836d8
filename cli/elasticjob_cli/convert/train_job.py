"""Kubeflow Trainer: TrainJob of trainer.kubeflow.org/v1alpha1. Pure.

Most of such a job is in its runtime, which is in the cluster. What the TrainJob does not say is
invented, and said.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

from elasticjob_api.elasticjob import MAX_INT32
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import jobs, templates, torch_commands
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

_FRAMEWORKS: Sequence[tuple[str, str]] = (
    (r"torch", "pytorch"),
    (r"\bjax", "jax"),
    (r"tensorflow|\btf\b", "tensorflow"),
    (r"horovod", "horovod"),
)
_NO_IMAGE = "image-of-the-runtime"
_IN_THE_RUNTIME = ("podTemplateOverrides", "podSpecOverrides", "runtimePatches")


def train_job(document: Fields, report: Report) -> Json | None:
    """Convert a TrainJob: one role, of the nodes that train."""
    spec = document.map("spec")
    runtime = spec.map("runtimeRef")
    name = runtime.text("name", required=True)
    runtime.text("kind"), runtime.text("apiGroup")
    framework = next((ours for pattern, ours in _FRAMEWORKS if re.search(pattern, name)), "custom")
    draft = Draft(jobs.metadata(document, of_job=True), framework)
    report.invented(
        runtime.path,
        f"framework {framework}: by the name of the runtime, {name}",
        ("spec", "framework"),
    )
    trainer = spec.map("trainer")
    worker: Json = {
        "replicas": jobs.replicas(trainer, "numNodes"),
        "template": _template(trainer, spec),
    }
    draft.roles["worker"] = worker
    draft.sources["worker"] = trainer.path
    at = place("worker")
    if not trainer.has("numNodes"):
        report.invented(
            trainer.where("numNodes"),
            "replicas: 1, as the runtime's number is not known",
            (*at, "replicas"),
        )
    if not trainer.has("image"):
        message = f"the image is the runtime's: write it in place of {_NO_IMAGE}"
        report.lost(
            trainer.where("image"), message, (*at, "template", "spec", "containers", 0, "image")
        )
    _processes(trainer, worker, report)
    torch_commands.convert(worker, framework, report, trainer.path, at)
    if "maxReplicas" not in worker:
        jobs.fixed_size(worker, report, trainer.path, at)
    message = f"what else runtime {name} has (volumes, security context, tolerations, gang) is not known here"
    report.lost(
        runtime.path,
        f"{message}; compare with kubectl get clustertrainingruntime {name}",
        (*at, "template"),
    )
    report.differs(trainer.path, jobs.MORE_MEMORY, at)
    policy: Json = {"suspend": True} if spec.boolean("suspend", default=False) else {}
    if (seconds := spec.integer("activeDeadlineSeconds", 1, MAX_INT32)) is not None:
        policy["activeDeadlineSeconds"] = seconds
    draft.spec["runPolicy"] = policy
    for field in _IN_THE_RUNTIME:
        spec.lose(field, "is of the runtime's pods: write it into the template")
    spec.lose(
        "initializer",
        "there is no initializer: load data and model in an init container of the template",
    )
    if manager := spec.text("managedBy"):
        report.differs(
            spec.where("managedBy"), f"{manager} is left out: this operator manages the job"
        )
    for read in (trainer, runtime, spec):
        read.done()
    return jobs.finish(draft, report)


def _template(trainer: Fields, spec: Fields) -> Json:
    container: Json = {"name": "node", "image": trainer.text("image", _NO_IMAGE)}
    for field in ("command", "args", "env"):
        if trainer.has(field):
            container[field] = copy.deepcopy(trainer.raw(field))
    if trainer.has("resourcesPerNode"):
        container["resources"] = copy.deepcopy(trainer.raw("resourcesPerNode"))
    metadata = {
        field: texts for field in ("labels", "annotations") if (texts := spec.text_map(field))
    }
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    read = Fields({"template": template}, trainer.path, trainer.report)
    return templates.pod_template(read, "template", place("worker", "template"))


def _processes(trainer: Fields, worker: Json, report: Report) -> None:
    value = trainer.raw("numProcPerNode")
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SLOTS:
        worker["slotsPerReplica"] = value
    elif value in ("auto", "gpu", "cpu"):
        message = f"numProcPerNode {value}: there is a process for each GPU, or one"
        report.differs(trainer.where("numProcPerNode"), message, place("worker"))
    elif value is not None:
        report.invalid(
            trainer.where("numProcPerNode"),
            value,
            f"a number from 1 to {MAX_SLOTS}, auto, gpu or cpu",
        )
