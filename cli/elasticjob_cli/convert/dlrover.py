"""DLRover: ElasticJob of elastic.iml.github.io/v1alpha1 (its ScalePlan: dlrover_plan.py). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.meta import Json
from elasticjob_api.names import ROLE_WORKER

from elasticjob_cli.convert import jobs, templates, torch_commands
from elasticjob_cli.convert.dlrover_plan import resources, scale_plan
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.naming import role_name
from elasticjob_cli.convert.report import Place, Report
from elasticjob_cli.convert.static_cluster import static_cluster

__all__ = ["API_VERSION", "elastic_job", "scale_plan"]

API_VERSION = "elastic.iml.github.io/v1alpha1"
_MASTER = "dlrover-master"
_STRATEGIES: Mapping[str, str] = MappingProxyType(
    {
        "ParameterServerStrategy": "tensorflow",
        "AllreduceStrategy": "pytorch",
        "CustomStrategy": "custom",
    }
)
_RESTART_COUNT = 3
_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "WORKER_NUM": "$(PET_NNODES)",
        "NODE_NUM": "$(PET_NNODES)",
        "WORKER_RANK": "$(PET_NODE_RANK)",
        "NODE_RANK": "$(PET_NODE_RANK)",
    }
)
"""Variables of theirs that torchrun's say in a job of framework pytorch."""
_FIXED_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "ELASTIC_JOB_NAME": "$(ELASTICJOB_JOB_NAME)",
        "NODE_TYPE": "$(ELASTICJOB_ROLE)",
        "NODE_ID": "$(ELASTICJOB_INDEX)",
        "POD_NAME": "$(ELASTICJOB_POD_NAME)",
        "POD_IP": "$(ELASTICJOB_POD_IP)",
    }
)
_OWN_TRAINER = re.compile(r"\bdlrover\.(?:trainer|python)\b|DLROVER_MASTER_ADDR")


def elastic_job(document: Fields, report: Report) -> Json | None:
    """Convert an ElasticJob of theirs."""
    spec = document.map("spec")
    strategy = spec.text(
        "distributionStrategy", "ParameterServerStrategy", choices=tuple(_STRATEGIES)
    )
    draft = Draft(jobs.metadata(document, of_job=True), _STRATEGIES[strategy])
    report.differs(
        spec.where("distributionStrategy"),
        f"{strategy} is framework {draft.framework}",
        ("spec", "framework"),
    )
    variables = _job_variables(spec, report)
    for kind, group in spec.maps("replicaSpecs").items():
        if kind.lower() == _MASTER:
            _master(group, draft, report)
        else:
            _role(kind, group, draft, variables, report)
    if spec.boolean("suspend", default=False):
        draft.spec.setdefault("runPolicy", {})["suspend"] = True
    _autoscaling(spec, draft, report)
    if spec.boolean("enableDynamicSharding", default=False):
        message = (
            "the master always leases shards, to a program that takes them from elasticjob.shards (docs/data.md) in "
            "place of their sharding client"
        )
        report.differs(spec.where("enableDynamicSharding"), message)
    spec.lose(
        "brainService",
        "there is no service beside the job's own master; it searches the best size by itself",
    )
    spec.done()
    static_cluster(draft, report)
    return jobs.finish(draft, report)


def _job_variables(spec: Fields, report: Report) -> list[Json]:
    """Return the job's variables for its containers; they may be a map or a list there."""
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
                found.append(_variable(Fields(value, envs.where(name), report), name))
    if found:
        message = "variables of the job are written into each container; there nothing reads them"
        report.differs(spec.where("envs"), message)
    return found


def _variable(read: Fields, name: str) -> Json:
    read.raw("name")
    source = read.map("valueFrom")
    found = {"name": name, "valueFrom": {key: source.raw(key) for key in source.names()}}
    if not source.names():
        found = {"name": name, "value": read.text("value") if read.raw("value") != "" else ""}
    read.done()
    return found


def _role(kind: str, group: Fields, draft: Draft, variables: list[Json], report: Report) -> None:
    role = role_name(kind.lower())
    at = place(role)
    if role != kind:
        report.differs(group.path, f"{kind} is {role} here", at)
    if role in draft.roles:
        report.refused(group.path, f"there are two groups {kind.lower()}; put both into one")
        return
    written: Json = {"replicas": jobs.replicas(group, default=0)}
    if written["replicas"] == 0:
        written["replicas"] = 1
        message = "replicas: 1, where their master chooses; the auto-scaler begins with it"
        report.invented(group.where("replicas"), message, (*at, "replicas"))
    restarts = group.integer("restartCount", 0, MAX_REPLICAS)
    written["restartLimit"] = _RESTART_COUNT if restarts is None else restarts
    report.differs(
        group.where("restartCount"),
        "counted are failures of the program; a deleted or evicted pod never is; "
        + (jobs.OUT_OF_MEMORY if draft.framework == "pytorch" else jobs.MORE_MEMORY),
        (*at, "restartLimit"),
    )
    written["autoScale"] = group.boolean("autoScale", default=True)
    written["minReplicas"] = 1
    report.invented(
        group.path, "minReplicas: 1; there is no lower bound there", (*at, "minReplicas")
    )
    group.text("restartPolicy")
    written["template"] = templates.pod_template(group, "template", (*at, "template"))
    _priority(group, written["template"]["spec"], (*at, "template", "spec"))
    _restart_timeout(role, group, draft, report)
    group.done()
    draft.roles[role] = written
    draft.sources[role] = group.path
    for container in templates.all_containers(written["template"]):
        templates.add_variables(container, variables)
    _command(role, draft, group.path, report)


