"""Trains with processes that continue from world to world: `onWorldChange: Notify`.

Its processes meet in each world at a barrier, where the first one sends the others its number by a
value. Between these meetings they train shards, slowly until their folder has a file `finish`. A
process of index DEAF enters no world after its first one, and one of index LINGERS takes long to
end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import elasticjob
from elasticjob._agent_connection import agent_connection

SAMPLES = 5000
FINISH = Path(os.environ.get("FOLDER", ".")) / "finish"
DEAF = int(os.environ.get("DEAF", "-1"))
LINGERS = int(os.environ.get("LINGERS", "-1"))


def say(text: str) -> None:
    """Print a line in one piece."""
    os.write(1, f"{text}\n".encode())


def meet() -> elasticjob.World:
    """Enter the newest world, and wait until all its processes have.

    If it ends before, enter the next one.
    """
    while True:
        here = elasticjob.next_world()
        say(f"entered: {os.getpid()} round {here.round}")
        try:
            store = elasticjob.KeyValue()
            if here.rank == 0:
                store.set("first", str(os.getpid()).encode())
            (first,) = store.wait("first", timeout=100)
            elasticjob.barrier("met", timeout=100)
        except elasticjob.AgentError as error:
            say(f"again: {error}")
            elasticjob.next_world(timeout=100)
            if elasticjob.should_stop():
                leave()
            continue
        addresses = sorted(member.address for member in elasticjob.members())
        assert len(addresses) == here.size
        say(
            f"world: {os.getpid()} rank {here.rank} of {here.size} round {here.round} "
            f"first {first.decode()}"
        )
        return here


def leave() -> None:
    """End because of a stop."""
    here = elasticjob.world()
    agent = agent_connection()
    if here.index == LINGERS and agent is not None:
        agent.send({"left": here.round, "ends": True})
        while not FINISH.exists():
            time.sleep(0.1)
    elasticjob.confirm_stop()
    sys.exit(0)


def train() -> None:
    """Train all shards."""
    here = meet()
    shards = elasticjob.shards("samples", size=SAMPLES, shard_size=5, prefetch=4)
    try:
        elasticjob.shards("samples", size=SAMPLES, shard_size=5, restore=b"")
    except elasticjob.AgentError as error:
        say(f"not restored: {error}")
    for step, shard in enumerate(shards, start=1):
        say(f"trained: {shard.start} {shard.end}")
        shards.done(shard)
        elasticjob.report_step(step, samples=shard.end - shard.start)
        if elasticjob.should_stop():
            shards.flush(20)
            leave()
        if elasticjob.world_changed() and here.index != DEAF:
            may = elasticjob.may_commit()
            here = meet()
            say(f"may commit: {may} before, {elasticjob.may_commit()} after round {here.round}")
        if not FINISH.exists():
            time.sleep(0.2)
    assert shards.flush(60)


if __name__ == "__main__":
    train()
