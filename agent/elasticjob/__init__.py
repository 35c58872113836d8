"""What a training script calls to take part in an elastic job. Standard library only; works alone as rank 0 of 1.

A training loop that takes part, with a checkpoint that all ranks share:

    import elasticjob

    for step in range(load_checkpoint(), total):
        train(step)
        elasticjob.report_step(step + 1, total=total, samples=batch)
        if agreed_by_all_ranks(elasticjob.should_stop()):
            save_checkpoint(step + 1)
            elasticjob.confirm_stop()
            raise SystemExit(0)
"""

from elasticjob._socket import AgentError
from elasticjob.progress import confirm_stop, report_step, should_stop
from elasticjob.shards import Shard, Shards, shards
from elasticjob.world import World, world

__all__ = [
    "AgentError",
    "Shard",
    "Shards",
    "World",
    "confirm_stop",
    "report_step",
    "shards",
    "should_stop",
    "world",
]
