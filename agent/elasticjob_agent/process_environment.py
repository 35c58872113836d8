"""Computes the environment and the command of each training process. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import names, references
from elasticjob_api.frameworks import launchers, pytorch, torchrun
from elasticjob_api.frameworks.launchers import Launcher
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.config import Config
from elasticjob_agent.training_messages import world_size

Environment = dict[str, str]

MAX_ARG_STRLEN = 131_072
"""Linux' limit for one argument or variable in bytes, with name, equals sign and final zero."""
MAX_CHARACTERS = 6 * 1024 * 1024
"""Linux' highest limit in bytes for a command and its environment together."""
NODE_RANK = "NODE_RANK"
"""Lightning's variable with the member's place, from which it computes the rank of a process."""
_ROLE = re.compile(r"[a-z0-9-]+")
_HOSTS = re.compile(r"\bELASTICJOB_[A-Z0-9_]+_HOSTS\b")


def environments(
    start: pb.Start,
    config: Config,
    command: Sequence[str],
    container: Mapping[str, str],
    socket: Path,
) -> list[Environment]:
    """Return the variables that the agent sets in the processes of a Start, by rank.

    They are added to the container's. A launcher is one process, which starts all others.
    """
    shared = {
        names.ENV_SOCKET: str(socket),
        names.ENV_ROUND: str(start.world.round),
        **_hosts(start.world),
    }
    launcher = launcher_of(config, command)
    if launcher is not None:
        defaults = {
            name: value for name, value in torchrun.DEFAULTS.items() if name not in container
        }
        own = {} if launcher is launchers.TORCHRUN else _of_other_launcher(start, socket)
        return [{**defaults, **shared, **own, **_torchrun_options(start, config)}]
    if config.framework == "pytorch" and NODE_RANK not in container:
        shared[NODE_RANK] = str(_position(start, config))
    processes = [start.environment, *(each.variables for each in start.other_environments)]
    return [
        {
            **shared,
            **_own_devices(container, config, local_rank, len(processes)),
            **variables,
            names.ENV_RANK: str(start.rank + local_rank),
            names.ENV_WORLD_SIZE: str(world_size(start.world)),
            names.ENV_LOCAL_RANK: str(local_rank),
            names.ENV_LOCAL_SIZE: str(len(processes)),
        }
        for local_rank, variables in enumerate(processes)
    ]


def launcher_of(config: Config, command: Sequence[str]) -> Launcher | None:
    """Return the launcher that the command runs, which starts the training processes itself."""
    return launchers.launcher_of(command) if config.framework == "pytorch" else None


def render(
    command: Sequence[str], container: Mapping[str, str], variables: Mapping[str, str]
) -> tuple[list[str], Environment]:
    """Return a process's command and environment with the references to variables replaced.

    The agent's variables override the container's. Raises TooLongError if they exceed the kernel's
    limit; the message names the argument or variable.
    """
    rendered: list[str] = []
    left = MAX_CHARACTERS
    named = [
        *((f"argument {number}", text) for number, text in enumerate(command)),
        *container.items(),
    ]
    for name, text in named:
        try:
            rendered.append(references.replace(text, variables, most=left))
        except references.TooLongError as error:
            raise references.TooLongError(
                f"{name}: with its references replaced {error}"
            ) from error
        left -= len(rendered[-1])
    count = len(command)
    return rendered[:count], {**dict(zip(container, rendered[count:], strict=True)), **variables}


def reads_hosts(command: Sequence[str], container: Mapping[str, str]) -> bool:
    """Return whether a command, or a variable of its container, contains a list of hosts."""
    return any(_HOSTS.search(text) for text in (*command, *container.values()))


def _hosts(world: pb.World) -> Environment:
    """Return the addresses of rank 0's pod and of each role's pods, unless they are too long."""
    members = world.members
    addresses: defaultdict[str, list[str]] = defaultdict(list)
    listed = () if world.member_count else members
    for member in sorted(listed, key=lambda member: member.index):
        if _ROLE.fullmatch(member.role):
            addresses[member.role].append(member.address)
    hosts = {names.hosts_env(role): ",".join(all_of_it) for role, all_of_it in addresses.items()}
    if members:
        hosts[names.ENV_COORDINATOR_HOST] = members[0].address
    return {name: value for name, value in hosts.items() if len(f"{name}={value}") < MAX_ARG_STRLEN}


def _torchrun_options(start: pb.Start, config: Config) -> Environment:
    """Return torchrun's options for this member."""
    members = start.world.members
    return torchrun.environment(
        members[0].address,
        int(start.environment.get("MASTER_PORT") or pytorch.PORT),
        nodes=start.world.member_count or len(members),
        node_rank=_position(start, config),
        processes=1 + len(start.other_environments),
    )


def _position(start: pb.Start, config: Config) -> int:
    """Return the place of this member among the members of its world."""
    if start.world.member_count:
        return start.position
    members = enumerate(start.world.members)
    return next(place for place, member in members if member.pod_name == config.pod_name)


def _of_other_launcher(start: pb.Start, socket: Path) -> Environment:
    """Return what launchers need beside torchrun's options.

    The ranks are those of the member's first process: Accelerate starts a single process of a world
    without any. If it starts too few, they wait for the others instead of training alone.
    """
    processes = 1 + len(start.other_environments)
    several = world_size(start.world) > 1
    return {
        **start.environment,
        "LOCAL_WORLD_SIZE": str(processes),
        launchers.MODE: "multi_gpu" if several else "same_network",
        launchers.HOST_FILE: str(socket.with_name("deepspeed-hosts")),
    }


def _own_devices(
    container: Mapping[str, str], config: Config, local_rank: int, processes: int
) -> Environment:
    """Return the variable with a process's share of the member's GPUs, if they are divided."""
    if config.devices is None or processes == 1:
        return {}
    variable, count = config.devices
    devices = [str(device) for device in range(count)]
    if container.get(variable):
        devices = container[variable].split(",")
    share = len(devices) // processes
    return {variable: ",".join(devices[share * local_rank : share * (local_rank + 1)])}
