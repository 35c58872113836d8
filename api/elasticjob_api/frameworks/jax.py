"""JAX: the arguments of `jax.distributed.initialize()`, of which it reads only the first by itself.

Rank 0 is the coordinator.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.addresses import host_port
from elasticjob_api.frameworks.peer import Environment, Framework, Peer, meeting_port

PORT = 8476


def environment(world: Sequence[Peer]) -> Environment:
    """Return the coordinator's address, the number of processes, and the process id."""
    port = meeting_port(world[0].address, PORT, world[0].port)
    coordinator = host_port(world[0].address, port)
    return lambda rank: {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(len(world)),
        "JAX_PROCESS_ID": str(rank),
    }


JAX = Framework(roles=("worker",), environment=environment, required=(("worker",),), ports=(PORT,))
