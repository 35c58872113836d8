"""The place of this process in its world, from its environment or a world that it has joined."""

from __future__ import annotations

import os
from dataclasses import dataclass

from elasticjob_api import names


@dataclass(frozen=True)
class Place:
    """The place of this process in a world."""

    round: int
    rank: int
    size: int


@dataclass
class Joined:
    """The place in a world that this process has joined since its start, or None."""

    place: Place | None = None


joined = Joined()


def first_round() -> int:
    """Return the round in which this process began; 0 when there is no job."""
    return int(os.environ.get(names.ENV_ROUND, "0"))


def world_round() -> int:
    """Return the round of this process' world; 0 when there is no job."""
    return joined.place.round if joined.place else first_round()


def rank() -> int:
    """Return this process' rank among those of all pods."""
    return joined.place.rank if joined.place else _number(names.ENV_RANK, "RANK", 0)


def size() -> int:
    """Return the number of processes of all pods."""
    return joined.place.size if joined.place else _number(names.ENV_WORLD_SIZE, "WORLD_SIZE", 1)


def local_rank() -> int:
    """Return this process' rank among those of its pod."""
    return _number(names.ENV_LOCAL_RANK, "LOCAL_RANK", 0)


def local_size() -> int:
    """Return the number of processes of its pod."""
    return _number(names.ENV_LOCAL_SIZE, "LOCAL_WORLD_SIZE", 1)


def _number(agents: str, launchers: str, alone: int) -> int:
    """Return a number that the agent has set, or a launcher such as torchrun below the agent."""
    if agents in os.environ:
        return int(os.environ[agents])
    if names.ENV_SOCKET in os.environ:
        return int(os.environ.get(launchers, alone))
    return alone


def check_not_alone(processes: int) -> None:
    """Check that a library trains with the processes of the world.

    Raises RuntimeError if this process would train alone, as would each other one.
    """
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    if names.ENV_SOCKET in os.environ and processes == 1 < wanted:
        raise RuntimeError(
            f"this process would train a model alone, as would each of the {wanted} processes of "
            "the world: on CPUs set ACCELERATE_USE_CPU=true for Accelerate and Hugging Face's "
            "Trainer; give Lightning's Trainer the processes of a pod as devices, and the number "
            "of pods as num_nodes"
        )
