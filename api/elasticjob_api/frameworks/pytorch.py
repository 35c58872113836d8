"""PyTorch: the `env://` rendezvous of torch.distributed, at which rank 0 listens.

There is one process per GPU. The command may be torchrun, which starts the processes of its pod
itself (torchrun.py). torchrun reads its options from `PET_*`. Every process gets these variables,
because a script may start torchrun where the agent cannot detect it. Each torchrun is then a node
with a single process and the rank of the process that started it.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks import torchrun
from elasticjob_api.frameworks.peer import Environment, Framework, Peer, meeting_port

PORT = 29500


def environment(world: Sequence[Peer]) -> Environment:
    """Return the variables of `torch.distributed.init_process_group()` and of torchrun."""
    address = world[0].address
    port = meeting_port(world[0].address, PORT, world[0].port)
    return lambda rank: {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(len(world)),
        "RANK": str(rank),
        "LOCAL_RANK": str(world[rank].local_rank),
        "LOCAL_WORLD_SIZE": str(world[rank].local_size),
        **torchrun.environment(address, port, nodes=len(world), node_rank=rank, processes=1),
    }


PYTORCH = Framework(
    roles=("worker",),
    environment=environment,
    required=(("worker",),),
    ports=(PORT,),
    process_per_gpu=True,
)
