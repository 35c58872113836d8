"""Decides how many training processes a member of a converted job has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from elasticjob_api.frameworks import launchers, torchrun, wrappers
from elasticjob_api.gpus import gpus_of, slots, slots_error
from elasticjob_api.meta import Json

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.report import Kind, shown

_PYTHON = re.compile(r"python[\d.]*")
_CALLS_PYTHON = re.compile(r"(?<![\w.-])python[\d.]*\s")
_SOURCED = re.compile(r"(?<![^\s;&|])(?:\.|source)\s+\S+")
"""A script with variables, which starts nothing."""
_SCRIPT_OF_A_SHELL = re.compile(r"\.(?:ba)?sh\b")


def settle(framework: str, role: Json, container: Json) -> Iterator[tuple[Kind, str]]:
    """Settle the number of processes of a role's members, and yield what is to be said about it.

    A command that is no launcher is one process at the other operators, also on several GPUs.
    """
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    try:
        gpus = gpus_of(container)
        unknown = not command or command[0] == templates.NO_COMMAND
        if framework == "pytorch" and not unknown and not launchers.launcher_of(command):
            count = slots(framework, role.get("slotsPerReplica"), gpus)
            yield from _one_process(role, command, count)
        problem = slots_error(role.get("slotsPerReplica"), gpus)
    except ValueError as error:
        problem = str(error)
    if problem:
        yield Kind.INVALID, f"slotsPerReplica: {problem}"
    if framework == "pytorch" and (problem := launchers.fixed_options(command, launchers.FIELDS)):
        yield Kind.INVALID, f"command: {problem}"


def _one_process(role: Json, command: Sequence[str], count: int) -> Iterator[tuple[Kind, str]]:
    if count == 1:
        return
    asked = "slotsPerReplica" in role
    role["slotsPerReplica"] = 1
    message = f"{shown(' '.join(command))} is one process in each member, as there"
    remedy = "call torchrun in the command, and remove slotsPerReplica"
    hidden = _may_hide_a_launcher(command)
    if hidden:
        message += ", and a torchrun in it starts one without an own --nproc_per_node"
    yield Kind.LOST if asked or hidden else Kind.DIFFERS, f"{message}; for {count}: {remedy}"


def _may_hide_a_launcher(command: Sequence[str]) -> bool:
    """Return whether a command is a program that may start a launcher, such as a script."""
    _, own = wrappers.split(command)
    program = PurePath(own[0]).name
    if program in torchrun.SHELLS:
        text = _SOURCED.sub("", " ".join(own[1:]))
        return not _CALLS_PYTHON.search(text) or bool(_SCRIPT_OF_A_SHELL.search(text))
    return not _PYTHON.fullmatch(program)
