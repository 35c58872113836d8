"""Returns this process' rank and the other members of its world."""

from __future__ import annotations

import os
from dataclasses import dataclass

from elasticjob_api import names

from elasticjob import _process
from elasticjob._agent_connection import agent_connection


class WorldChanged(Exception):
    """The present world ends: `elasticjob.torch` leaves it and joins the next one.

        try:
            world.commit()
        except elasticjob.WorldChanged:
            close_files()
            raise

    Only code that must clean up needs to catch it.
    """


@dataclass(frozen=True)
class World:
    """A set of training processes that work together, until the next change.

        here = elasticjob.world()
        samples = range(here.rank, 1000, here.size)

    Attributes:
        rank: this process, counted from 0; 0 is the first process of the longest-serving pod.
        size: the number of processes, those of all pods together.
        round: the number of this world, counted from 1; 0 when there is no job.
        job: a name of the job that is never used again, for example for a checkpoint's folder.
        address: this pod's IP address, at which the other processes reach this one.
        role: this process' role, such as worker or ps.
        index: this pod's number within its role, which it inherits from a pod that it replaces.
        local_rank: this process among those of its pod, counted from 0; their ranks are adjacent.
        local_size: the number of processes of this pod.
    """

    rank: int
    size: int
    round: int
    job: str
    address: str
    role: str
    index: int
    local_rank: int = 0
    local_size: int = 1


@dataclass(frozen=True)
class Member:
    """One process of the world, at its rank's position in the list of all.

        for rank, member in enumerate(elasticjob.members()):
            print(rank, member.pod, member.address)

    `local_rank` counts the processes of a pod from 0.
    """

    pod: str
    role: str
    index: int
    address: str
    node: str
    local_rank: int = 0


def world() -> World:
    """Return this process' world, which changes only when `next_world` joins another one.

        if elasticjob.world().rank == 0:
            print(f"{elasticjob.world().size} processes")

    Without a job it is a world of one process.
    """
    read = os.environ.get
    return World(
        rank=_process.rank(),
        size=_process.size(),
        round=_process.world_round(),
        job=read(names.ENV_JOB_UID) or "alone",
        address=read(names.ENV_POD_IP) or "127.0.0.1",
        role=read(names.ENV_ROLE) or names.ROLE_WORKER,
        index=int(read(names.ENV_INDEX, "0")),
        local_rank=_process.local_rank(),
        local_size=_process.local_size(),
    )


def world_changed() -> bool:
    """Return whether a newer world exists, in a role with `onWorldChange: Notify`.

        if elasticjob.world_changed():
            rebuild(elasticjob.next_world())

    It only reads memory of this process, so it may be called at every step.
    """
    agent = agent_connection()
    return agent is not None and agent.notified_round > _process.world_round()


def next_world(*, timeout: float = 0.0) -> World:
    """Join the newest world, and return it; without a newer one, return the present world.

        if elasticjob.world_changed():
            here = elasticjob.next_world()
            rebuild(here)

    Call it when `world_changed`, between two steps, or when the other processes have become
    unreachable. Afterwards `world`, `members`, steps, values and barriers are those of the new
    world.

    Args:
        timeout: seconds to wait for a change, or for a request to stop.

    Raises:
        AgentError: the agent is unreachable.
    """
    agent = agent_connection()
    if agent is not None and timeout > 0:
        agent.wait_for_world(_process.world_round(), timeout)
    if agent is not None and world_changed():
        _process.joined.place = _process.Place(**agent.call("next_world").result())
    return world()


def members() -> list[Member]:
    """Return all processes of the world, in the order of their ranks. Calls the agent.

        addresses = [member.address for member in elasticjob.members()]

    Raises:
        AgentError: the agent is unreachable.
    """
    agent = agent_connection()
    here = world()
    if agent is None:
        return [Member(pod="", role=here.role, index=here.index, address=here.address, node="")]
    return [Member(**member) for member in agent.call("members").result()["members"]]
