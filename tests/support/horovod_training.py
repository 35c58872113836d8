"""Trains with an unchanged Horovod Elastic script that accounts for the steps of each world.

Needs Horovod and PyTorch. Each batch adds 1 to the weight for every rank, so the final weight shows
a batch that was lost or counted twice. The ranks also train a line, of whose batch each has a part:
it ends as that of a single process.
"""

import os
import time
from pathlib import Path

import horovod.torch as hvd
import linear_model  # type: ignore[import-not-found, unused-ignore]
import torch

FINISH = Path(os.environ["FINISH"])
"""The training ends when rank 0 finds this file."""
SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))

hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
line = torch.nn.Linear(1, 1, dtype=torch.float64)
for parameter in line.parameters():
    torch.nn.init.zeros_(parameter)
groups = [
    {"params": model.parameters(), "lr": 1.0},
    {"params": line.parameters(), "lr": linear_model.RATE, "momentum": linear_model.MOMENTUM},
]
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=1.0), op=hvd.Sum)


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
        (errors_of_my_part(state.step).square().sum() / linear_model.BATCH).backward()
        optimizer.step()
        state.sizes = [*state.sizes, hvd.size()]
        state.step += 1
        time.sleep(SECONDS)
        if hvd.rank() == 0:
            print(f"step {state.step} size {hvd.size()} weight {weight():g}", flush=True)
        state.commit()


def errors_of_my_part(step: int) -> torch.Tensor:
    batch = range(step * linear_model.BATCH, (step + 1) * linear_model.BATCH)
    samples = [linear_model.sample(number) for number in batch[hvd.rank() :: hvd.size()]]
    x, y = torch.tensor(samples, dtype=torch.float64).T
    return line(x[:, None])[:, 0] - y


def over() -> bool:
    found = float(hvd.rank() == 0 and FINISH.exists())
    return bool(hvd.allreduce(torch.tensor(found), name="over", op=hvd.Sum))


def weight() -> float:
    return -float(model.weight[0, 0])


state = hvd.elastic.TorchState(model=model, line=line, optimizer=optimizer, step=0, sizes=[])
train(state)
assert len(state.sizes) == state.step
assert weight() == sum(state.sizes), "a batch was lost, or counted twice"
trained = [line.weight.item(), line.bias.item()]
alone = linear_model.weights(state.step)
assert all(abs(a - b) < 1e-9 for a, b in zip(trained, alone, strict=True)), (trained, alone)
print(
    f"finished: rank {hvd.rank()} of {hvd.size()} after {state.step} steps weight {weight():g}",
    flush=True,
)
