"""PyTorch: the `env://` rendezvous of torch.distributed; one process a member, rank 0 listens."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Environment, Framework, Peer

PORT = 29500


def environment(world: Sequence[Peer]) -> Environment:
    """Return what `torch.distributed.init_process_group()` reads."""
    return lambda rank: {
        "MASTER_ADDR": world[0].address,
        "MASTER_PORT": str(PORT),
        "WORLD_SIZE": str(len(world)),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


PYTORCH = Framework(roles=("worker",), environment=environment)
