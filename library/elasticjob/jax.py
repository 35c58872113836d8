"""Trains with JAX in processes that continue when the world changes.

For `framework: jax` with `onWorldChange: Notify`:

    state = elasticjob.jax.State(params=init(), samples=0)
    for world in elasticjob.jax.worlds(state, folder="/checkpoints"):
        with world:
            mesh = jax.make_mesh((world.size,), ("ranks",))
            while state.step < total:
                state.params = train_step(state.params, batch(mesh))
                state.step += 1
                world.commit(total=total)

It needs JAX 0.10 or later; `import elasticjob` alone does not load it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from elasticjob._jax_group import Meetings
from elasticjob._jax_state import State
from elasticjob._world_session import Session
from elasticjob._worlds import World, enter_worlds

__all__ = ["State", "World", "worlds"]


def worlds(
    state: State,
    *,
    folder: str | os.PathLike[str] | None = None,
    keep: int = 3,
    timeout: float = 300.0,
) -> Iterator[World]:
    """Join each world of the job, one after the other, until the training is finished.

        for world in elasticjob.jax.worlds(state, folder="/checkpoints"):
            with world:
                train(state, world)  # calls world.commit()

    A world begins with `jax.distributed` initialized, with new devices, and with the newest
    committed state in all ranks. Devices, meshes, arrays and compiled functions belong to one
    world: make them in `with world:`, and take all arrays from the state. When the block ends
    without a change of the world, the training is finished. A process that was asked to stop ends
    by SystemExit.

    Args:
        state: the parameters and the optimizer's state, which all ranks share.
        folder: a folder, or a URL, that all members share. The training continues at its newest
            checkpoint if no process has the state, as after a suspension; without a folder it
            begins again. Rank 0 saves one when it leaves, at the end, and at commits with `save`.
        keep: the number of checkpoints to keep.
        timeout: seconds for all processes to meet. Make it longer than `drainSeconds`, after which
            the agent replaces a process that does not come.

    Raises:
        TimeoutError: not all processes have come.
        RuntimeError: JAX is older than 0.10 or does not compute on CPUs, or a collective has failed
            and no other world was announced.
        AgentError: the agent is unreachable.
    """
    meetings = Meetings(timeout=timeout)
    try:
        yield from enter_worlds(Session(state, meetings, folder, keep, timeout))
    finally:
        meetings.close()
