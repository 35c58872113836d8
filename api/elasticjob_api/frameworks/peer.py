"""The interface of a framework's module.

`Framework`, and the processes of a world that it gets (`Peer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

_EMBEDDED_PORTS = 3000
"""Few enough to stay below the ports that the kernel gives to clients, from 32768."""


@dataclass(frozen=True)
class Peer:
    """One process of a world; its rank is its position in the world.

    Attributes:
        name: of its pod; the processes of a pod have the same, and adjacent ranks.
        role: of its pod.
        index: of its pod within the role.
        address: of its pod.
        slots: of its pod.
        local_rank: its position among the processes of its pod.
        local_size: how many processes its pod has in this world.
    """

    name: str
    role: str
    index: int
    address: str
    slots: int = 1
    local_rank: int = 0
    local_size: int = 1


Environment = Callable[[int], dict[str, str]]
"""From a rank to the variables the framework reads in the training process of that rank."""


@dataclass(frozen=True)
class Framework:
    """A framework's roles and conventions.

    Attributes:
        roles: role names it knows; empty means any.
        required: roles that a job needs, with an agent; of each group one.
        single_roles: roles of which a job has one member with an agent at most.
        ports: at which members that meet there listen, or the first of each role does.
        environment: prepares what all ranks of a world share, once, and returns what renders the variables of each.
        process_per_gpu: a member has a process for each of its GPUs, unless the job sets their number; each process
            chooses its GPU by its local rank. Otherwise a process uses all GPUs of its member, and if there are several
            processes, each is shown its part of the GPUs only.
        launcher_role: where the world has this role, its members start the processes of all slots; the agents start
            one process a member, such as a remote shell.
        deciding_role: the role whose members end the job when they succeed; None means every role.
        stop_order: roles that are stopped one after the other: who saves something, before those that hold it.
        kept_roles: roles whose processes go on when others come and go, unless the job says otherwise.
        in_process_elastic: the training process takes world changes itself; the agent does not restart it.
        elastic_driver: the master plays Horovod's elastic driver: the processes ask it for their place in each world.
    """

    roles: tuple[str, ...]
    environment: Callable[[Sequence[Peer]], Environment]
    required: tuple[tuple[str, ...], ...] = ()
    single_roles: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    deciding_role: str | None = None
    stop_order: tuple[str, ...] = ()
    kept_roles: frozenset[str] = frozenset()
    in_process_elastic: bool = False
    process_per_gpu: bool = False
    launcher_role: str | None = None
    elastic_driver: bool = False

    def processes(self, members: Sequence[Peer]) -> list[Peer]:
        """Return the processes of a world by rank.

        Those that the agents of its members start, for each its slots.
        """
        launched = self.launcher_role is not None and any(
            member.role == self.launcher_role for member in members
        )
        return [
            replace(member, local_rank=local_rank, local_size=1 if launched else member.slots)
            for member in members
            for local_rank in range(1 if launched else member.slots)
        ]


def meeting_port(address: str, usual: int) -> int:
    """Return the port at which the pod of this address listens for all others of its world.

    A loopback address is one of the embedded cluster, whose pods have one network stack. The
    frameworks listen on all its addresses at once, so two jobs that used the same port there would
    be in each other's way.
    """
    return usual + (crc32(address.encode()) % _EMBEDDED_PORTS if address.startswith("127.") else 0)


def stop_stage(role: str, order: Sequence[str], kept_roles: Collection[str]) -> int:
    """Return a role's place in the order in which roles are stopped.

    Kept roles that it does not name are last.
    """
    if role in order:
        return order.index(role)
    return len(order) if role in kept_roles else 0


def of_role(world: Sequence[Peer], role: str) -> list[Peer]:
    """Return the processes of one role, in the order of their indices and local ranks."""
    return sorted(
        (peer for peer in world if peer.role == role),
        key=lambda peer: (peer.index, peer.local_rank),
    )
