"""What torchrun's options in a role's command become: fields of the role. Pure."""

from __future__ import annotations

from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import templates, torchrun
from elasticjob_cli.convert.report import Place, Report

_MAX_PROCESS_RESTARTS = 10_000


def convert(role: Json, framework: str, report: Report, where: str, at: Place) -> dict[str, str]:
    """Take the options that the agent sets out of a role's command; returns all that were there.

    Args:
        role: of the ElasticJob; its command and fields are changed.
        framework: of the job; others than pytorch have no torchrun.
        report: what is told about it.
        where: the role in the document.
        at: the role in the ElasticJob.
    """
    container = templates.first_container(role["template"])
    field = "command" if container.get("command") else "args"
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if framework != "pytorch" or (found := torchrun.without_world(command)) is None:
        return {}
    container.pop("args", None)
    container[field] = list(found.words)
    here = (*at, "template", "spec", "containers", 0, field)
    if "dlrover-run" in templates.command_text({"command": command}):
        report.differs(where, "dlrover-run is torchrun here: the job's master does its part", here)
    if found.options:
        left_out = ", ".join(f"--{name}" for name in found.options)
        report.differs(where, f"the agent tells torchrun its world; left out: {left_out}", here)
    for option in found.lost:
        report.lost(where, f"{option} is an option of DLRover alone", here)
    _fields(role, found, report, where, at)
    return found.options


def _fields(role: Json, found: torchrun.Found, report: Report, where: str, at: Place) -> None:
    processes = found.options.get("nproc-per-node")
    if (slots := found.number("nproc-per-node")) and slots <= MAX_SLOTS:
        role.setdefault("slotsPerReplica", slots)
    elif processes:
        message = f"--nproc-per-node={processes}: there is a process for each GPU, or one"
        report.differs(where, message, (*at, "template"))
    if (restarts := found.number("max-restarts")) is not None:
        role.setdefault("processRestartLimit", min(restarts, _MAX_PROCESS_RESTARTS))
        message = "from --max-restarts: in the life of a pod; all processes of the world start again with it"
        report.differs(where, message, (*at, "processRestartLimit"))
    if (nodes := found.nodes()) and nodes[0] < nodes[1] and role["replicas"] >= nodes[0]:
        role["minReplicas"] = nodes[0]
        role.setdefault("maxReplicas", max(nodes[1], role["replicas"]))
        report.invented(where, "bounds from --nnodes", (*at, "minReplicas"))
