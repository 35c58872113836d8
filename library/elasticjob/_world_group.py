"""What a session needs of a framework: the groups of processes that communicate in a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob._connections import Connections


class InterruptedJoin(RuntimeError):
    """The world has ended before all its processes have met."""


@dataclass
class Meeting:
    """A world that its processes join: the place of this one, and its group's connections."""

    round: int
    rank: int
    size: int
    pods: frozenset[str]
    connections: Connections
    formed: bool = False
    """The group works."""
    joined: bool = False
    """The group works, and each process has the newest state."""
    event_loops: frozenset[str] = frozenset()
    """The threads that wait for events when the group begins to work, such as those of Gloo."""
    uses_storage: bool = False
    """This process reads or writes a checkpoint."""


class Group(Protocol):
    """Joins one world after the other, and communicates in the present one.

    Attributes:
        errors: what the framework raises when another process has gone.
    """

    errors: tuple[type[Exception], ...]

    @property
    def notices_ends(self) -> bool:
        """Whether the connections show that another process has ended."""

    def port(self, address: str) -> int:
        """Return the port at which the pod with this address serves as rank 0."""

    def serve(self, address: str) -> None:
        """Let the processes of worlds meet at this one, if that is not done already."""

    def join(self, meeting: Meeting, address: str, interrupted: Callable[[], bool]) -> None:
        """Connect to all processes of a world, of whose rank 0 this is the address.

        Raises:
            RuntimeError: the world has ended, or not all processes have come in time.
        """

    def arrived(self, round_: int) -> int:
        """Return how many processes wait for the others in a world, at this process."""

    def gather(self, mine: Any) -> list[Any]:
        """Return the objects of all ranks."""

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""

    def broadcast(self, tree: Any, source: int) -> Any:
        """Return the committed state of the source, in all ranks."""

    def destroy(self, connections: Connections) -> None:
        """End the present group without waiting for the other processes."""
