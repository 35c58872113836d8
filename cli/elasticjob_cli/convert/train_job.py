"""Kubeflow Trainer: TrainJob of trainer.kubeflow.org/v1alpha1. Pure.

Most of such a job is in its runtime (`training_runtime.py`). If the file does not have it, the
converter invents the fields that the TrainJob lacks, and notes them.
"""

from __future__ import annotations

import copy
import math
import re
from types import MappingProxyType

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32
from elasticjob_api.frameworks.launchers import launcher_of
from elasticjob_api.gpus import gpus_of
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_cli.convert import common_fields, jobs, templates, torchrun, training_runtime
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import CONTAINER, Draft, place
from elasticjob_cli.convert.training_runtime import KINDS, NODE, OVERRIDES, Runtime, Runtimes

_FRAMEWORKS = (
    (r"torch", "pytorch"),
    (r"\bjax", "jax"),
    (r"tensorflow|\btf\b", "tensorflow"),
    (r"horovod", "horovod"),
)
_INDEX = "JOB_COMPLETION_INDEX"
"""The variable of a pod of a Kubernetes Job, which runs the nodes there."""
_NO_IMAGE = "image-of-the-runtime"
_TUNE = ["tune", "run"]
"""The command to which Trainer's controller appends a recipe and a configuration."""


def train_job(document: Fields, runtimes: Runtimes = MappingProxyType({})) -> Json | None:
    """Convert a TrainJob, with its runtime if the file has it, to a job with the role worker."""
    spec = document.map("spec")
    reference = spec.map("runtimeRef")
    name = reference.text("name", required=True)
    kind = reference.text("kind", KINDS[0])
    reference.raw("apiGroup")
    if known := runtimes.get((kind, name)):
        runtime = training_runtime.read(known, spec)
    else:
        runtime = _unknown(spec, kind, name)
        for field in filter(reference.has, ("kind", "apiGroup")):
            reference.differs(field, "left out: only the name of the runtime counts")
    if not runtime.framework:
        found = (ours for pattern, ours in _FRAMEWORKS if re.search(pattern, name))
        runtime.framework = next(found, "custom")
        message = f"framework {runtime.framework}: by the name of the runtime, {name}"
        reference.invented("", message, ("spec", "framework"))
    draft = jobs.begun(document, runtime.framework)
    trainer = spec.map("trainer")
    _worker(trainer, spec, draft, runtime)
    trainer.differs("", jobs.MORE_MEMORY, place("worker"))
    if spec.boolean("suspend", default=False):
        runtime.policy["suspend"] = True
    if (seconds := spec.integer("activeDeadlineSeconds", 1, MAX_INT32)) is not None:
        runtime.policy["activeDeadlineSeconds"] = seconds
    draft.spec["runPolicy"] = runtime.policy
    if manager := spec.text("managedBy"):
        spec.differs("managedBy", f"{manager} is left out: this operator manages the job")
    return jobs.finish(draft)


def _unknown(spec: Fields, kind: str, name: str) -> Runtime:
    """Return a runtime of which only the name is known, and note what is lost."""
    trainer = spec.map("trainer")
    message = f"the file has no runtime {name}, so its fields and what changes them are unknown"
    remedy = f"append the output of kubectl get {kind.lower()} {name} -o yaml to the file"
    spec.lost("runtimeRef", f"{message}: {remedy}", place("worker", "template"))
    for older in OVERRIDES:
        spec.lose(older, "changes the runtime's pods: convert the job together with its runtime")
    if not trainer.has("numNodes"):
        message = "replicas: 1, as the runtime's number is unknown"
        trainer.invented("numNodes", message, place("worker", "replicas"))
    if not trainer.has("image"):
        message = f"the image is the runtime's: write it in place of {_NO_IMAGE}"
        trainer.lost("image", message, place("worker", *CONTAINER, "image"))
    container = {"name": NODE, "image": _NO_IMAGE}
    return Runtime(template={"spec": {"containers": [container]}})


def _worker(trainer: Fields, spec: Fields, draft: Draft, runtime: Runtime) -> None:
    at = place("worker")
    worker: Json = {
        "replicas": common_fields.replicas(trainer, "numNodes", runtime.nodes),
        "template": _template(trainer, spec, runtime.template),
        **runtime.role,
    }
    draft.add("worker", worker, trainer)
    processes = {"numProcPerNode": runtime.processes}
    word = common_fields.read_processes(
        trainer if trainer.has("numProcPerNode") else Fields(processes, trainer.path, spec.report),
        "numProcPerNode",
        worker,
    )
    container = draft.container("worker")
    if templates.mentions(templates.command_text(container), _INDEX):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{names.LABEL_INDEX}']"}}
        templates.add_variables(container, [{"name": _INDEX, "valueFrom": source}])
    torchrun.convert(draft, "worker")
    if draft.framework == "pytorch" and "slotsPerReplica" not in worker:
        if cpus := _processes_by_cpus(container, word):
            worker["slotsPerReplica"] = cpus
            word = word or "auto"
        if word:
            message = f"numProcPerNode {word}: a launcher starts {cpus or 'one for each GPU, or 1'}"
            trainer.differs("numProcPerNode", message, (*at, "slotsPerReplica"))
    if "maxReplicas" not in worker:
        draft.fix_size("worker")


def _processes_by_cpus(container: Json, word: str) -> int:
    """Return the processes that Trainer starts by CPUs; 0 if it counts the GPUs, or none."""
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if word == "gpu" or (word != "cpu" and gpus_of(container)):
        return 0
    if not command or not launcher_of(command):
        return 0
    resources = container.get("resources") or {}
    parts = (resources.get("requests") or {}, resources.get("limits") or {})
    cpus = next((part["cpu"] for part in parts if part.get("cpu")), 0)
    count = math.ceil(parse_quantity(cpus))
    return min(count, MAX_SLOTS) if count > 1 else 0


def _template(trainer: Fields, spec: Fields, base: Json) -> Json:
    own: Json = {"name": NODE}
    for field in ("image", "command", "args", "env"):
        own[field] = copy.deepcopy(trainer.raw(field))
    own["resources"] = copy.deepcopy(trainer.raw("resourcesPerNode"))
    if own["command"] == _TUNE:
        message = "Trainer appends a recipe and a configuration to it: write the whole command"
        trainer.refused("command", message)
    patch = {"metadata": templates.labels_and_annotations(spec), "spec": {"containers": [own]}}
    template = training_runtime.merged(base, patch)
    read = Fields({"template": template}, trainer.path, trainer.report)
    return templates.pod_template(read, "template", place("worker", "template"))
