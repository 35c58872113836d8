"""DLRover: ElasticJob of elastic.iml.github.io/v1alpha1. Pure; `dlrover_plan.py` converts plans."""

from __future__ import annotations

import re

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.meta import Json
from elasticjob_api.names import ROLE_WORKER
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert import common_fields, jobs, templates, torchrun
from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.dlrover_plan import resources
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import CONTAINER, Draft, place
from elasticjob_cli.convert.tables.rows import TABLES, Fate, option

API_VERSION = "elastic.iml.github.io/v1alpha1"
_MASTER = "dlrover-master"
_STRATEGIES = {
    "ParameterServerStrategy": "tensorflow",
    "AllreduceStrategy": "pytorch",
    "CustomStrategy": "custom",
}
_PLACEMENT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets")
_RESTART_COUNT = 3
_MAX_STALL_SECONDS = 86_400
_TORCHRUN_VARIABLES = {
    "WORKER_NUM": "$(PET_NNODES)",
    "NODE_NUM": "$(PET_NNODES)",
    "WORKER_RANK": "$(PET_NODE_RANK)",
    "NODE_RANK": "$(PET_NODE_RANK)",
}
"""DLRover's variables with the values of torchrun's variables, for jobs of framework pytorch."""
_VARIABLES = {
    "ELASTIC_JOB_NAME": "$(ELASTICJOB_JOB_NAME)",
    "NODE_TYPE": "$(ELASTICJOB_ROLE)",
    "NODE_ID": "$(ELASTICJOB_INDEX)",
    "POD_NAME": "$(ELASTICJOB_POD_NAME)",
    "POD_IP": "$(ELASTICJOB_POD_IP)",
}
_OWN_TRAINER = re.compile(r"\bdlrover\.(?:trainer|python)\b|DLROVER_MASTER_ADDR")
_FRACTION = re.compile(r"(?:0?\.[0-9]+|1(?:\.0+)?)")


def elastic_job(document: Fields) -> Json | None:
    """Convert an ElasticJob of DLRover."""
    spec = document.map("spec")
    strategies = tuple(_STRATEGIES)
    strategy = spec.text("distributionStrategy", "ParameterServerStrategy", choices=strategies)
    draft = jobs.begun(document, _STRATEGIES[strategy])
    message = f"{strategy} is framework {draft.framework}"
    spec.differs("distributionStrategy", message, ("spec", "framework"))
    variables = _job_variables(spec)
    for kind, group in spec.maps("replicaSpecs").items():
        if kind.lower() == _MASTER:
            _master(group, draft)
        else:
            _role(kind, group, draft, variables)
    if spec.boolean("suspend", default=False):
        draft.spec.setdefault("runPolicy", {})["suspend"] = True
    _autoscaling(spec, draft)
    if spec.boolean("enableDynamicSharding", default=False):
        message = (
            "the master always leases shards, to a program that requests them from "
            "elasticjob.shards (docs/data.md) instead of DLRover's sharding client"
        )
        spec.differs("enableDynamicSharding", message)
    return jobs.finish(draft)


def _job_variables(spec: Fields) -> list[Json]:
    """Return the job's variables, which are a map or a list, for its containers."""
    found: list[Json] = []
    if isinstance(spec.raw("envs"), list):
        for each in spec.list_of_maps("envs"):
            found.append(_variable(each, each.text("name", required=True)))
    else:
        envs = spec.map("envs")
        for name in envs.names():
            value = envs.raw(name)
            if isinstance(value, str):
                found.append({"name": name, "value": value})
            else:
                found.append(_variable(Fields(value, envs.where(name), spec.report), name))
    if found:
        message = "variables of the job are written into each container; there they have no effect"
        spec.differs("envs", message)
    return found


def _variable(read: Fields, name: str) -> Json:
    read.raw("name")
    source = read.map("valueFrom")
    found: Json = {"name": name}
    if source.names():
        found["valueFrom"] = {key: source.raw(key) for key in source.names()}
    else:
        found["value"] = read.any_text("value")
    read.done()
    return found


