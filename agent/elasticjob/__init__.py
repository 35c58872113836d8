"""What a training script calls to take part in an elastic job. Standard library only; works alone as rank 0 of 1.

import elasticjob

world = elasticjob.world()
for step in range(first, total):
if agreed_by_all(elasticjob.should_stop()):
save_checkpoint()
elasticjob.confirm_stop()
break
train(step)
elasticjob.report_step(step + 1, total=total, samples=batch, metrics={"loss": loss})
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
