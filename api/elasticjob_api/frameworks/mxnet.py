"""MXNet's parameter server (ps-lite): all members connect to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Environment, Framework, Peer, meeting_port, of_role

PORT = 9000


def environment(world: Sequence[Peer]) -> Environment:
    """Return the DMLC variables; without a scheduler in the world, the first member takes its place."""
    scheduler = (of_role(world, "scheduler") or list(world))[0]
    shared = {
        "DMLC_PS_ROOT_URI": scheduler.address,
        "DMLC_PS_ROOT_PORT": str(meeting_port(scheduler.address, PORT)),
        "DMLC_NUM_SERVER": str(len(of_role(world, "server"))),
        "DMLC_NUM_WORKER": str(len(of_role(world, "worker"))),
    }
    return lambda rank: {"DMLC_ROLE": world[rank].role.lower(), **shared}


MXNET = Framework(
    roles=("scheduler", "server", "worker"),
    environment=environment,
    required=(("scheduler",), ("server",), ("worker",)),
    ports=(PORT,),
    deciding_role="worker",
    stop_order=("worker", "server", "scheduler"),
)
