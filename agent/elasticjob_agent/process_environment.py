"""The environment of each training process of a member. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.frameworks import pytorch, torchrun
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.config import Config

Environment = dict[str, str]


def environments(
    start: pb.Start, config: Config, command: Sequence[str], container: Mapping[str, str], socket: Path
) -> list[Environment]:
    """Return the environments of the processes that a Start asks for, by rank.

    Args:
        start: the world, and the variables that its framework has for each process.
        config: of this member.
        command: the training command; torchrun is one process, which starts all others.
        container: the container's environment.
        socket: where the agent's socket is.
    """
    shared = {**container, names.ENV_SOCKET: str(socket), names.ENV_ROUND: str(start.world.round)}
    if config.framework == "pytorch" and torchrun.is_torchrun(command):
        return [{**torchrun.DEFAULTS, **shared, **_torchrun_options(start, config)}]
    processes = [start.environment, *(each.variables for each in start.other_environments)]
    size = sum(max(1, member.processes) for member in start.world.members)
    return [
        {
            **shared,
            **_own_devices(container, config, local_rank, len(processes)),
            **variables,
            names.ENV_RANK: str(start.rank + local_rank),
            names.ENV_WORLD_SIZE: str(size),
            names.ENV_LOCAL_RANK: str(local_rank),
            names.ENV_LOCAL_SIZE: str(len(processes)),
        }
        for local_rank, variables in enumerate(processes)
    ]


def _torchrun_options(start: pb.Start, config: Config) -> Environment:
    """Return torchrun's options for this member; its processes get their ranks from torchrun."""
    members = start.world.members
    position = next(i for i, member in enumerate(members) if member.pod_uid == config.pod_uid)
    return torchrun.environment(
        members[0].address,
        pytorch.PORT,
        nodes=len(members),
        node_rank=position,
        processes=1 + len(start.other_environments),
    )


def _own_devices(container: Mapping[str, str], config: Config, local_rank: int, processes: int) -> Environment:
    """Return the variable that shows a process its part of the member's GPUs, if they are to be divided."""
    if config.devices is None or processes == 1:
        return {}
    variable, count = config.devices
    listed = container.get(variable, "")
    devices = listed.split(",") if listed else [str(device) for device in range(count)]
    share = len(devices) // processes
    return {variable: ",".join(devices[share * local_rank : share * (local_rank + 1)])}
