"""The library with which a training script takes part in an elastic job.

It needs only the standard library. Without a job, the script trains alone as rank 0 of 1. A
training loop with a checkpoint that all ranks share:

    import elasticjob

    for step in range(load_checkpoint(), total):
        train(step)
        elasticjob.report_step(step + 1, total=total, samples=batch)
        if step + 1 < total and elasticjob.should_stop_together():
            save_checkpoint(step + 1)
            elasticjob.confirm_stop()
            raise SystemExit(0)
"""

from elasticjob._agent_connection import AgentError
from elasticjob._division import Part
from elasticjob.agreement import should_stop_together
from elasticjob.batches import GlobalBatches, global_batches
from elasticjob.checkpointer import Checkpointer
from elasticjob.commit import may_commit
from elasticjob.datasets import shards, stream_shards
from elasticjob.key_value import KeyValue, barrier
from elasticjob.progress import checkpoint_requested, confirm_stop, report_step, should_stop
from elasticjob.shards import Shard, Shards
from elasticjob.text import TextShard, text_shards
from elasticjob.world import (
    Member,
    World,
    WorldChanged,
    members,
    next_world,
    world,
    world_changed,
)

__all__ = [
    "AgentError",
    "Checkpointer",
    "GlobalBatches",
    "KeyValue",
    "Member",
    "Part",
    "Shard",
    "Shards",
    "TextShard",
    "World",
    "WorldChanged",
    "barrier",
    "checkpoint_requested",
    "confirm_stop",
    "global_batches",
    "may_commit",
    "members",
    "next_world",
    "report_step",
    "shards",
    "should_stop",
    "should_stop_together",
    "stream_shards",
    "text_shards",
    "world",
    "world_changed",
]