def _priority(group: Fields, pod: Json, at: Place) -> None:
    """Convert the priority of a role, which is the priority class of its pods.

    Of a part of them it is lost.
    """
    where = group.where("priority")
    value = group.raw("priority")
    fraction = re.fullmatch(r"(?:0?\.[0-9]+|1(?:\.0+)?)", str(value))
    if value is None or value == "":
        return
    if value in ("high", "low") or (fraction and float(fraction[0]) == 1):
        pod["priorityClassName"] = value if value == "low" else "high"
        message = (
            f"priority {value} is the priority class of that name, which the cluster must have"
        )
        group.report.differs(where, message, (*at, "priorityClassName"))
    elif fraction and float(fraction[0]) > 0:
        message = (
            f"{value} of the members have priority class high there, and the others low; here all members of a role "
            "have one: set priorityClassName in the template"
        )
        group.report.lost(where, message, at)
    else:
        group.report.invalid(where, value, "high, low, or a part above 0 and at most 1")


def _restart_timeout(role: str, group: Fields, draft: Draft, report: Report) -> None:
    """Convert how long a worker may train on one shard, which tells there that it hangs."""
    seconds = group.integer("restartTimeout", 0, MAX_INT32)
    where = group.where("restartTimeout")
    if not seconds:
        return
    if role != ROLE_WORKER:
        report.differs(where, f"left out: there it is read of the role {ROLE_WORKER} only")
        return
    most = 86_400
    draft.spec.setdefault("health", {}).update(onStall="Restart", stallSeconds=min(seconds, most))
    message = (
        f"a worker that needs more than {seconds} s for a shard is restarted there; here all training processes are, "
        "from their checkpoint, when no member has finished a step for so long (docs/health.md)"
    )
    report.differs(
        where, message if seconds <= most else f"{message}, at most {most} s", ("spec", "health")
    )


def _command(role: str, draft: Draft, where: str, report: Report) -> None:
    """Change the training command: torchrun in place of dlrover-run, their variables by ours."""
    written = draft.roles[role]
    container = templates.first_container(written["template"])
    at = place(role, "template", "spec", "containers", 0)
    options = torch_commands.convert(written, draft.framework, report, where, place(role))
    if "network-check" in options:
        draft.spec.setdefault("health", {})["nodeCheck"] = {"enabled": True}
        message = "from --network-check: a look at each node before it trains, without their test in pairs"
        report.differs(where, message, ("spec", "health", "nodeCheck"))
    if re.fullmatch(r"[1-9][0-9]{0,2}", unit := options.get("node-unit", "")):
        draft.spec.setdefault("autoscaling", {})["multipleOf"] = int(unit)
    text = templates.command_text(container)
    if _OWN_TRAINER.search(text):
        report.lost(
            where,
            "the command is a part of DLRover, which needs DLRover's master: start the training program itself, and "
            "let it call `import elasticjob` (docs/training.md)",
            at,
        )
    known = {**_FIXED_VARIABLES, **(_VARIABLES if draft.framework == "pytorch" else {})}
    used = [name for name in known if templates.mentions(text, name)]
    templates.add_variables(container, [{"name": name, "value": known[name]} for name in used])
    for name in _VARIABLES:
        if name not in known and templates.mentions(text, name):
            report.lost(
                where,
                f"{name} is not set: the numbers of the world are ELASTICJOB_RANK and _WORLD_SIZE",
                at,
            )


def _master(group: Fields, draft: Draft, report: Report) -> None:
    """Take from their master's pod where it runs; the program is ours."""
    template = group.map("template")
    metadata = template.map("metadata")
    spec = template.map("spec")
    kept: Json = {}
    if found := {
        name: texts for name in ("labels", "annotations") if (texts := metadata.text_map(name))
    }:
        kept["metadata"] = found
    if found := {
        name: spec.raw(name)
        for name in ("nodeSelector", "tolerations", "affinity")
        if spec.has(name)
    }:
        kept["spec"] = found
    if kept:
        draft.spec["master"] = {"template": kept}
    message = "the job's master is this operator's own: image, command and resources of theirs are left out"
    report.differs(group.path, message, ("spec", "master") if kept else ())


def _autoscaling(spec: Fields, draft: Draft, report: Report) -> None:
    mode = spec.text("optimizeMode", "single-job", choices=("single-job", "cluster", "manual"))
    found: Json = draft.spec.pop("autoscaling", {})
    if mode != "manual" and ROLE_WORKER in draft.roles:
        found = {"enabled": True} | found
        message = (
            f"optimizeMode {mode}: the master measures samples, so the program has to report them by "
            "elasticjob.report_step; without samples nothing is changed"
        )
        report.differs(spec.where("optimizeMode"), message, ("spec", "autoscaling", "enabled"))
    if bounds := resources(spec, "resourceLimits"):
        found["resourceLimits"] = bounds
    multiple = found.get("multipleOf", 1)
    if (
        multiple > 1
        and ROLE_WORKER in draft.roles
        and draft.roles[ROLE_WORKER]["replicas"] % multiple
    ):
        del found["multipleOf"]
        report.lost(
            spec.where("replicaSpecs"),
            f"--node-unit {multiple} does not divide the workers' replicas",
        )
    if found and ROLE_WORKER in draft.roles:
        draft.spec["autoscaling"] = found
        if "maxReplicas" not in draft.roles[ROLE_WORKER] and not bounds and found.get("enabled"):
            message = "without maxReplicas of worker or resourceLimits the auto-scaler does not grow the job"
            report.differs(spec.where("resourceLimits"), message, ("spec", "autoscaling"))
    elif found:
        report.lost(spec.path, "autoscaling needs a role worker")
