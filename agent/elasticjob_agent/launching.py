"""Turns the master's Start into the launch of the training processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.config import Config
from elasticjob_agent.events import Launch
from elasticjob_agent.horovod.horovod_rendezvous import HorovodRendezvous
from elasticjob_agent.process_environment import environments
from elasticjob_agent.training_messages import world_size


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

    Args:
        start: the master's command.
        config: the configuration of this member.
        command: the training command.
        container: the environment of the container.
        socket: the path of the agent's socket.
        horovod: serves the processes if Horovod's elastic driver would.
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
