"""Data loaders for PyTorch, and training in processes that continue when the world changes.

For `framework: pytorch` with `onWorldChange: Notify`:

    network = Network()
    state = elasticjob.torch.State(model=network, optimizer=SGD(network.parameters(), 0.1))
    for world in elasticjob.torch.worlds(state, folder="/checkpoints"):
        with world:
            model = DistributedDataParallel(network)
            while state.step < total:
                train_step(model)
                state.step += 1
                world.commit(total=total)

It needs PyTorch 2.1 or later; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch  # type: ignore[import-not-found, unused-ignore]

from elasticjob._torch_data import DataLoader
from elasticjob._torch_group import Meetings
from elasticjob._torch_state import State
from elasticjob._world_session import Session, World, enter_worlds

__all__ = ["DataLoader", "State", "World", "worlds"]


def worlds(
    state: State,
    *,
    backend: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    keep: int = 3,
    timeout: float = 300.0,
) -> Iterator[World]:
    """Join each world of the job, one after the other, until the training is finished.

        for world in elasticjob.torch.worlds(state, folder="/checkpoints"):
            with world:
                train(state, world)  # calls world.commit()

    A world begins with the default process group, and with the newest committed state in all ranks.
    Train in `with world:`. When the block ends without a change of the world, the training is
    finished. A process that was asked to stop ends by SystemExit.

    Args:
        state: the model and optimizer that all ranks share.
        backend: the group's backend. Default: nccl where there is a GPU, else gloo.
        folder: a folder, or a URL, that all members share. The training continues at its newest
            checkpoint if no process has the state, as after a suspension; without a folder it
            begins again. Rank 0 saves one when it leaves, at the end, and at commits with `save`.
        keep: the number of checkpoints to keep.
        timeout: seconds for all processes to meet, and for each collective. Make it longer than
            `drainSeconds`, after which the agent replaces a process that does not come.

    Raises:
        TimeoutError: not all processes have come.
        RuntimeError: PyTorch is older than 2.1, or a collective has failed and no other world was
            announced.
        AgentError: the agent is unreachable.
    """
    meetings = Meetings(
        backend=backend or ("nccl" if torch.cuda.is_available() else "gloo"), timeout=timeout
    )
    yield from enter_worlds(Session(state, meetings, folder, keep, timeout))
