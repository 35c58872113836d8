"""Makes the agent's messages to the master, and reads those of the master."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import packed_worlds
from elasticjob_api.last_words import cause
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.config import Config
from elasticjob_agent.events import Exited, Launch, ProcessEnded
from elasticjob_agent.gpu import GpuUsage
from elasticjob_agent.horovod.horovod_rendezvous import HorovodRendezvous
from elasticjob_agent.process_environment import environments
from elasticjob_agent.training_messages import world_size
from elasticjob_agent.usage import Usage

_UINT32 = 2**32 - 1


def usage(container: Usage, gpus: GpuUsage) -> pb.ResourceUsage:
    """Return the message of a measurement."""
    return pb.ResourceUsage(
        cpu_cores=container.cpu_cores,
        memory_bytes=container.memory_bytes,
        gpu_percent=gpus.percent,
        gpu_memory_bytes=gpus.memory_bytes,
        node_cores=os.cpu_count() or 0,
    )


def exited(process: Exited) -> pb.AgentMessage:
    """Return the message that the training process has ended."""
    seconds_ago = 0.0
    if process.failed_at is not None:
        seconds_ago = time.monotonic() - process.failed_at
    return pb.AgentMessage(
        exited=pb.ProcessExited(
            round=process.round,
            exit_code=process.code,
            asked=process.asked,
            message=process.message,
            retry=process.retry,
            failed_milliseconds_ago=min(int(1000 * seconds_ago), _UINT32),
            node_problem=process.node_problem,
        )
    )


def restarted(process: ProcessEnded, restarts: int) -> pb.AgentMessage:
    """Return the message that the crashed training process is restarted in this pod."""
    return pb.AgentMessage(
        restarted=pb.ProcessRestarted(
            restarts=max(1, restarts),
            exit_code=process.code,
            message=cause(process.message, process.code),
        )
    )


def unpack_world(command: pb.MasterMessage) -> str | None:
    """Fill in `world` if the command has `packed_world`. Return why it cannot, or None."""
    change = command.world_changed if command.HasField("world_changed") else command.start
    if not change.packed_world:
        return None
    try:
        change.world.CopyFrom(packed_worlds.unpack(change.packed_world))
    except ValueError as error:
        return str(error)
    change.ClearField("packed_world")
    return None


def launch(
    start: pb.Start,
    config: Config,
    command: Sequence[str],
    container: Mapping[str, str],
    *,
    socket: Path,
    horovod: HorovodRendezvous,
) -> Launch:
    """Return the launch that a Start requests.

    `horovod` serves the processes if Horovod's elastic driver would.
    """
    variables = environments(start, config, command, container, socket)
    if start.elastic_driver:
        of_driver = horovod.environment(container, config.address)
        variables = [{**each, **of_driver} for each in variables]
    alone = world_size(start.world) <= 1
    restart_in_place = alone or config.in_process_elastic
    if start.goes_on or start.elastic_driver:
        restart_in_place = False
    return Launch(
        round=start.world.round,
        variables=variables,
        first_rank=start.rank,
        world=start.world,
        restart_in_place=restart_in_place,
        crash_excused=start.crash_excused,
    )