def _role(kind: str, group: Fields, draft: Draft, variables: list[Json]) -> None:
    role = role_name(kind.lower())
    at = place(role)
    if role != kind:
        group.differs("", f"{kind} is {role} here", at)
    if role in draft.roles:
        group.refused("", f"there are two groups {kind.lower()}; merge both")
        return
    written: Json = {"replicas": common_fields.replicas(group, default=0)}
    if written["replicas"] == 0:
        written["replicas"] = 1
        message = "replicas: 1, where DLRover's master chooses; the auto-scaler starts with it"
        group.invented("replicas", message, (*at, "replicas"))
    _restarts(group, written, draft.framework, at)
    written["autoScale"] = group.boolean("autoScale", default=True)
    if group.text("restartPolicy"):
        message = "there it has no effect; restartLimit bounds the restarts"
        group.differs("restartPolicy", message, (*at, "restartLimit"))
    written["template"] = templates.pod_template(group, "template", (*at, "template"))
    _priority(group, written["template"]["spec"], (*at, "template", "spec"))
    _restart_timeout(role, group, draft)
    draft.add(role, written, group)
    for container in templates.all_containers(written["template"]):
        templates.add_variables(container, variables)
    _command(role, draft)
    if "minReplicas" not in written:
        written["minReplicas"] = 1
        message = "minReplicas: 1; there is no lower bound there"
        group.invented("", message, (*at, "minReplicas"))


def _restarts(group: Fields, written: Json, framework: str, at: Place) -> None:
    restarts = group.integer("restartCount", 0, MAX_REPLICAS)
    written["restartLimit"] = _RESTART_COUNT if restarts is None else restarts
    memory = jobs.OUT_OF_MEMORY if framework == "pytorch" else jobs.MORE_MEMORY
    message = "failures of the program count; deletions and evictions of pods do not"
    group.differs("restartCount", f"{message}; {memory}", (*at, "restartLimit"))


def _priority(group: Fields, pod: Json, at: Place) -> None:
    """Convert the priority of a role to the priority class of its pods.

    A priority for a part of the pods has no equivalent.
    """
    value = group.raw("priority")
    if value is None or value == "":
        return
    part = float(str(value)) if _FRACTION.fullmatch(str(value)) else 0.0
    if value in ("high", "low") or part == 1:
        pod["priorityClassName"] = "low" if value == "low" else "high"
        message = (
            f"priority {value} is the priority class of that name, which the cluster must have"
        )
        group.differs("priority", message, (*at, "priorityClassName"))
    elif part > 0:
        message = (
            f"{value} of the members have priority class high there, and the others low; here all "
            "members of a role have one: set priorityClassName in the template"
        )
        group.lost("priority", message, at)
    else:
        group.invalid("priority", value, "high, low, or a part above 0 and at most 1")


def _restart_timeout(role: str, group: Fields, draft: Draft) -> None:
    """Convert the longest time for one shard, after which a worker counts as hung there."""
    seconds = group.integer("restartTimeout", 0, MAX_INT32)
    if not seconds:
        return
    if role != ROLE_WORKER:
        message = f"left out: there only the role {ROLE_WORKER} has it"
        group.differs("restartTimeout", message)
        return
    stall = min(seconds, _MAX_STALL_SECONDS)
    draft.spec.setdefault("health", {}).update(onStall="Restart", stallSeconds=stall)
    message = (
        f"there a worker that needs more than {seconds} s for a shard is restarted; here all "
        "training processes restart from their checkpoint if no member finishes a step for so long "
        "(docs/health.md)"
    )
    if stall < seconds:
        message += f", at most {stall} s"
    group.differs("restartTimeout", message, ("spec", "health"))


