"""JAX: the arguments of `jax.distributed.initialize()`, which reads only the first by itself; rank 0 coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Environment, Framework, Peer

PORT = 8476


def environment(world: Sequence[Peer]) -> Environment:
    """Return the coordinator's address, the number of processes and this one's id."""
    return lambda rank: {
        "JAX_COORDINATOR_ADDRESS": f"{world[0].address}:{PORT}",
        "JAX_NUM_PROCESSES": str(len(world)),
        "JAX_PROCESS_ID": str(rank),
    }


JAX = Framework(roles=("worker",), environment=environment, required=(("worker",),), ports=(PORT,))
