"""Converts the options of torchrun in a role's command to fields of the role. Pure."""

from __future__ import annotations

from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import templates, torchrun
from elasticjob_cli.convert.jobs import container_place, place
from elasticjob_cli.convert.report import Report


def convert(role: Json, framework: str, report: Report, where: str, name: str) -> dict[str, str]:
    """Remove the options that the agent sets from a role's command, and return all options.

    Args:
        role: the role of the ElasticJob; its command and fields are changed.
        framework: of the job; only pytorch has torchrun.
        report: gets notes about the changes.
        where: the path of the role in the document.
        name: of the role.
    """
    container = templates.first_container(role["template"])
    field = "command" if container.get("command") else "args"
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if framework != "pytorch" or (found := torchrun.without_world(command)) is None:
        return {}
    container.pop("args", None)
    container[field] = list(found.words)
    at = container_place(name, field)
    if "dlrover-run" in " ".join(command):
        report.differs(where, "dlrover-run is torchrun here: the job's master does its part", at)
    if found.options:
        left_out = ", ".join(f"--{option}" for option in found.options)
        report.differs(where, f"the agent sets torchrun's world; left out: {left_out}", at)
    for message in found.lost:
        report.lost(where, message, at)
    _set_fields(role, found, report, where, name)
    return found.options


def _set_fields(role: Json, found: torchrun.Found, report: Report, where: str, name: str) -> None:
    processes = found.options.get("nproc-per-node")
    slots = found.number("nproc-per-node")
    if slots and slots <= MAX_SLOTS:
        role.setdefault("slotsPerReplica", slots)
    elif processes:
        message = f"--nproc-per-node={processes}: there is a process for each GPU, or one"
        report.differs(where, message, place(name, "template"))
    if (restarts := found.number("max-restarts")) is not None:
        role.setdefault("processRestartLimit", min(restarts, MAX_RESTARTS))
        message = (
            "from --max-restarts: in the life of a pod; all processes of the world restart together"
        )
        report.differs(where, message, place(name, "processRestartLimit"))
    nodes = found.nodes(role["replicas"])
    if nodes and nodes[0] <= nodes[1] and role["replicas"] >= nodes[0]:
        role["minReplicas"] = nodes[0]
        role.setdefault("maxReplicas", max(nodes[1], role["replicas"]))
        report.invented(where, "bounds from --nnodes", place(name, "minReplicas"))
