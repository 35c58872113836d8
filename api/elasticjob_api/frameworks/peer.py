"""The interface of a framework's module: `Framework`, and the members of a world that it gets (`Peer`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """One member of a world, as registered. Its rank is its position in the world."""

    name: str
    role: str
    index: int
    address: str
    slots: int = 1


Environment = Callable[[int], dict[str, str]]
"""From a rank to the variables the framework reads in the training process of that rank."""


@dataclass(frozen=True)
class Framework:
    """A framework's roles and conventions.

    Attributes:
        roles: role names it knows; empty means any.
        environment: prepares what all ranks of a world share, once, and returns what renders the variables of each.
        deciding_role: the role whose members end the job when they succeed; None means every role.
        stop_order: roles that are stopped one after the other: who saves something, before those that hold it.
        kept_roles: roles whose processes go on when others come and go, unless the job says otherwise.
        in_process_elastic: the training process takes world changes itself; the agent does not restart it.
    """

    roles: tuple[str, ...]
    environment: Callable[[Sequence[Peer]], Environment]
    deciding_role: str | None = None
    stop_order: tuple[str, ...] = ()
    kept_roles: frozenset[str] = frozenset()
    in_process_elastic: bool = False


def stop_stage(role: str, order: Sequence[str], kept_roles: Collection[str]) -> int:
    """Return a role's place in the order in which roles are stopped; kept roles that it does not name are last."""
    if role in order:
        return order.index(role)
    return len(order) if role in kept_roles else 0


def of_role(world: Sequence[Peer], role: str) -> list[Peer]:
    """Return the members of one role, in the order of their indices."""
    return sorted((peer for peer in world if peer.role == role), key=lambda peer: peer.index)
