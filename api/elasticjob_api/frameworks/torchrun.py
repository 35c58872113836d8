"""The options of torchrun, which starts the training processes of its pod itself (launchers.py).

torchrun uses its static rendezvous: the members of a world and their order are known, so no
agreement and no host name are needed. Its own elasticity is not used, because it would form other
worlds than the master.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elasticjob_api.addresses import host_port

SHELLS = ("sh", "bash", "dash", "ash", "zsh")
BEFORE_CALL = r"(?:^|[\s;&|(/])"
PYTHON = r"python[\d.]*(?:\s+-\S+){0,8}?"
PROGRAM = rf"(?:torchrun|{PYTHON}\s+-m\s+torch\.distributed\.(?:run|launch))"
STANDALONE = "standalone"
OTHER_FLAGS = ("run-path", "use-env", "virtual-local-rank")
"""Options without a value that the agent does not set."""
WITH_VALUE = (
    *("nnodes", "nproc-per-node", "node-rank", r"rdzv-\w+"),
    *("master-addr", "master-port", "max-restarts"),
)
"""The options that the agent sets, besides `STANDALONE`, which has no value."""
SCRIPT = r".*\.py|-m|--module|--no-python|--"
END_OF_CALL = r";&|)\n"

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "nnodes": "replicas",
        "nproc-per-node": "slotsPerReplica",
        "max-restarts": "processRestartLimit",
    }
)
"""Fields of a role by the options that they replace."""

DEFAULTS: Mapping[str, str] = MappingProxyType({"PET_MONITOR_INTERVAL": "0.5"})
"""Default options, which the user's environment may override.

The interval, in seconds, is that of torchrun's checks of its processes; its own default of 5 would
delay every change of the world.
"""


def environment(
    address: str, port: int, *, nodes: int, node_rank: int, processes: int
) -> dict[str, str]:
    """Return torchrun's options for one of its nodes.

    Args:
        address: the address of the first node, to which all connect.
        port: the port of the first node.
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
        "PET_RDZV_ENDPOINT": host_port(address, port),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