def _command(role: str, draft: Draft) -> None:
    """Change the training command: torchrun replaces dlrover-run, our variables replace theirs."""
    container = draft.container(role)
    options = torchrun.convert(draft, role)
    level = options.get("precheck", "0")
    if "network-check" in options or level != "0":
        draft.spec.setdefault("health", {})["nodeCheck"] = {"enabled": True}
        option = "--network-check" if "network-check" in options else f"--precheck {level}"
        message = (
            f"from {option}: each node is checked before it trains, without DLRover's test in pairs"
        )
        draft.report.differs(draft.sources[role], message, ("spec", "health", "nodeCheck"))
    unit = options.get("node-unit", "")
    if re.fullmatch(r"[1-9][0-9]{0,2}", unit):
        draft.spec.setdefault("autoscaling", {})["multipleOf"] = int(unit)
    text = templates.command_text(container)
    if _OWN_TRAINER.search(text):
        message = (
            "the command is a part of DLRover, which needs DLRover's master: start the training "
            "program itself, and let it call `import elasticjob` (docs/training.md)"
        )
        draft.lost(role, message, *CONTAINER)
    known = dict(_VARIABLES)
    if draft.framework == "pytorch":
        known |= _TORCHRUN_VARIABLES
    used = [name for name in known if templates.mentions(text, name)]
    templates.add_variables(container, [{"name": name, "value": known[name]} for name in used])
    for name in _TORCHRUN_VARIABLES:
        if name not in known and templates.mentions(text, name):
            message = f"{name} is not set: the world's numbers are ELASTICJOB_RANK and _WORLD_SIZE"
            draft.lost(role, message, *CONTAINER)


def _master(group: Fields, draft: Draft) -> None:
    """Keep the placement of DLRover's master for the job's master, which is another program."""
    template = group.map("template")
    spec = template.map("spec")
    kept: Json = {}
    if metadata := templates.labels_and_annotations(template.map("metadata")):
        kept["metadata"] = metadata
    placement = {name: spec.raw(name) for name in _PLACEMENT if spec.has(name)}
    if placement:
        kept["spec"] = placement
    at: Place = ()
    if kept:
        draft.spec["master"] = {"template": kept}
        at = ("spec", "master")
    message = (
        "the job's master is this operator's own: DLRover's image, command and resources are "
        "left out"
    )
    group.differs("", message, at)
    for container in spec.list_of_maps("containers"):
        container.lose("env", "variables of DLRover's master")
        words = " ".join([*container.texts("command"), *container.texts("args")])
        for row in TABLES["DLRover's master"]:
            name = option(row).replace("-", "[-_]")
            if row.fate is Fate.LOST and re.search(rf"--{name}(?![\w-])", words):
                group.lost("", f"--{option(row)}: {row.why}", at)
    spec.raw("restartPolicy")
    group.raw("replicas")


def _autoscaling(spec: Fields, draft: Draft) -> None:
    mode = spec.text("optimizeMode", "single-job", choices=("single-job", "cluster", "manual"))
    found: Json = draft.spec.pop("autoscaling", {})
    worker = draft.roles.get(ROLE_WORKER)
    if mode != "manual" and worker is not None:
        found = {"enabled": True} | found
        message = (
            f"optimizeMode {mode}: the master measures samples, so the program must report them "
            "with elasticjob.report_step; without samples the size does not change"
        )
        spec.differs("optimizeMode", message, ("spec", "autoscaling", "enabled"))
    bounds = resources(spec, "resourceLimits")
    if bounds:
        found["resourceLimits"] = bounds
    if worker is None:
        if found:
            spec.lost("", "autoscaling needs a role worker")
        return
    multiple = found.get("multipleOf", 1)
    if worker["replicas"] % multiple:
        del found["multipleOf"]
        message = f"--node-unit {multiple} does not divide the workers' replicas"
        spec.lost("replicaSpecs", message)
    if not found:
        return
    draft.spec["autoscaling"] = found
    if "maxReplicas" not in worker and not bounds and found.get("enabled"):
        message = (
            "without maxReplicas of worker or resourceLimits the auto-scaler does not grow the job"
        )
        spec.differs("resourceLimits", message, ("spec", "autoscaling"))
