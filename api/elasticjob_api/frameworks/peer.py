"""The interface of a framework's module: `Framework`, and the processes of a world (`Peer`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, overload
from zlib import crc32

_EMBEDDED_PORTS = 3000
"""The number of ports per use: all are below 32768, the first of the kernel's ports for clients."""
_FIRST_NODE_PORT = 11_000
_NODE_PORTS = 8000


class Peer(NamedTuple):
    """One process of a world; its rank is its position in the world.

    A tuple, because a world may have 80,000 of them.

    Attributes:
        name: the name of its pod. The processes of a pod have adjacent ranks.
        role: the role of its pod.
        index: the index of its pod within the role.
        address: the address of its pod.
        slots: the slots of its pod.
        local_rank: its position among the processes of its pod.
        local_size: the number of processes of its pod in this world.
        port: the job's own port, if its pods use the networks of their nodes; see `node_port`.
    """

    name: str
    role: str
    index: int  # type: ignore[assignment]  # not the method of tuples
    address: str
    slots: int = 1
    local_rank: int = 0
    local_size: int = 1
    port: int = 0


class Processes(Sequence[Peer]):
    """The processes of a world, by rank.

    Each is made when it is read: few frameworks read those of all ranks, and making 80,000 takes a
    third of a second.
    """

    def __init__(self, members: Sequence[Peer], sizes: Sequence[int]) -> None:
        """Hold the processes of these members, each of which has as many as `sizes` says."""
        self._members = members
        self._firsts = list(accumulate(sizes, initial=0))

    def ranks(self, position: int) -> range:
        """Return the ranks of a member's processes, by its position among the members."""
        return range(self._firsts[position], self._firsts[position + 1])

    def __len__(self) -> int:
        return self._firsts[-1]

    def __iter__(self) -> Iterator[Peer]:
        for position, member in enumerate(self._members):
            size = len(self.ranks(position))
            for local_rank in range(size):
                yield _process(member, local_rank, size)

    @overload
    def __getitem__(self, rank: int) -> Peer: ...

    @overload
    def __getitem__(self, rank: slice) -> list[Peer]: ...

    def __getitem__(self, rank: int | slice) -> Peer | list[Peer]:
        ranks = range(len(self))[rank]
        if isinstance(ranks, range):
            return [self[each] for each in ranks]
        position = bisect_right(self._firsts, ranks) - 1
        own = self.ranks(position)
        return _process(self._members[position], ranks - own.start, len(own))


def _process(member: Peer, local_rank: int, local_size: int) -> Peer:
    return Peer(
        member.name,
        member.role,
        member.index,
        member.address,
        member.slots,
        local_rank,
        local_size,
        member.port,
    )


Environment = Callable[[int], dict[str, str]]
"""Returns the variables that the framework reads in the process of a rank."""


@dataclass(frozen=True)
class Framework:
    """A framework's roles and conventions.

    Attributes:
        roles: the allowed role names; empty means any.
        environment: prepares the data that all ranks of a world share, and returns a function that
            returns the variables of a rank.
        required: groups of roles. A job needs one role of each group, with an agent.
        single_roles: roles that may have only one member with an agent.
        ports: the ports at which members listen for each other, or the first port of each role.
        deciding_role: the role whose members end the job when they succeed; None means every role.
        stop_order: roles in the order in which they stop: roles that save state before roles that
            hold it.
        kept_roles: roles whose processes continue when others join or leave, by default.
        in_process_elastic: the training process handles world changes; the agent does not restart
            it.
        process_per_gpu: a member has a process for each of its GPUs, unless the job sets the
            number of processes. Each process chooses its GPU by its local rank. Otherwise a process
            uses all GPUs of its member, and several processes get a part each.
        launcher_role: if the world has this role, its members start the processes of all slots, and
            the agents start one process per member, such as a remote shell.
        elastic_driver: the master acts as Horovod's elastic driver: processes request their place
            in each world from it.
        own_port: the job's own port, if its pods use the networks of their nodes; see `node_port`.
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
    own_port: int = 0

    def processes(self, members: Sequence[Peer]) -> Processes:
        """Return, by rank, the processes that the agents of a world's members start."""
        has_launcher = self.launcher_role in {member.role for member in members}
        if self.own_port:
            members = [member._replace(port=self.own_port) for member in members]
        return Processes(members, [1 if has_launcher else member.slots for member in members])


def meeting_port(address: str, usual: int, own: int = 0) -> int:
    """Return the port at which the pod with this address listens for the others of its world.

    Pods with loopback addresses are in the embedded cluster and share one network stack. The
    frameworks listen on all addresses, so two jobs need different ports there.

    Args:
        address: the address of the pod.
        usual: the framework's usual port.
        own: the job's own port, which it uses instead; 0 if it has none.
    """
    if address.startswith("127."):
        return usual + crc32(address.encode()) % _EMBEDDED_PORTS
    return own or usual


def node_port(job_uid: str) -> int:
    """Return the port of a job whose pods use the networks of their nodes, as other jobs do.

    It is above the ports of Kubernetes' own programs and below those of NodePort Services, also
    with the distance of TensorFlow's ports from each other.
    """
    return _FIRST_NODE_PORT + crc32(job_uid.encode()) % _NODE_PORTS


def stop_stage(role: str, order: Sequence[str], kept_roles: Collection[str]) -> int:
    """Return a role's place in the order in which roles stop.

    Of the roles that `order` does not contain, kept ones are last and others first.
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
