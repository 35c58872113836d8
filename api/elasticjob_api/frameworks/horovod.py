"""Horovod, in two variants.

Without a launcher, the master acts as the elastic driver. A launcher brings its own driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from elasticjob_api.frameworks.peer import Environment, Framework, Peer

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "30",
        "PYTHONUNBUFFERED": "1",
    }
)
"""Default variables of workers in jobs without a launcher; the pod's variables override them."""


@dataclass(frozen=True)
class Slot:
    """The place of one process in a world, in Horovod's numbers.

    Attributes:
        cross_rank: its position among the processes with the same local rank.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def slots(world: Sequence[Peer]) -> list[Slot]:
    """Return the slot of each process of a world, by rank."""
    of_local_rank = Counter(peer.local_rank for peer in world)
    found: list[Slot] = []
    before = Counter[int]()
    for rank, peer in enumerate(world):
        local = peer.local_rank
        found.append(
            Slot(rank, len(world), local, peer.local_size, before[local], of_local_rank[local])
        )
        before[local] += 1
    return found


def environment(world: Sequence[Peer]) -> Environment:
    """Return the variables of a process in a job without a launcher.

    Its agent adds the address of the rendezvous.
    """
    places = slots(world)

    def render(rank: int) -> dict[str, str]:
        slot = places[rank]
        return {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_ELASTIC": "1",
            "HOROVOD_HOSTNAME": world[rank].name,
            "HOROVOD_RANK": str(slot.rank),
            "HOROVOD_SIZE": str(slot.size),
            "HOROVOD_LOCAL_RANK": str(slot.local_rank),
            "HOROVOD_LOCAL_SIZE": str(slot.local_size),
            "HOROVOD_CROSS_RANK": str(slot.cross_rank),
            "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        }

    return render


def environment_with_launcher(world: Sequence[Peer]) -> Environment:
    """Return the variable that prevents a worker's own command from training alone.

    The launcher starts the training with its own values. It gets no variable, because it passes its
    environment to every process that it starts.
    """

    def render(rank: int) -> dict[str, str]:
        if world[rank].role == "launcher":
            return {}
        return {"HOROVOD_CONTROLLER": "launcher"}

    return render


HOROVOD = Framework(
    roles=("launcher", "worker"),
    environment=environment_with_launcher,
    required=(("worker",),),
    deciding_role="launcher",
    in_process_elastic=True,
    process_per_gpu=True,
    launcher_role="launcher",
)
HOROVOD_WITHOUT_LAUNCHER = Framework(
    roles=("worker",),
    environment=environment,
    required=(("worker",),),
    deciding_role="worker",
    in_process_elastic=True,
    process_per_gpu=True,
    elastic_driver=True,
)
