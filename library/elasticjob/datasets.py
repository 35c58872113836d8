"""Opens data sets: declares them to the master, and restores a checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from elasticjob_api.limits import MAX_LEASED_SHARDS

from elasticjob._agent_connection import agent_connection
from elasticjob._arguments import check_counts, check_text
from elasticjob.shards import AnyShard, Shard, Shards, ShardSource


def shards(
    name: str,
    *,
    size: int,
    shard_size: int,
    epochs: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    prefetch: int = 64,
    restore: bytes | None = None,
) -> Shards[Shard]:
    """Open a data set for the whole job; every process passes the same numbers.

        data = elasticjob.shards("train", size=1000, shard_size=100)
        for shard in data:
            train(range(shard.start, shard.end))
            data.done(shard)

    Args:
        name: the data set's name within the job.
        size: the number of samples.
        shard_size: samples in a shard; the last one of an epoch may be smaller.
        epochs: the number of times that each sample is trained.
        shuffle: whether the shards of each epoch are leased in another random order.
        seed: the seed of these orders.
        prefetch: shards leased ahead, at most 10,000; more are leased when half of them are left.
            That half should last while the master is replaced.
        restore: the account that `Shards.checkpoint` returned when the loaded model was saved;
            `b""` for a new model. If None, the shards stay as they are. Every process of a world
            passes the same.

    Raises:
        AgentError: the data set is already open with other numbers, the numbers make no sense, or
            the checkpoint belongs to another data set.
    """
    check_counts(size=size, shard_size=shard_size, epochs=epochs)
    fields = {
        "size": size,
        "shard_size": shard_size,
        "epochs": epochs,
        "shuffle": shuffle,
        "seed": seed,
    }
    return open_shards(name, fields, Shard, prefetch=prefetch, restore=restore)


def stream_shards(
    name: str, *, shard_size: int, size: int = 0, prefetch: int = 64, restore: bytes | None = None
) -> Shards[Shard]:
    """Open a data set that grows: `Shards.extend` declares new samples, and the end of the stream.

        data = elasticjob.stream_shards("events", shard_size=100)
        data.extend(1000, final=True)
        for shard in data:
            train(range(shard.start, shard.end))
            data.done(shard)

    Args:
        name: the data set's name within the job.
        shard_size: samples in a shard. A shard is leased when it is full, the last one at the end
            of the stream.
        size: the number of samples that exist already.
        prefetch: shards leased ahead.
        restore: the account of a checkpoint, as for `shards`.

    Raises:
        AgentError: as for `shards`.
    """
    check_counts(size=size, least=0)
    check_counts(shard_size=shard_size)
    fields = {"size": size, "shard_size": shard_size, "streamed": True}
    return open_shards(name, fields, Shard, prefetch=prefetch, restore=restore)


def open_shards(
    name: str,
    fields: dict[str, Any],
    make: Callable[..., AnyShard],
    *,
    prefetch: int,
    restore: bytes | None,
) -> Shards[AnyShard]:
    """Declare a data set, restore a checkpoint if one is given, and begin to lease shards."""
    check_text("name", name)
    check_counts(prefetch=prefetch)
    if prefetch > MAX_LEASED_SHARDS:
        raise ValueError(f"{prefetch=} must be at most {MAX_LEASED_SHARDS}")
    source: ShardSource | None = agent_connection()
    if source is None:
        from elasticjob._standalone import Standalone

        source = Standalone()
    count = source.call("create_dataset", dataset=name, **fields).result()["shards"]
    if restore is not None:
        state = base64.b64encode(restore).decode()
        source.call("restore_checkpoint", dataset=name, state=state).result()
    return Shards(source, name, make, count=int(count), prefetch=prefetch)
