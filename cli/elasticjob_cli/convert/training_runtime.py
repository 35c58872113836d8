"""Kubeflow Trainer: the runtime that a TrainJob names, with the job's own values in it. Pure.

As Trainer's controller does, the job's patches are merged into the runtime's JobSet first. Of its
replicated jobs the trainer becomes the role worker, and initializers become init containers of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import place
from elasticjob_cli.convert.report import Report, name_of
from elasticjob_cli.convert.tables.rows import TABLES, reason

KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
API_VERSION = "trainer.kubeflow.org/v1alpha1"
Runtimes = Mapping[tuple[str, str], Json]
"""The runtimes of a file, by kind and name."""
NODE = "node"
"""The container that trains."""
OVERRIDES = ("podTemplateOverrides", "podSpecOverrides")
"""What runtimePatches were called in older versions."""
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER = "trainer"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_FRAMEWORKS = {"torch": "pytorch", "jax": "jax"}
_REFUSED = ("mpi", "flux", "xgboost")
_SET_BY_TRAINER = ("replicas", "groupName")
_OF_A_JOB = ("parallelism", "completions", "completionMode")
_AT = place("worker", "template")
_KEYS = {
    "volumeMounts": "mountPath", "replicatedJobs": "name", "containers": "name", "env": "name",
    "initContainers": "name", "volumes": "name", "imagePullSecrets": "name", "claims": "name",
}  # fmt: skip
"""Lists whose elements a strategic merge patch finds by a field; others it replaces."""


@dataclass
class Runtime:
    """What a runtime says about a job.

    Attributes:
        framework: ours; empty if it names none.
        nodes: the number of members, if the job gives none.
        processes: the processes of a member, if the job gives none: a number, or such as auto.
        template: the pod template of the members.
        role: other fields of the role.
        policy: fields of the run policy.
    """

    framework: str = ""
    nodes: int = 1
    processes: Any = None
    template: Json = field(default_factory=dict)
    role: Json = field(default_factory=dict)
    policy: Json = field(default_factory=dict)


def runtimes_of(documents: Iterable[Any]) -> Runtimes:
    """Return the runtimes among documents."""
    return {
        (document["kind"], str(name_of(document))): document
        for document in documents
        if isinstance(document, dict)
        and document.get("apiVersion") == API_VERSION
        and document.get("kind") in KINDS
    }


def merged(base: Any, patch: Any, name: str = "") -> Any:
    """Return a value after a strategic merge patch, as Kubernetes defines it for pods."""
    if patch is None:
        return base
    if isinstance(base, dict) and isinstance(patch, dict):
        changes = {key: merged(base.get(key), value, key) for key, value in patch.items()}
        return {**base, **changes}
    if name in _KEYS and isinstance(base, list) and isinstance(patch, list):
        found = list(base)
        for change in patch:
            same = [at for at, each in enumerate(found) if _same(each, change, _KEYS[name])]
            if same:
                found[same[0]] = merged(found[same[0]], change)
            else:
                found.append(change)
        return found
    return patch


def _same(one: Any, other: Any, key: str) -> bool:
    both = isinstance(one, dict) and isinstance(other, dict)
    return both and key in one and one[key] == other.get(key)


def read(document: Json, job: Fields) -> Runtime:
    """Read the runtime of a TrainJob, whose patches and initializer are merged into it.

    Args:
        document: the runtime.
        job: the spec of the job; its report gets the notes, under the name of the runtime.
    """
    own = Report(table=TABLES[f"{KINDS[0]} {API_VERSION}"])
    runtime = Fields(document, "", own)
    for name in ("apiVersion", "kind", "metadata"):
        runtime.raw(name)
    spec = runtime.map("spec")
    found = Runtime()
    _ml_policy(spec.map("mlPolicy"), found)
    _gang(spec.map("podGroupPolicy"), found)
    template = _patched(spec.raw("template"), job)
    read = Fields({} if template is None else template, "spec.template", own)
    _job_set(read.map("spec"), job, found)
    for part in (runtime, read):
        part.done()
    for note in own.notes:
        where = f"{document.get('kind')} {name_of(document)}: {note.field}"
        job.report.add(note.kind, where, note.message, note.at)
    return found


def _ml_policy(policy: Fields, found: Runtime) -> None:
    nodes = policy.integer("numNodes", 0, MAX_REPLICAS)
    found.nodes = 1 if nodes is None else nodes
    for name in _REFUSED:
        if policy.raw(name) is not None:
            policy.refused(name, reason(policy.report.table, policy.where(name)))
    found.framework = next((ours for name, ours in _FRAMEWORKS.items() if policy.has(name)), "")
    policy.raw("jax")
    found.processes = policy.map("torch").raw("numProcPerNode")


def _gang(policy: Fields, found: Runtime) -> None:
    for name in ("coscheduling", "volcano"):
        if policy.has(name):
            policy.map(name)
            found.policy["schedulingPolicy"] = {"gang": name}


def _patched(template: Any, job: Fields) -> Any:
    """Return the template of the JobSet with the patches and overrides of a job."""
    known = [str(each.get("name")) for each in _replicated(template)]
    for patch in job.list_of_maps("runtimePatches"):
        for name in ("manager", "time"):
            patch.raw(name)
        change = patch.map("trainingRuntimeSpec").map("template")
        values = {name: change.raw(name) for name in ("metadata", "spec") if change.has(name)}
        for each in _replicated(values):
            _check_target(change, str(each.get("name")), known)
        template = merged(template, values)
        patch.done()
    for name in OVERRIDES:
        for override in job.list_of_maps(name):
            targets = [each.text("name") for each in override.list_of_maps("targetJobs")]
            pod = {key: override.raw(key) for key in override.names() if key != "targetJobs"}
            pods = {"spec": pod} if name == OVERRIDES[1] else pod
            for target in targets:
                _check_target(override, target, known)
            jobs = [{"name": each, "template": {"spec": {"template": pods}}} for each in targets]
            template = merged(template, {"spec": {"replicatedJobs": jobs}})
    return template


def _replicated(template: Any) -> list[Json]:
    spec = template.get("spec") if isinstance(template, dict) else None
    found = spec.get("replicatedJobs") if isinstance(spec, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _check_target(patch: Fields, name: str, known: list[str]) -> None:
    if name not in known:
        message = f"changes {name}, but the runtime has {', '.join(known) or 'no replicatedJobs'}"
        patch.refused("", f"{message}; name one of them")


def _job_set(read: Fields, job: Fields, found: Runtime) -> None:
    if (seconds := read.integer("ttlSecondsAfterFinished", 0, 31_536_000)) is not None:
        found.policy["ttlSecondsAfterFinished"] = seconds
    if limit := read.map("failurePolicy").integer("maxRestarts", 0, MAX_INT32):
        found.policy["retry"] = {"policy": "OnFailure", "limit": limit}
    steps: dict[str, Fields] = {}
    for each in read.list_of_maps("replicatedJobs"):
        name = each.text("name", required=True)
        step = each.map("template").map("metadata").text_map("labels").get(_STEP)
        if step not in (_TRAINER, *_INITIALIZERS) or step in steps:
            message = f"{name} is no step of its own of {', '.join((_TRAINER, *_INITIALIZERS))}"
            each.lost("", f"{message}: write a role with agent: None for it")
            continue
        steps[step] = each
        for field_ in (*_SET_BY_TRAINER, "dependsOn"):
            each.raw(field_)
    if _TRAINER not in steps:
        read.refused("replicatedJobs", f"none has the label {_STEP}: {_TRAINER}; give one to it")
        return
    _trainer(steps[_TRAINER], found)
    for step in _INITIALIZERS:
        values = job.map("initializer").map(step.partition("-")[0])
        if step in steps:
            _initialize(steps[step], step, values, found)
        elif job.map("initializer").has(step.partition("-")[0]):
            values.lost("", f"the runtime has no job {step}, so nothing loads it, as there")
    for policy in read.list_of_maps("volumeClaimPolicies"):
        found.role.setdefault("volumeClaimTemplates", []).extend(_claims(policy, found))
        policy.done()
    for each in steps.values():
        each.done()


def _pods(replicated: Fields) -> Json:
    """Return the pod template of a replicated job."""
    job = replicated.map("template").map("spec")
    for name in _OF_A_JOB:
        job.raw(name)
    return templates.pod_template(job, "template", _AT)


def _trainer(replicated: Fields, found: Runtime) -> None:
    found.template = _pods(replicated)
    job = replicated.map("template").map("spec")
    if (limit := job.integer("backoffLimit", 0, MAX_INT32)) is not None:
        found.policy["backoffLimit"] = limit
    if (seconds := job.integer("activeDeadlineSeconds", 1, MAX_INT32)) is not None:
        found.policy["activeDeadlineSeconds"] = seconds
    names = [each.get("name") for each in found.template["spec"]["containers"]]
    if NODE not in names and not job.report.failed:
        message = f"has no container {NODE}, which trains; give one this name"
        job.refused("template.spec.containers", message)
    templates.train_in(found.template, NODE, job, _AT)


def _initialize(replicated: Fields, step: str, values: Fields, found: Runtime) -> None:
    """Add the containers of an initializer to the init containers of the members."""
    template = _pods(replicated)
    pod = template["spec"]
    own: Json = {"name": step, "env": []}
    if uri := values.text("storageUri"):
        own["env"].append({"name": "STORAGE_URI", "value": uri})
    own["env"] += [each for each in values.items("env") if isinstance(each, dict)]
    containers = merged(pod["containers"], [own], "containers")
    if len(containers) > len(pod["containers"]) and not replicated.report.failed:
        replicated.refused("", f"has no container {step}; give one this name")
    if secret := values.map("secretRef").text("name"):
        source = {"secretRef": {"name": secret}}
        containers = [
            {**each, "envFrom": [*(each.get("envFrom") or ()), source]}
            if each.get("name") == step
            else each
            for each in containers
        ]
    members = found.template["spec"]
    members["initContainers"] = [
        *members.get("initContainers", ()), *pod.get("initContainers", ()), *containers,
    ]  # fmt: skip
    volumes = merged(members.get("volumes") or [], pod.get("volumes") or [], "volumes")
    if volumes:
        members["volumes"] = volumes
    message = f"{step} runs in every pod, before the program, and again in the pod after it"
    replicated.differs("", message, (*_AT, "spec", "initContainers"))
    others = pod.keys() - {"containers", "initContainers", "volumes", "restartPolicy"}
    for name in (*(template.keys() - {"spec"}), *(f"spec.{each}" for each in sorted(others))):
        message = "of the initializer's own pod: its containers run in the members' pods"
        replicated.lost(f"template.spec.template.{name}", message)


def _claims(policy: Fields, found: Runtime) -> Iterator[Json]:
    if policy.map("retentionPolicy").text("whenDeleted") == "Retain":
        found.role["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain"}
    for claim in policy.list_of_maps("templates"):
        metadata = claim.map("metadata")
        name = metadata.text("name", required=True)
        yield {
            "metadata": {"name": name, **templates.labels_and_annotations(metadata)},
            "spec": claim.raw("spec"),
        }
        message = "one claim of all pods there: each member has its own here, and rank 0 may move"
        remedy = "keep checkpoints on a volume that all members mount"
        policy.lost("templates", f"{name} is {message}; {remedy}", place("worker"))
