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

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
_CALL = re.compile(
    r"(?:^|[\s;&|(/])"
    r"(?:torchrun|python[\d.]*(?:\s+-\S+)*?\s+-m\s+torch\.distributed\.(?:run|launch))"
    r"(?=[\s;&|)]|$)"
)

_FIXED = re.compile(
    r"--(?:standalone|nnodes|nproc-per-node|node-rank|rdzv-\w+|master-addr|master-port)\b"
)

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"PET_MAX_RESTARTS": "0", "PET_MONITOR_INTERVAL": "0.5"}
)
"""Default options, which the user's environment may override.

The job decides whether a failed process restarts (`processRestartLimit`), since all others must
restart with it. The interval, in seconds, is that of torchrun's checks of its processes; its own
default of 5 would delay every change of the world.
"""


def is_torchrun(command: Sequence[str]) -> bool:
    """Return whether a command runs torchrun.

    It does if it is `torchrun`, `python -m torch.distributed.run` (or `.launch`), or a shell whose
    `-c` text contains one of them.
    """
    program = PurePath(command[0]).name
    if program in _SHELLS:
        texts = (text for option, text in pairwise(command) if _SHELL_TEXT.fullmatch(option))
        return any(_CALL.search(text) for text in texts)
    return _CALL.match(" ".join([program, *command[1:]])) is not None


def fixed_option(command: Sequence[str]) -> str | None:
    """Return an option of torchrun in a command that fixes its world, or None.

    The options of the script and the text of a shell are not checked.
    """
    if PurePath(command[0]).name in _SHELLS or not is_torchrun(command):
        return None
    own = command[1:]
    if PurePath(command[0]).name != "torchrun":
        own = command[command.index("-m") + 2 :]
    for word in own:
        if word.endswith(".py") or word in ("-m", "--module", "--no_python", "--no-python"):
            return None
        if _FIXED.match(word.replace("_", "-")):
            return word
    return None


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
    """
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_NODE_RANK": str(node_rank),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
