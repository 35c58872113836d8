"""Detects torchrun, which starts the training processes of its pod itself, and sets its options.

torchrun uses its static rendezvous: the members of a world and their order are known, so no
agreement and no host name are needed. Its own elasticity is not used, because it would form other
worlds than the master.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType

# The admission policy for torchrun (tools/torchrun_policy.py) uses these, too. Go reads them as
# Python does.
SHELLS = ("sh", "bash", "dash", "ash", "zsh")
SHELL_OPTION = r"-[a-z]*c"
BEFORE_CALL = r"(?:^|[\s;&|(/])"
PROGRAM = r"(?:torchrun|python[\d.]*(?:\s+-\S+)*?\s+-m\s+torch\.distributed\.(?:run|launch))"
STANDALONE = "standalone"
WITH_VALUE = (
    *("nnodes", "nproc-per-node", "node-rank", r"rdzv-\w+"),
    *("master-addr", "master-port", "max-restarts"),
)
"""The options that the agent sets, besides `STANDALONE`, which has no value."""
SCRIPT = r".*\.py|-m|--module|--no-python"
END_OF_CALL = r";&|)\n"

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "nnodes": "replicas",
        "nproc-per-node": "slotsPerReplica",
        "max-restarts": "processRestartLimit",
    }
)
"""Fields of a role by the options that they replace."""

_SHELL_TEXT = re.compile(SHELL_OPTION)
_CALL = re.compile(rf"{BEFORE_CALL}{PROGRAM}(?=[\s{END_OF_CALL}]|$)")
_FIXED = re.compile(rf"--({'|'.join((STANDALONE, *WITH_VALUE))})(?:=|$)")
_SCRIPT = re.compile(SCRIPT)
_END_OF_CALL = re.compile(f"[{END_OF_CALL}]")

DEFAULTS: Mapping[str, str] = MappingProxyType({"PET_MONITOR_INTERVAL": "0.5"})
"""Default options, which the user's environment may override.

The interval, in seconds, is that of torchrun's checks of its processes; its own default of 5 would
delay every change of the world.
"""


def is_torchrun(command: Sequence[str]) -> bool:
    """Return whether a command runs torchrun.

    It does if it is `torchrun`, `python -m torch.distributed.run` (or `.launch`), or a shell whose
    `-c` text contains one of them.
    """
    program = PurePath(command[0]).name
    if program in SHELLS:
        return _CALL.search(_shell_text(command)) is not None
    return _CALL.match(" ".join([program, *command[1:]])) is not None


def fixed_options(command: Sequence[str], remedies: Mapping[str, str]) -> str | None:
    """Return why a command's options of torchrun are refused, or None if they are not.

    They are those that the agent sets. A fixed world would never change. A torchrun that restarts
    its processes alone would wait for the other nodes, whose processes are not restarted.

    Options of the script are not checked, nor values with variables, nor a shell's text that starts
    torchrun several times.

    Args:
        command: the training command.
        remedies: the user's setting in place of an option, by the name of the option.
    """
    fixed: list[str] = []
    instead: dict[str, str] = {}
    words = _words_after_torchrun(command)
    for word, following in pairwise([*words, ""]):
        name = word.replace("_", "-")
        if _SCRIPT.fullmatch(name):
            break
        option = _FIXED.match(name)
        takes_following = "=" not in word and name != "--standalone"
        if option and "$" not in (following if takes_following else word):
            fixed.append(repr(word))
            if remedy := remedies.get(option[1]):
                instead[remedy] = word.partition("=")[0]
    if not fixed:
        return None
    settings = ", ".join(f"{remedy} in place of {option}" for remedy, option in instead.items())
    return (
        f"the agent sets {', '.join(fixed)} for torchrun in each world; remove "
        f"{'it' if len(fixed) == 1 else 'them'}{settings and f', and set {settings}'}"
    )


def _words_after_torchrun(command: Sequence[str]) -> list[str]:
    """Return torchrun's options and those of the script, or nothing if it is not clear."""
    if not command or not is_torchrun(command):
        return []
    program = PurePath(command[0]).name
    if program not in SHELLS:
        return list(command[1 if program == "torchrun" else command.index("-m") + 2 :])
    text = _shell_text(command).replace("\\\n", " ")
    first, *others = _CALL.finditer(text)
    if others:
        return []
    (own, *_) = _END_OF_CALL.split(text[first.end() :], maxsplit=1)
    return [word.strip("\"'") for word in own.split()]


def _shell_text(command: Sequence[str]) -> str:
    """Return the text that a shell runs."""
    texts = (text for option, text in pairwise(command) if _SHELL_TEXT.fullmatch(option))
    return next(texts, "")


def environment(
    address: str, port: int, *, nodes: int, node_rank: int, processes: int
) -> dict[str, str]:
    """Return torchrun's options for one of its nodes.

    Args:
        address: of the first node, to which all connect.
        port: of the first node.
        nodes: the number of nodes.
        node_rank: the position of this node.
        processes: the number of processes that it starts.

    Torchrun itself restarts no process: the job decides this (`processRestartLimit`), since the
    processes of all nodes must restart together.
    """
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_NODE_RANK": str(node_rank),
        "PET_MAX_RESTARTS": "0",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
