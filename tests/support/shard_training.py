"""Trains without a framework: reads the lines of its shards, and writes a line to a file for each
shard.

It reads these environment variables: FILES (its data), TRAINED (a folder), and MODE.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import elasticjob

TRAINED = Path(os.environ["TRAINED"])
MODE = os.environ["MODE"]


def note(shard: elasticjob.Shard, what: str) -> None:
    """Write a line about a shard to the file of this process."""
    with (TRAINED / f"{os.getpid()}").open("a") as file:
        file.write(f"{what} {shard.id}\n")


def take(shards: elasticjob.Shards[elasticjob.Shard]) -> elasticjob.Shard:
    """Lease the next shard, which must exist."""
    shard = shards.take()
    assert shard is not None
    return shard


def train() -> None:
    """Train all lines of all files twice; shards of a damaged file fail."""
    files = sorted(Path(os.environ["FILES"]).iterdir())
    shards = elasticjob.text_shards(
        "text", files, lines_per_shard=5, epochs=2, shuffle=True, seed=3, prefetch=8
    )
    for shard in shards:
        try:
            for line in shard.lines():
                assert line == f"line of {shard.path}", line
        except UnicodeDecodeError as error:
            note(shard, "failed")
            shards.fail(shard, str(error))
            continue
        time.sleep(0.005)
        note(shard, "trained")
        shards.done(shard)
    assert shards.flush(20)


def resume() -> None:
    """Train 200 shards with a checkpoint after every tenth, for the next process."""
    model = TRAINED.parent / "model"
    trained, saved = model.read_bytes().split(b"\n", 1) if model.exists() else (b"", b"")
    numbers = [int(number) for number in trained.split()]
    shards = elasticjob.shards(
        "data", size=1000, shard_size=5, shuffle=True, prefetch=8, restore=saved
    )
    for shard in shards:
        numbers.append(shard.id)
        shards.done(shard)
        time.sleep(0.005)
        if len(numbers) % 10 == 0:
            state = " ".join(map(str, numbers)).encode() + b"\n" + shards.checkpoint(timeout=20)
            model.with_suffix(".new").write_bytes(state)
            model.with_suffix(".new").replace(model)
    print(f"model of {len(numbers)} shards, {len(set(numbers))} different ones", flush=True)


def fork() -> None:
    """Let a forked process lease shards and die, then train everything."""
    child = os.fork()
    if not child:
        shards = elasticjob.shards("data", size=20, shard_size=1, prefetch=5)
        print("child has", [take(shards).id for _ in range(3)], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    shards = elasticjob.shards("data", size=20, shard_size=1, prefetch=20)
    trained = []
    for shard in shards:
        trained.append(shard.id)
        shards.done(shard)
    print("parent has", sorted(trained), flush=True)
    child = os.fork()
    if not child:
        try:
            shards.take()
        except elasticjob.AgentError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def stream() -> None:
    """Let rank 0 extend the stream, and all ranks train its samples."""
    shards = elasticjob.stream_shards("events", shard_size=4)
    count = 0
    if elasticjob.world().rank == 0:
        for size in range(1, 42):
            shards.extend(size)
            time.sleep(0.01)
        shards.extend(42, final=True)
    for shard in shards:
        note(shard, f"{shard.start}-{shard.end}")
        shards.done(shard)
        count += 1
    assert shards.flush(20)
    print(f"{count} shards of the stream", flush=True)


def again() -> None:
    """Crash after a checkpoint, and continue from it when restarted in this pod."""
    model = TRAINED.parent / "model"
    saved = model.read_bytes() if model.exists() else b""
    shards = elasticjob.shards("data", size=20, shard_size=1, prefetch=9, restore=saved)
    if not saved:
        shards.done(*(take(shards) for _ in range(5)))
        model.write_bytes(shards.checkpoint(timeout=20))
        shards.done(*(take(shards) for _ in range(3)))
        sys.exit(3)
    rest = []
    for shard in shards:
        rest.append(shard.id)
        shards.done(shard)
    print("the rest is", sorted(rest), flush=True)


def is_first_of_two(world: elasticjob.World) -> bool:
    """Return whether this is the first world of both; who is alone before it waits to be stopped.

    The other may come so late that a world of one is formed first.
    """
    file = TRAINED.parent / "first-of-two"
    if not file.exists():
        if world.size == 1:
            time.sleep(600)
        new = file.with_suffix(f".{world.rank}")
        new.write_text(str(world.round))
        new.replace(file)
    return int(file.read_text()) == world.round


def commit() -> None:
    """Train all shards; in the first world of two, wait before saving until others are ahead."""
    world = elasticjob.world()
    first = is_first_of_two(world)
    if first and world.rank == 1:
        time.sleep(600)
    shards = elasticjob.shards("data", size=20, shard_size=1, prefetch=9)
    if first:
        shards.done(*(take(shards) for _ in range(5)))
        assert shards.flush(20)
        note(take(shards), "waits")
        while not (TRAINED.parent / "others-are-ahead").exists():
            time.sleep(0.05)
        print("saves", flush=True)
        with contextlib.suppress(elasticjob.AgentError):
            (TRAINED.parent / "account").write_bytes(shards.checkpoint(timeout=60))
        if elasticjob.may_commit(timeout=60):
            (TRAINED.parent / "model").touch()
        time.sleep(600)
    for shard in shards:
        note(shard, "trained")
        shards.done(shard)
    assert shards.flush(20)
    print(f"trained as one of {world.size}", flush=True)
    print(f"may commit: {elasticjob.may_commit()}", flush=True)
    while not (TRAINED.parent / "over").exists():
        time.sleep(0.05)


def meet() -> None:
    """Meet the other process; the first time rank 1 then crashes, and rank 0 waits for it."""
    world = elasticjob.world()
    first = is_first_of_two(world)
    store = elasticjob.KeyValue()
    found = store.get(f"address-{world.rank}")
    store.set(f"address-{world.rank}", str(os.getpid()).encode())
    elasticjob.barrier("met")
    print(f"rank {world.rank} round {world.round} found {found!r}", flush=True)
    if first:
        if world.rank == 1:
            sys.exit(3)
        time.sleep(600)


if __name__ == "__main__":
    modes = {
        "train": train,
        "resume": resume,
        "fork": fork,
        "stream": stream,
        "again": again,
        "commit": commit,
    }
    modes["meet"] = meet
    sys.exit(modes[MODE]())
