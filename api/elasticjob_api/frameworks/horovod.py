"""Horovod, in two ways.

Workers alone, for which the master plays the elastic driver, or a launcher with its own.
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
"""Variables of a worker without a launcher that the pod's own ones replace."""


@dataclass(frozen=True)
class Slot:
    """The place of one process in a world, with the numbers that Horovod gives it.

    Attributes:
        cross_rank: its position among the processes of the same local rank.
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
    """Return what a process without a launcher reads at its start.

    Its agent adds where it serves the rendezvous.
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
    """Return what keeps a worker's own command from training alone.

    The launcher starts the training, with its values.
    Nothing is set in the launcher, which passes its environment on to every process that it starts.
    """
    return lambda rank: {} if world[rank].role == "launcher" else {"HOROVOD_CONTROLLER": "launcher"}


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
