"""Trains with an unchanged Horovod Elastic script that accounts for the steps of each world.

Needs Horovod and PyTorch. Each batch adds 1 to the weight for every rank, so the final weight shows
a batch that was lost or counted twice.
"""

import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch

FINISH = Path(os.environ["FINISH"])
"""The training ends when rank 0 finds this file."""
SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))

hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=hvd.Sum)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    print(
        f"world: rank {hvd.rank()} of {hvd.size()} from step {state.step} weight {weight():g}",
        flush=True,
    )
    while not over():
        ranks = hvd.allgather(torch.tensor([hvd.rank()]), name="ranks").tolist()
        assert ranks == list(range(hvd.size())), ranks
        optimizer.zero_grad()
        model(torch.ones(1, 1)).backward()  # a gradient of 1 in each rank
        optimizer.step()
        state.sizes = [*state.sizes, hvd.size()]
        state.step += 1
        time.sleep(SECONDS)
        if hvd.rank() == 0:
            print(f"step {state.step} size {hvd.size()} weight {weight():g}", flush=True)
        state.commit()


def over() -> bool:
    found = float(hvd.rank() == 0 and FINISH.exists())
    return bool(hvd.allreduce(torch.tensor(found), name="over", op=hvd.Sum))


def weight() -> float:
    return -float(model.weight[0, 0])


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, sizes=[])
train(state)
assert len(state.sizes) == state.step
assert weight() == sum(state.sizes), "a batch was lost, or counted twice"
print(
    f"finished: rank {hvd.rank()} of {hvd.size()} after {state.step} steps weight {weight():g}",
    flush=True,
)
