"""Kubeflow Trainer: TrainJob of trainer.kubeflow.org/v1alpha1. Pure.

Most of such a job is in its runtime, an object in the cluster. The converter invents the fields
that the TrainJob lacks, and notes them.
"""

from __future__ import annotations

import copy
import re

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_INT32
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, templates, torchrun
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import CONTAINER, Draft, place

_FRAMEWORKS = (
    (r"torch", "pytorch"),
    (r"\bjax", "jax"),
    (r"tensorflow|\btf\b", "tensorflow"),
    (r"horovod", "horovod"),
)
_INDEX = "JOB_COMPLETION_INDEX"
"""The variable of a pod of a Kubernetes Job, which runs the nodes there."""
_NO_IMAGE = "image-of-the-runtime"


def train_job(document: Fields) -> Json | None:
    """Convert a TrainJob to a job with the role worker."""
    spec = document.map("spec")
    runtime = spec.map("runtimeRef")
    name = runtime.text("name", required=True)
    kind = runtime.text("kind", "ClusterTrainingRuntime")
    for field in ("kind", "apiGroup"):
        if runtime.text(field):
            runtime.differs(field, "left out: only the name of the runtime counts")
    framework = next((ours for pattern, ours in _FRAMEWORKS if re.search(pattern, name)), "custom")
    draft = jobs.begun(document, framework)
    message = f"framework {framework}: by the name of the runtime, {name}"
    runtime.invented("", message, ("spec", "framework"))
    trainer = spec.map("trainer")
    _worker(trainer, spec, draft)
    fields = "volumes, security context, tolerations, gang"
    message = f"other fields of runtime {name} ({fields}) are unknown here"
    remedy = f"compare with kubectl get {kind.lower()} {name}"
    runtime.lost("", f"{message}; {remedy}", place("worker", "template"))
    trainer.differs("", jobs.MORE_MEMORY, place("worker"))
    policy: Json = {}
    if spec.boolean("suspend", default=False):
        policy["suspend"] = True
    if (seconds := spec.integer("activeDeadlineSeconds", 1, MAX_INT32)) is not None:
        policy["activeDeadlineSeconds"] = seconds
    draft.spec["runPolicy"] = policy
    for older in ("podTemplateOverrides", "podSpecOverrides"):
        spec.lose(older, "changes the runtime's pods: write it into the template")
    if manager := spec.text("managedBy"):
        spec.differs("managedBy", f"{manager} is left out: this operator manages the job")
    return jobs.finish(draft)


def _worker(trainer: Fields, spec: Fields, draft: Draft) -> None:
    at = place("worker")
    worker: Json = {
        "replicas": common_fields.replicas(trainer, "numNodes"),
        "template": _template(trainer, spec),
    }
    draft.add("worker", worker, trainer)
    if not trainer.has("numNodes"):
        message = "replicas: 1, as the runtime's number is unknown"
        trainer.invented("numNodes", message, (*at, "replicas"))
    if not trainer.has("image"):
        message = f"the image is the runtime's: write it in place of {_NO_IMAGE}"
        trainer.lost("image", message, place("worker", *CONTAINER, "image"))
    if word := common_fields.read_processes(trainer, "numProcPerNode", worker):
        message = f"numProcPerNode {word}: a launcher starts a process for each GPU, or one"
        trainer.differs("numProcPerNode", message, at)
    container = draft.container("worker")
    if templates.mentions(templates.command_text(container), _INDEX):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{names.LABEL_INDEX}']"}}
        templates.add_variables(container, [{"name": _INDEX, "valueFrom": source}])
    torchrun.convert(draft, "worker")
    if "maxReplicas" not in worker:
        draft.fix_size("worker")


def _template(trainer: Fields, spec: Fields) -> Json:
    container: Json = {"name": "node", "image": trainer.text("image", _NO_IMAGE)}
    for field in ("command", "args", "env"):
        if trainer.has(field):
            container[field] = copy.deepcopy(trainer.raw(field))
    if trainer.has("resourcesPerNode"):
        container["resources"] = copy.deepcopy(trainer.raw("resourcesPerNode"))
    metadata = templates.labels_and_annotations(spec)
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    read = Fields({"template": template}, trainer.path, trainer.report)
    return templates.pod_template(read, "template", place("worker", "template"))
