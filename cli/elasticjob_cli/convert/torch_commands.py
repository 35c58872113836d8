"""Converts the options of torchrun in a role's command to fields of the role. Pure."""

from __future__ import annotations

from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS

from elasticjob_cli.convert import torchrun
from elasticjob_cli.convert.jobs import CONTAINER, Draft


def convert(draft: Draft, role: str) -> dict[str, str]:
    """Remove the options that the agent sets from a role's command, and return all options.

    Only jobs of framework pytorch have torchrun.
    """
    container = draft.container(role)
    field = "command" if container.get("command") else "args"
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if draft.framework != "pytorch" or (found := torchrun.without_world(command)) is None:
        return {}
    container.pop("args", None)
    container[field] = list(found.words)
    at = (*CONTAINER, field)
    if "dlrover-run" in " ".join(command):
        draft.differs(role, "dlrover-run is torchrun here: the job's master does its part", *at)
    if found.options:
        left_out = ", ".join(f"--{option}" for option in found.options)
        draft.differs(role, f"the agent sets torchrun's world; left out: {left_out}", *at)
    for message in found.lost:
        draft.lost(role, message, *at)
    _set_fields(draft, role, found)
    return found.options


def _set_fields(draft: Draft, role: str, found: torchrun.Found) -> None:
    written = draft.roles[role]
    processes = found.options.get("nproc-per-node")
    slots = found.number("nproc-per-node")
    if slots and slots <= MAX_SLOTS:
        written.setdefault("slotsPerReplica", slots)
    elif processes:
        message = f"--nproc-per-node={processes}: there is a process for each GPU, or one"
        draft.differs(role, message, "template")
    if (restarts := found.number("max-restarts")) is not None:
        written.setdefault("processRestartLimit", min(restarts, MAX_RESTARTS))
        message = (
            "from --max-restarts: in the life of a pod; all processes of the world restart together"
        )
        draft.differs(role, message, "processRestartLimit")
    nodes = found.nodes(written["replicas"])
    if nodes and nodes[0] <= nodes[1] and written["replicas"] >= nodes[0]:
        written["minReplicas"] = nodes[0]
        written.setdefault("maxReplicas", max(nodes[1], written["replicas"]))
        draft.invented(role, "bounds from --nnodes", "minReplicas")
